"""The customers."""

from typing import Any

from resources_servers.workplace_assistant.toolkits.toolkit import (
    PAGE_SIZE,
    Toolkit,
    having,
    is_within_days,
    padded,
    page_of,
    tool,
)

_ID = "The number of the customer, eight digits"
_STATUSES = ("Qualified", "Won", "Lost", "Lead", "Proposal")
_PRODUCTS = ("Software", "Hardware", "Services", "Consulting", "Training")
_FIELDS = (
    "customer_name",
    "assigned_to_email",
    "customer_email",
    "customer_phone",
    "last_contact_date",
    "product_interest",
    "status",
    "notes",
    "follow_up_by",
)
_EMAILS = ("assigned_to_email", "customer_email")
_NOT_FOUND = "Customer not found."


class CustomerRelations(Toolkit):
    prefix = "customer_relationship_manager"

    @tool(
        "Search customers; at least one argument besides the page is needed.",
        is_reading=True,
        customer_name="A part of the name",
        customer_email="A part of the address",
        product_interest=", ".join(_PRODUCTS),
        status=", ".join(_STATUSES),
        assigned_to_email="A part of the address of who looks after them",
        last_contact_date_min="The earliest day of the last contact, as YYYY-MM-DD",
        last_contact_date_max="The latest day of the last contact, as YYYY-MM-DD",
        follow_up_by_min="The earliest day to follow up by, as YYYY-MM-DD",
        follow_up_by_max="The latest day to follow up by, as YYYY-MM-DD",
        page="Which page of results",
        page_size="Results per page",
    )
    async def search_customers(
        self,
        customer_name: str | None = None,
        customer_email: str | None = None,
        product_interest: str | None = None,
        status: str | None = None,
        assigned_to_email: str | None = None,
        last_contact_date_min: str | None = None,
        last_contact_date_max: str | None = None,
        follow_up_by_min: str | None = None,
        follow_up_by_max: str | None = None,
        page: int = 1,
        page_size: int = PAGE_SIZE,
    ) -> Any:
        given = {
            "customer_name": customer_name,
            "customer_email": customer_email,
            "product_interest": product_interest,
            "status": status,
            "assigned_to_email": assigned_to_email,
        }
        wanted = {field: value for field, value in given.items() if value}
        windows = {
            "last_contact_date": (last_contact_date_min, last_contact_date_max),
            "follow_up_by": (follow_up_by_min, follow_up_by_max),
        }
        if not wanted and not any(any(window) for window in windows.values()):
            return "No search parameters provided."
        rows = [
            row
            for row in self.office.customers
            if all(is_within_days(row[field], *window) for field, window in windows.items())
        ]
        for field, pattern in wanted.items():
            rows = await having(pattern, rows, field)
        found = [dict(row) for row in rows]
        return page_of(found, "customers", page, page_size) if found else "No customers found."

    @tool(
        "Change one field of a customer.",
        required="customer_id field new_value",
        customer_id=_ID,
        field=", ".join(_FIELDS),
        new_value="What it is to be",
    )
    def update_customer(
        self, customer_id: str | None = None, field: str | None = None, new_value: str | None = None
    ) -> str:
        if not customer_id or not field or not new_value:
            return "Customer ID, field, or new value not provided."
        if field not in _FIELDS:
            return f"Field {field} can't be changed: choose one of {', '.join(_FIELDS)}."
        if problem := _problem(field, new_value):
            return problem
        changes = {field: _stored(field, new_value)}
        is_changed = self.office.customers.update("customer_id", customer_id, changes)
        return "Customer updated successfully." if is_changed else _NOT_FOUND

    @tool(
        "Add a customer; the new number is returned.",
        required="customer_name assigned_to_email status",
        customer_name="The full name",
        assigned_to_email="The address of who looks after them",
        status=", ".join(_STATUSES),
        customer_email="Their address",
        customer_phone="Their telephone number",
        last_contact_date="The day of the last contact, as YYYY-MM-DD",
        product_interest=", ".join(_PRODUCTS),
        notes="Anything else",
        follow_up_by="The day to follow up by, as YYYY-MM-DD",
    )
    def add_customer(
        self,
        customer_name: str | None = None,
        assigned_to_email: str | None = None,
        status: str | None = None,
        customer_email: str = "",
        customer_phone: str = "",
        last_contact_date: str = "",
        product_interest: str = "",
        notes: str = "",
        follow_up_by: str = "",
    ) -> str:
        if not customer_name or not assigned_to_email or not status:
            return "Customer name, assigned to email, or status not provided."
        given = {
            "assigned_to_email": assigned_to_email,
            "customer_name": customer_name,
            "customer_email": customer_email,
            "customer_phone": customer_phone,
            "last_contact_date": last_contact_date,
            "product_interest": product_interest,
            "status": status,
            "follow_up_by": follow_up_by,
            "notes": notes,
        }
        for field, value in given.items():
            if value and (problem := _problem(field, value)):
                return problem
        customers = self.office.customers
        customer_id = padded(customers.next_id("customer_id"))
        customers.append({"customer_id": customer_id, **{name: _stored(name, text) for name, text in given.items()}})
        return customer_id

    @tool("Delete a customer.", required="customer_id", customer_id=_ID)
    def delete_customer(self, customer_id: str | None = None) -> str:
        if not customer_id:
            return "Customer ID not provided."
        is_gone = self.office.customers.delete("customer_id", customer_id)
        return "Customer deleted successfully." if is_gone else _NOT_FOUND


def _problem(field: str, value: str) -> str | None:
    if field == "status" and value not in _STATUSES:
        return f"Status not valid: choose one of {', '.join(_STATUSES)}."
    if field == "product_interest" and value not in _PRODUCTS:
        return f"Product interest not valid: choose one of {', '.join(_PRODUCTS)}."
    return None


def _stored(field: str, value: str) -> str:
    return value.lower() if field in _EMAILS else value
