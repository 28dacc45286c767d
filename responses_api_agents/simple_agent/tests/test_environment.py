"""What the agent does when its environment's session is gone, and when a rollout comes to nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from nemo_gym.base_resources_server import SessionExpiredError
from nemo_gym.serve.failures import CAUSE_HEADER, Cause
from nemo_gym.serve.local_response import LocalResponse
from nemo_gym.testing.agents import reply
from responses_api_agents.simple_agent.environment import raise_for_lost_session
from responses_api_agents.simple_agent.tests.test_app import TOOLS, Run, answered, call, message

ROW: dict[str, Any] = {"responses_create_params": {"input": "hi", "tools": TOOLS}}


def gone() -> LocalResponse:
    """What a session store answers for a session it has forgotten."""
    error = SessionExpiredError("s1", "was not used for 24 hours", server="Tools___mcqa")
    headers = [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    return LocalResponse(method="POST", url="http://x/", status=410, raw_headers=headers, body=b'{"detail": "gone"}')


async def test_a_session_that_is_gone_ends_the_rollout_and_is_no_tool_output() -> None:
    """B76: the model must not go on in an environment that was begun anew."""
    run = Run(answered(call()), answered(message()), get_weather=gone())
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        await run.request("/run", ROW)
    cause = Cause.of_headers(caught.value.headers)
    assert cause is not None and cause.kind == "session_expired"
    assert [path for _, path in run.calls].count("/v1/responses") == 2, "the model was asked once, by the agent itself"


@pytest.mark.parametrize("answer", [reply("no such page", 410), reply("fine")])
async def test_other_answers_are_for_the_model_to_read(answer: LocalResponse) -> None:
    await raise_for_lost_session(answer)


async def test_the_kind_of_the_loss_comes_through() -> None:
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        await raise_for_lost_session(gone())
    cause = Cause.of_headers(caught.value.headers)
    assert cause is not None and (cause.kind, cause.server) == ("session_expired", "Tools___mcqa")
    assert CAUSE_HEADER in (caught.value.headers or {})


async def test_a_rollout_that_fails_gives_its_session_back() -> None:
    """Once a stage has run out of time, say: nobody would come back for the session."""
    run = Run(reply("broken", 500), close_session=reply({}))
    with pytest.raises(aiohttp.ClientResponseError):
        await run.request("/run", ROW)
    async with asyncio.timeout(10):
        while ("mcqa", "/close_session") not in run.calls:
            await asyncio.sleep(0)
    assert run.sent[run.calls.index(("mcqa", "/close_session"))]["cookies"] == {"sid": "seeded"}


async def test_a_rollout_that_ends_well_has_its_session_closed_by_its_verdict() -> None:
    run = Run(answered(message()), verify=reply({**ROW, "response": answered(message()), "reward": 1.0}))
    assert (await run.request("/run", ROW)).status_code == 200
    assert ("mcqa", "/close_session") not in run.calls
