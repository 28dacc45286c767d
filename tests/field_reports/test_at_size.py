"""Reports about work that grows faster than it should, shown at small size; `tests/bench` shows them at full size.

What is compared is how often Python functions are called: the same on every machine, however busy it is.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import pytest

from nemo_gym.server_utils import GlobalAIOHTTPAsyncClientConfig, request, set_global_aiohttp_client
from nemo_gym.testing.agents import reply
from responses_api_agents.simple_agent.tests.test_app import TOOLS, Run, answered, call, message
from tests.unit.rollouts.fakes import (
    FakeClient,
    FakeReply,
    Helper,
    Row,
    collect,
    collection_config,
    right,
    served,
    task,
)
from tests.unit.serve.toys import http_reply, raw_server, read_request

CONNECTIONS = 16

pytestmark = pytest.mark.usefixtures("fresh_client")


@contextmanager
def calls_counted() -> Iterator[list[int]]:
    """How many functions are called in this thread, Python's own and those written in C."""
    found = [0]

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            found[0] += 1

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


async def calls_for(work: Callable[[int], Awaitable[object]], count: int) -> int:
    with calls_counted() as found:
        await work(count)
    return found[0]


async def growth(work: Callable[[int], Awaitable[object]]) -> float:
    """How much more the next of many costs than the next of few; what is done once is left out."""
    few = await calls_for(work, 256) - await calls_for(work, 128)
    many = await calls_for(work, 1024) - await calls_for(work, 512)
    return (many / 512) / (few / 128)


async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await read_request(reader):
        writer.write(http_reply())
        await writer.drain()
    writer.close()


async def test_a_request_costs_the_same_however_many_wait_for_a_connection() -> None:
    """B34: the client's bookkeeping is not done over for every request that waits."""
    limits = {"global_aiohttp_connector_limit": CONNECTIONS, "global_aiohttp_connector_limit_per_host": CONNECTIONS}
    set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig.model_validate(limits))
    async with raw_server(answer_all) as port:

        async def ask(count: int) -> None:
            answers = (request("POST", f"http://127.0.0.1:{port}/run", json={"n": n}) for n in range(count))
            assert {answer.status for answer in await asyncio.gather(*answers)} == {200}

        await ask(CONNECTIONS)
        assert await growth(ask) < 1.2


async def test_a_rollout_costs_the_same_however_many_are_in_flight(tmp_path: Path) -> None:
    """B34: the collector, with all of them in flight at once, and with most of them waiting."""

    async def run(count: int, **fields: Any) -> None:
        folder = tmp_path / f"{count}-{len(fields)}"
        folder.mkdir()
        arrived, all_there = 0, asyncio.Event()

        async def answer(row: Row) -> Row:
            nonlocal arrived
            arrived += 1
            if arrived == count or fields:
                all_there.set()
            await all_there.wait()
            await asyncio.sleep(0)
            return right(row)

        rows = [task(f"q{number}") for number in range(count)]
        client = await collect(collection_config(folder, rows, agent_name="math_agent", **fields), answer)
        assert fields or client.most_in_flight == count

    await run(8)
    assert await growth(run) < 1.2

    async def waiting(count: int) -> None:
        await run(count, num_samples_in_parallel=8, max_resident_rollout_tasks=count)

    assert await growth(waiting) < 1.2


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all texts that are parsed as JSON."""
    lengths: list[int] = []
    loads = orjson.loads

    def noted(text: Any) -> Any:
        lengths.append(len(text))
        return loads(text)

    monkeypatch.setattr(orjson, "loads", noted)
    return lengths


def with_tokens(item: dict[str, Any], count: int) -> dict[str, Any]:
    ids = list(range(count))
    return {**item, "prompt_token_ids": ids, "generation_token_ids": ids, "generation_log_probs": [-0.5] * count}


async def test_tokens_are_not_gone_through_one_by_one_nor_parsed_again_at_every_hop(
    parsed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B51: an agent's two turns with very long answers take as many steps as with short ones."""

    copying = "nemo_gym.testing.agents.copy.deepcopy"
    monkeypatch.setattr(copying, lambda value: value)  # of the harness, that notes what is sent

    async def steps(tokens: int) -> tuple[int, int]:
        turns = answered(with_tokens(call(), tokens)), answered(with_tokens(message(), tokens))
        verdict = reply({"responses_create_params": {"input": "hi"}, "response": turns[1], "reward": 1.0})
        run = Run(*turns, get_weather=reply("sunny"), verify=verdict)
        long = len(orjson.dumps(turns[1])) // 2
        parsed.clear()
        with calls_counted() as found:
            answer = await run.request("/run", {"responses_create_params": {"input": "hi", "tools": TOOLS}})
        assert answer.status_code == 200
        return found[0], sum(length >= long for length in parsed)

    await steps(1)
    (few, _), (many, parsings) = await steps(64), await steps(16_384)
    assert many < 1.2 * few
    assert parsings <= 4


async def test_a_trainer_s_loop_does_as_little_for_a_long_rollout_as_for_a_short_one() -> None:
    """B112: token ids reach whoever asked for the rollouts in as many steps, however long the answers are, and each
    rollout costs what the others do."""

    async def steps(tokens: int, count: int) -> int:
        reply = FakeReply({**right(task("q")), "response": {"output": [with_tokens(message(), tokens)]}})
        rows = [task("q", agent_ref={"name": "math_agent"}) for _ in range(count)]
        helper = Helper(FakeClient(served(), lambda row: reply))
        with calls_counted() as found:
            done = [await each for each in helper.run_examples(rows)]
        assert {len(got["response"]["output"][0]["generation_token_ids"]) for _, got in done} == {tokens}
        return found[0]

    await steps(1, 4)
    assert await steps(16_384, 16) < 1.2 * await steps(64, 16)
    assert await growth(lambda count: steps(1, count)) < 1.2
