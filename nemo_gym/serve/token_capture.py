"""A model server whose calls' tokens are captured: what its app gets, and what is done around each call."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from nemo_gym.token_id_capture.config import token_id_capture_config


def install_token_capture(
    app: FastAPI,
    global_config_dict: Any,
    *,
    num_workers: int | None = None,
    non_generating_requests: frozenset[tuple[str, str]] = frozenset(),
) -> None:
    """Capture the tokens of calls under the training prefix, if the config asks for it.

    To be added before the middleware that strips the prefix. Raises TokenCaptureConfigError.
    """
    if not token_id_capture_config(global_config_dict).enabled:
        _install_for_installed_sink(app, non_generating_requests)
        return
    from nemo_gym.token_id_capture.control_routes import control_auth_token, install_control_routes
    from nemo_gym.token_id_capture.endpoints import build_endpoints
    from nemo_gym.token_id_capture.middleware import TokenCaptureMiddleware

    endpoints = build_endpoints(global_config_dict, num_workers=num_workers)
    assert endpoints is not None
    app.add_middleware(
        TokenCaptureMiddleware,
        token_store=endpoints.token_store,
        configured_sink=endpoints.configured_sink,
        lineage_store=endpoints.lineage_store,
        delta_records=endpoints.config.delta_records,
        external_staging=endpoints.config.external_staging,
        token_capture_enabled=True,
        non_generating_requests=non_generating_requests,
    )
    if endpoints.ledger is not None:
        install_control_routes(app, endpoints.ledger, auth_token=control_auth_token(endpoints.config))
    _at_shutdown(app, endpoints.close)


def _install_for_installed_sink(app: FastAPI, non_generating_requests: frozenset[tuple[str, str]]) -> None:
    """Capture for a sink that code in this process has installed, whatever the config says."""
    registry = sys.modules.get("nemo_gym.token_id_capture.registry")
    if registry is None or registry.installed_token_sink() is None:
        return
    from nemo_gym.token_id_capture.middleware import TokenCaptureMiddleware

    app.add_middleware(
        TokenCaptureMiddleware,
        lineage_store=registry.installed_lineage_store(),
        non_generating_requests=non_generating_requests,
    )


def _at_shutdown(app: FastAPI, close: Callable[[], Awaitable[None]]) -> None:
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(running: Any) -> AsyncIterator[Any]:
        async with inner(running) as state:
            try:
                yield state
            finally:
                await close()

    app.router.lifespan_context = lifespan


async def captured(call: Callable[[], Awaitable[Any]], params: BaseModel) -> Any:
    """Make a model call with what capture needs before and after it; the call itself fails as it would alone."""
    from nemo_gym.token_id_capture.sink import capture_tokens, register_call_intent, resolve_parent

    await resolve_parent(request_items(params))
    await register_call_intent()
    response = await call()
    await capture_tokens(response)
    return response


def request_items(params: BaseModel) -> list[dict[str, Any]]:
    """The items or messages of a Responses or Chat Completions request, behind its instructions and tools."""
    from nemo_gym.token_id_capture.fingerprints import with_envelope
    from nemo_gym.token_id_capture.responses import plain_items

    given = getattr(params, "input", None)
    if given is None:
        given = getattr(params, "messages", None)
    items = [{"role": "user", "content": given}] if isinstance(given, str) else plain_items(given)
    tools = plain_items(getattr(params, "tools", None))
    return with_envelope(items, instructions=getattr(params, "instructions", None), tools=tools)
