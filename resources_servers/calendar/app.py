"""A calendar kept over a conversation: the reward is 1 when all events are in it, at times they may be and apart."""

from pathlib import Path
from typing import Any, ClassVar

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.verifier_fixture import server_fixture
from nemo_gym.verifiers.long_texts import read_apart
from nemo_gym.verifiers.response_text import last_item_text
from nemo_gym.verifiers.verdicts import RowError, unmeasured, verdict
from resources_servers.calendar.events import is_right, wanted_events


class CalendarResourcesServerConfig(BaseResourcesServerConfig):
    """`unique_events`: an event that is listed twice is one too many."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    unique_events: bool = False


class CalendarRunRequest(BaseRunRequest):
    exp_cal_state: dict[str, dict[str, Any] | None]


class CalendarVerifyRequest(CalendarRunRequest, BaseVerifyRequest):
    pass


class CalendarVerifyResponse(CalendarVerifyRequest, BaseVerifyResponse):
    pass


class CalendarResourcesServer(SimpleResourcesServer):
    config: CalendarResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    async def verify(self, body: CalendarVerifyRequest) -> CalendarVerifyResponse:  # type: ignore[override]
        text = last_item_text(body.response)
        try:
            wanted = wanted_events(body.exp_cal_state)
        except RowError as error:
            return verdict(CalendarVerifyResponse, body, unmeasured(error))
        right = await read_apart(len(text), is_right, text, wanted, unique_events=self.config.unique_events)
        return verdict(CalendarVerifyResponse, body, reward=float(right))


VERIFIER_FIXTURE = server_fixture(
    CalendarResourcesServer, CalendarVerifyRequest, Path(__file__).parent / "tests" / "verifier_cases.jsonl"
)


if __name__ == "__main__":
    CalendarResourcesServer.run_webserver()
