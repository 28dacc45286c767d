"""Formatting instructions: the reward is 1 when a text has the wanted form, whatever it says."""

from typing import Any, ClassVar

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.failure_kinds import VERIFIER_ERROR
from nemo_gym.verifiers.patterns import PatternTimeoutError
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
            details = await check_format(body.verifier, body.response.output_text)
            verdict: dict[str, Any] = {"reward": float(details["passed"])}
        except PatternTimeoutError as error:
            details, reason = {}, str(error)
            verdict = {"reward": 0.0, "mask_sample": True, "failure_kind": VERIFIER_ERROR, "failure_reason": reason}
        return FormatVerificationVerifyResponse(
            responses_create_params=body.responses_create_params,
            response=body.response,
            verifier=body.verifier,
            match_details=details,
            **verdict,
        )


if __name__ == "__main__":
    FormatVerificationResourcesServer.run_webserver()
