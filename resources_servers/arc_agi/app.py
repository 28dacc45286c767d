"""Puzzles with coloured grids: the reward is 1 when the grid in a response is the expected one."""

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
from nemo_gym.verifiers.response_text import assistant_text
from nemo_gym.verifiers.verdicts import verdict
from resources_servers.arc_agi.grids import Grid, last_boxed_grid
from resources_servers.arc_agi.grids import first_grid as _parse_grid

__all__ = ["_parse_grid"]


class ARCAGIResourcesServerConfig(BaseResourcesServerConfig):
    """`last_box_only`: the grid must be what the last box holds. Otherwise the first that can be read counts."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    last_box_only: bool = False


class ARCAGIRunRequest(BaseRunRequest):
    train: list[dict[str, Any]] = []
    test_input: Grid = []
    expected_output: Grid = []
    task_id: str | None = None


class ARCAGIVerifyRequest(ARCAGIRunRequest, BaseVerifyRequest):
    pass


class ARCAGIVerifyResponse(ARCAGIVerifyRequest, BaseVerifyResponse):
    """`predicted_output` is null where no grid could be read."""

    predicted_output: Grid | None = None
    extraction_successful: bool


class ARCAGIResourcesServer(SimpleResourcesServer):
    config: ARCAGIResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    async def verify(self, body: ARCAGIVerifyRequest) -> ARCAGIVerifyResponse:  # type: ignore[override]
        text = assistant_text(body.response)
        predicted = last_boxed_grid(text) if self.config.last_box_only else _parse_grid(text)
        return verdict(
            ARCAGIVerifyResponse,
            body,
            reward=float(predicted is not None and predicted == body.expected_output),
            predicted_output=predicted,
            extraction_successful=predicted is not None,
        )


VERIFIER_FIXTURE = server_fixture(
    ARCAGIResourcesServer, ARCAGIVerifyRequest, Path(__file__).parent / "tests" / "verifier_cases.jsonl"
)


if __name__ == "__main__":
    ARCAGIResourcesServer.run_webserver()
