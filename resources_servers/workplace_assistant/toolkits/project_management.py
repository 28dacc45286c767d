"""The task board."""

from typing import Any

from resources_servers.workplace_assistant.tables import Office
from resources_servers.workplace_assistant.toolkits.toolkit import Toolkit, field_of, having, padded, tool

_ID = "The number of the task, eight digits"
_LISTS = ("Backlog", "In Progress", "In Review", "Completed")
_BOARDS = ("Back end", "Front end", "Design")
_FIELDS = ("task_name", "assigned_to_email", "list_name", "due_date", "board")
_NOT_FOUND = "Task not found."
_ABOUT = {
    "task_name": "What is to be done",
    "assigned_to_email": "The address of who does it",
    "list_name": ", ".join(_LISTS),
    "due_date": "When it is due, as YYYY-MM-DD",
    "board": ", ".join(_BOARDS),
}


class ProjectManagement(Toolkit):
    prefix = "project_management"

    @tool(
        "Get one field of a task.",
        is_reading=True,
        required="task_id field",
        task_id=_ID,
        field=f"task_id, {', '.join(_FIELDS)}",
    )
    def get_task_information_by_id(self, task_id: str | None = None, field: str | None = None) -> Any:
        if not task_id:
            return "Task ID not provided."
        if not field:
            return "Field not provided."
        return field_of(self.office.tasks.find("task_id", task_id), field, "Task")

    @tool("Search tasks; at least one argument is needed.", _ABOUT, is_reading=True)
    async def search_tasks(
        self,
        task_name: str | None = None,
        assigned_to_email: str | None = None,
        list_name: str | None = None,
        due_date: str | None = None,
        board: str | None = None,
    ) -> Any:
        given = dict(zip(_FIELDS, (task_name, assigned_to_email, list_name, due_date, board), strict=True))
        wanted = {field: value for field, value in given.items() if value}
        if not wanted:
            return "No search parameters provided."
        if assigned_to_email and assigned_to_email.lower() not in self.office.addresses:
            return "Assignee email not valid: it must be somebody of the company."
        exact = wanted.pop("assigned_to_email", None)
        found = [row for row in self.office.tasks if exact is None or row["assigned_to_email"] == exact.lower()]
        for field, pattern in wanted.items():
            found = await having(pattern, found, field)
        return [dict(row) for row in found]

    @tool("Create a task; its number is returned.", _ABOUT, required=" ".join(_FIELDS))
    def create_task(
        self,
        task_name: str | None = None,
        assigned_to_email: str | None = None,
        list_name: str | None = None,
        due_date: str | None = None,
        board: str | None = None,
    ) -> str:
        given = dict(zip(_FIELDS, (task_name, assigned_to_email, list_name, due_date, board), strict=True))
        row: dict[str, str] = {}
        for field, value in given.items():
            if not value:
                return "Missing task details."
            if problem := _problem(self.office, field, value):
                return problem
            row[field] = _stored(field, value)
        task_id = padded(self.office.tasks.next_id("task_id"))
        self.office.tasks.append({"task_id": task_id, **row})
        return task_id

    @tool("Delete a task.", required="task_id", task_id=_ID)
    def delete_task(self, task_id: str | None = None) -> str:
        if not task_id:
            return "Task ID not provided."
        return "Task deleted successfully." if self.office.tasks.delete("task_id", task_id) else _NOT_FOUND

    @tool(
        "Change one field of a task.",
        required="task_id field new_value",
        task_id=_ID,
        field=", ".join(_FIELDS),
        new_value="What it is to be",
    )
    def update_task(self, task_id: str | None = None, field: str | None = None, new_value: str | None = None) -> str:
        if not task_id or not field or not new_value:
            return "Task ID, field, or new value not provided."
        if field not in _FIELDS:
            return f"Field {field} can't be changed: choose one of {', '.join(_FIELDS)}."
        if problem := _problem(self.office, field, new_value):
            return problem
        changes = {field: _stored(field, new_value)}
        return "Task updated successfully." if self.office.tasks.update("task_id", task_id, changes) else _NOT_FOUND


def _problem(office: Office, field: str, value: str) -> str | None:
    if field == "assigned_to_email" and value.lower() not in office.addresses:
        return "Assignee email not valid: it must be somebody of the company."
    if field == "list_name" and value not in _LISTS:
        return f"List not valid: choose one of {', '.join(_LISTS)}."
    if field == "board" and value not in _BOARDS:
        return f"Board not valid: choose one of {', '.join(_BOARDS)}."
    return None


def _stored(field: str, value: str) -> str:
    return value.lower() if field == "assigned_to_email" else value
