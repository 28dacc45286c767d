"""Who visits the web site."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from resources_servers.workplace_assistant.tables import Row
from resources_servers.workplace_assistant.toolkits.toolkit import Toolkit, tool

_FROM = "The first day, as YYYY-MM-DD"
_TO = "The last day, as YYYY-MM-DD"
_VALUES = (
    "total_visits",
    "session_duration_seconds",
    "user_engaged",
    "visits_direct",
    "visits_referral",
    "visits_search_engine",
    "visits_social_media",
)
_PLOTS = ("bar", "line", "scatter", "histogram")


class Analytics(Toolkit):
    prefix = "analytics"

    @tool(
        "Get all visits of a visitor.", required="visitor_id", is_reading=True, visitor_id="The number of the visitor"
    )
    def get_visitor_information_by_id(self, visitor_id: str | None = None) -> Any:
        if not visitor_id:
            return "Visitor ID not provided."
        found = [dict(row) for row in self.office.analytics if row["visitor_id"] == visitor_id]
        return found or "Visitor not found."

    @tool(
        "Draw a plot of a value over time; the path of the picture is returned.",
        required="time_min time_max value_to_plot plot_type",
        time_min=_FROM,
        time_max=_TO,
        value_to_plot=", ".join(_VALUES),
        plot_type=", ".join(_PLOTS),
    )
    def create_plot(
        self,
        time_min: str | None = None,
        time_max: str | None = None,
        value_to_plot: str | None = None,
        plot_type: str | None = None,
    ) -> str:
        if not time_min or not time_max:
            return "Time range not provided."
        if value_to_plot not in _VALUES:
            return f"Value to plot must be one of {', '.join(_VALUES)}."
        if plot_type not in _PLOTS:
            return f"Plot type must be one of {', '.join(_PLOTS)}."
        path = f"plots/{time_min}_{time_max}_{value_to_plot}_{plot_type}.png"
        self.office.plots.append({"file_path": path})
        return path

    @tool("Count the visits of each day.", is_reading=True, time_min=_FROM, time_max=_TO)
    def total_visits_count(self, time_min: str | None = None, time_max: str | None = None) -> dict[str, int]:
        return {day: len(rows) for day, rows in self._days(time_min, time_max)}

    @tool("Count the engaged users of each day.", is_reading=True, time_min=_FROM, time_max=_TO)
    def engaged_users_count(self, time_min: str | None = None, time_max: str | None = None) -> dict[str, int]:
        return {day: sum(row["user_engaged"] == "True" for row in rows) for day, rows in self._days(time_min, time_max)}

    @tool(
        "Count the visits of each day that came from one source, or from any.",
        is_reading=True,
        time_min=_FROM,
        time_max=_TO,
        traffic_source="direct, referral, search engine or social media",
    )
    def traffic_source_count(
        self, time_min: str | None = None, time_max: str | None = None, traffic_source: str | None = None
    ) -> dict[str, int]:
        return {
            day: sum(not traffic_source or row["traffic_source"] == traffic_source for row in rows)
            for day, rows in self._days(time_min, time_max)
        }

    @tool(
        "Get the average length of the visits of each day, in seconds.", is_reading=True, time_min=_FROM, time_max=_TO
    )
    def get_average_session_duration(
        self, time_min: str | None = None, time_max: str | None = None
    ) -> dict[str, float]:
        return {
            day: sum(float(row["session_duration_seconds"]) for row in rows) / len(rows)
            for day, rows in self._days(time_min, time_max)
        }

    def _days(self, first: str | None, last: str | None) -> Iterator[tuple[str, list[Row]]]:
        """The visits of each day in a time that may be open at either end."""
        days: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self.office.analytics:
            day = row["date_of_visit"]
            if (not first or day >= first) and (not last or day <= last):
                days[day].append(row)
        yield from sorted(days.items())
