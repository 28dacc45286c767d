"""What a trainer may ask a model server about the rollouts whose tokens are staged, with a token of its own."""

from __future__ import annotations

import hmac
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from nemo_gym.token_id_capture.config import TokenIdCaptureConfig
from nemo_gym.token_id_capture.errors import InvalidRolloutIdError, TokenCaptureConfigError, TokenCaptureError
from nemo_gym.token_id_capture.files import require_rollout_id
from nemo_gym.token_id_capture.protocols import CaptureLedger
from nemo_gym.token_id_capture.staging.records import RolloutManifest

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

MANIFEST_PATH = "/training-token-capture/control/rollouts/{rollout_id}/manifest"
_BEARER = "Bearer "


def control_auth_token(config: TokenIdCaptureConfig) -> str:
    """The bearer token of the control route. Raises TokenCaptureConfigError when its variable is not set."""
    token = os.environ.get(config.control_auth_token_env, "")
    if not token.strip():
        raise TokenCaptureConfigError(
            f"token_id_capture.external_staging needs a token for its control route: "
            f"set {config.control_auth_token_env}."
        )
    return token


def install_control_routes(app: FastAPI, ledger: CaptureLedger, *, auth_token: str) -> None:
    """Add the manifest route: 401 without the token, 400 for an id that can't be one."""
    from starlette.responses import JSONResponse, Response

    async def manifest(request: Request) -> Response:
        if not _is_authorized(request.headers.get("authorization", ""), auth_token):
            return JSONResponse(
                {"detail": "a bearer token is needed"}, status_code=401, headers={"WWW-Authenticate": "Bearer"}
            )
        try:
            found = await ledger.manifest(require_rollout_id(request.path_params["rollout_id"]))
        except InvalidRolloutIdError as error:
            return JSONResponse({"detail": str(error)}, status_code=400)
        return Response(found.model_dump_json(), media_type="application/json")

    app.add_route(MANIFEST_PATH, manifest, methods=["GET"])


def _is_authorized(header: str, auth_token: str) -> bool:
    given = header[len(_BEARER) :] if header[: len(_BEARER)].lower() == _BEARER.lower() else ""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), auth_token.encode("utf-8"))


class RolloutControlClient:
    """Reads manifests from the model server at `base_url`; an async context manager."""

    def __init__(self, base_url: str, *, auth_token: str, request_timeout_s: float = 30.0) -> None:
        import httpx

        self._client = httpx.AsyncClient(
            base_url=base_url.rstrip("/"),
            headers={"Authorization": f"{_BEARER}{auth_token}"},
            timeout=request_timeout_s,
        )

    async def manifest(self, rollout_id: str) -> RolloutManifest:
        """The staged calls of a rollout. Raises TokenCaptureError when the server doesn't give them."""
        import httpx

        path = MANIFEST_PATH.replace("{rollout_id}", quote(rollout_id, safe=""))
        try:
            reply = await self._client.get(path)
        except httpx.HTTPError as error:
            raise TokenCaptureError(f"The manifest of rollout {rollout_id} can't be read: {error!r}.") from error
        if reply.status_code != 200:
            raise TokenCaptureError(f"The manifest of rollout {rollout_id} was refused: HTTP {reply.status_code}.")
        return RolloutManifest.model_validate_json(reply.content)

    async def close(self) -> None:
        await self._client.aclose()

    async def __aenter__(self) -> RolloutControlClient:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()
