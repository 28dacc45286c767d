"""Who works here."""

from typing import Any

from resources_servers.workplace_assistant.toolkits.toolkit import Toolkit, having, tool


class CompanyDirectory(Toolkit):
    prefix = "company_directory"

    @tool(
        "Find the email addresses of people whose name contains a text.",
        is_reading=True,
        name="A name or a part of one",
    )
    async def find_email_address(self, name: str = "") -> Any:
        if not name:
            return "Name not provided."
        people = [{"email_address": address} for address in self.office.addresses]
        return [person["email_address"] for person in await having(name, people, "email_address")]
