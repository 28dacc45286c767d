"""The mailbox."""

from typing import Any

from resources_servers.workplace_assistant.tables import Row
from resources_servers.workplace_assistant.toolkits.toolkit import (
    PAGE_SIZE,
    Toolkit,
    field_of,
    is_address,
    is_within_days,
    page_of,
    tool,
)

SENT_AT = "2023-11-30 23:59:00"
_ID = "The number of the email"
_NOT_FOUND = "Email not found."


class Mail(Toolkit):
    prefix = "email"

    @tool(
        "Get one field of an email.",
        is_reading=True,
        required="email_id field",
        email_id=_ID,
        field="inbox/outbox, sender/recipient, subject, sent_datetime or body",
    )
    def get_email_information_by_id(self, email_id: str | None = None, field: str | None = None) -> Any:
        if not email_id:
            return "Email ID not provided."
        if not field:
            return "Field not provided."
        return field_of(self._find(email_id), field, "Email")

    @tool(
        "Search emails by words of their subject, body and correspondent, newest first.",
        is_reading=True,
        query="Words that must all occur",
        date_min="The earliest day, as YYYY-MM-DD",
        date_max="The latest day, as YYYY-MM-DD",
        page="Which page of results",
        page_size="Results per page",
    )
    def search_emails(
        self,
        query: str = "",
        date_min: str | None = None,
        date_max: str | None = None,
        page: int = 1,
        page_size: int = PAGE_SIZE,
    ) -> Any:
        words = query.lower().split()
        found = [
            dict(row)
            for row in self.office.emails
            if is_within_days(row["sent_datetime"], date_min, date_max) and _has_all(row, words)
        ]
        if not found:
            return "No emails found."
        found.sort(key=lambda row: row["sent_datetime"], reverse=True)
        return page_of(found, "emails", page, page_size)

    @tool(
        "Send an email.",
        required="recipient subject body",
        recipient="The address to send to",
        subject="The subject line",
        body="The text",
    )
    def send_email(self, recipient: str | None = None, subject: str | None = None, body: str | None = None) -> str:
        if not recipient or not subject or not body:
            return "Recipient, subject, or body not provided."
        if not is_address(recipient):
            return "Invalid recipient email address."
        emails = self.office.emails
        emails.append(
            {
                "email_id": str(emails.next_id("email_id")),
                "inbox/outbox": "outbox",
                "sender/recipient": recipient.lower(),
                "subject": subject,
                "sent_datetime": SENT_AT,
                "body": body,
            }
        )
        return "Email sent successfully."

    @tool("Delete an email.", required="email_id", email_id=_ID)
    def delete_email(self, email_id: str | None = None) -> str:
        if not email_id:
            return "Email ID not provided."
        return "Email deleted successfully." if self.office.emails.delete("email_id", email_id) else _NOT_FOUND

    @tool(
        "Forward an email to somebody.",
        required="email_id recipient",
        email_id=_ID,
        recipient="The address to forward it to",
    )
    def forward_email(self, email_id: str | None = None, recipient: str | None = None) -> str:
        if not email_id or not recipient:
            return "Email ID or recipient not provided."
        if not is_address(recipient):
            return "Invalid recipient email address."
        email = self._find(email_id)
        if email is None:
            return _NOT_FOUND
        said = self.send_email(recipient, f"FW: {email['subject']}", email["body"])
        return "Email forwarded successfully." if said.startswith("Email sent") else said

    @tool("Reply to an email.", required="email_id body", email_id=_ID, body="The text of the reply")
    def reply_email(self, email_id: str | None = None, body: str | None = None) -> str:
        if not email_id or not body:
            return "Email ID or body not provided."
        email = self._find(email_id)
        if email is None:
            return _NOT_FOUND
        said = self.send_email(email["sender/recipient"], f"RE: {email['subject']}", body)
        return "Email replied successfully." if said.startswith("Email sent") else said

    def _find(self, email_id: str) -> Row | None:
        return self.office.emails.find("email_id", email_id)


def _has_all(row: Row, words: list[str]) -> bool:
    text = f"{row['subject']} {row['body']} {row['sender/recipient']}".lower()
    return all(word in text for word in words)
