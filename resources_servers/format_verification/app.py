"""Formatting instructions: the reward is 1 when a text has the wanted form, whatever it says."""

from functools import partial
from typing import Any, ClassVar

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.verifiers.blame import ORDINARY, verdict_without_end
from nemo_gym.verifiers.patterns import PatternTimeoutError
from nemo_gym.verifiers.response_text import all_text
from nemo_gym.verifiers.verdicts import RowError, verdict
from resources_servers.format_verification.checks import check_format


class FormatVerificationResourcesServerConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class FormatVerificationRunRequest(BaseRunRequest):
    verifier: dict[str, Any]


class FormatVerificationVerifyRequest(FormatVerificationRunRequest, BaseVerifyRequest):
    pass


class FormatVerificationVerifyResponse(BaseVerifyResponse):
    """`match_details` says what was found, in the terms of the verifier's type."""

    verifier: dict[str, Any]
    match_details: dict[str, Any]


class FormatVerificationResourcesServer(SimpleResourcesServer):
    config: FormatVerificationResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    async def verify(  # type: ignore[override]
        self, body: FormatVerificationVerifyRequest
    ) -> FormatVerificationVerifyResponse:
        try:
            details = await check_format(body.verifier, all_text(body.response))
        except (PatternTimeoutError, RowError) as error:
            own = await verdict_without_end(error, partial(check_format, body.verifier, ORDINARY))
            return verdict(FormatVerificationVerifyResponse, body, own, match_details={})
        reward = float(details["passed"])
        return verdict(FormatVerificationVerifyResponse, body, reward=reward, match_details=details)


if __name__ == "__main__":
    FormatVerificationResourcesServer.run_webserver()
