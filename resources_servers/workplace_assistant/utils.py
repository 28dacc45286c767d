"""All tools of the office, for one session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from resources_servers.workplace_assistant.tables import Office
from resources_servers.workplace_assistant.toolkits.analytics import Analytics
from resources_servers.workplace_assistant.toolkits.calendar import Calendar
from resources_servers.workplace_assistant.toolkits.company_directory import CompanyDirectory
from resources_servers.workplace_assistant.toolkits.customer_relations import CustomerRelations
from resources_servers.workplace_assistant.toolkits.mail import Mail
from resources_servers.workplace_assistant.toolkits.project_management import ProjectManagement
from resources_servers.workplace_assistant.toolkits.toolkit import ToolFacts, Toolkit

TOOLKITS: dict[str, type[Toolkit]] = {
    kind.prefix: kind for kind in (CompanyDirectory, Mail, Calendar, Analytics, ProjectManagement, CustomerRelations)
}


class ToolEnvironment:
    """An untouched office and the tools that work on it."""

    def __init__(self, toolkits: Iterable[str] = tuple(TOOLKITS)) -> None:
        self.office = Office()
        self.functions: dict[str, Callable[..., Any]] = {}
        for name in toolkits:
            self.functions |= TOOLKITS[name](self.office).functions()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The result of a tool; null arguments count as not given. Raises whatever the tool, or a wrong name, does."""
        if name not in self.functions:
            raise LookupError(f"there is no such tool; there are {', '.join(self.functions)}")
        result = self.functions[name](**{key: value for key, value in arguments.items() if value is not None})
        return await result if isinstance(result, Awaitable) else result

    def is_reading(self, name: str) -> bool:
        """Whether a tool leaves the office as it is."""
        facts: ToolFacts = self.functions[name].tool_facts  # type: ignore[attr-defined]
        return facts.is_reading


def get_tools(toolkits: Iterable[str] = tuple(TOOLKITS)) -> dict[str, Any]:
    """`functions` by tool name on an office of their own, and the `schemas` a model is told of."""
    chosen = tuple(toolkits)
    return {
        "functions": ToolEnvironment(chosen).functions,
        "schemas": [schema for name in chosen for schema in TOOLKITS[name].schemas()],
    }


SCHEMAS: dict[str, dict[str, Any]] = {schema["name"]: schema for schema in get_tools()["schemas"]}
