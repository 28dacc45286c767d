"""`tools`, `tokens` and `model`: many turns, large answers, long histories."""

import json
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psutil

from nemo_gym.serve.garbage import relax_collection
from tests.bench.processes import cpu_seconds, family
from tests.bench.report import Figure, median
from tests.bench.servers import Started, collect, started, write_prompts
from tests.mock_provider import MockProvider, Reply, Script, ToolCall

TOKENS = 65_536
TURNS = 10
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}


def tools(root: Path, *, quick: bool) -> list[Figure]:
    """Rollouts of ten tool calls each: CPU per turn (a model call and a tool call) of all servers and the collector."""
    count = 20 if quick else 300
    call = Reply(text=None, tool_calls=(ToolCall("get_weather", {"city": "Oslo"}),))
    script = Script.of(*[call] * TURNS, Reply(text="Cold."))
    with tempfile.TemporaryDirectory() as folder, MockProvider(script) as mock:
        scratch = Path(folder)
        rows, one = scratch / "rows.jsonl", scratch / "one.jsonl"
        _write_weather_rows(rows, count)
        _write_weather_rows(one, 1)
        with started(root, scratch, mock.base_url, environment="example_single_tool_call") as servers:
            agent = "example_single_tool_call_simple_agent"
            spent, _ = _spent(root, scratch, servers, rows, one, agent)
        asked = mock.count
    if asked < count * (TURNS + 1):
        raise RuntimeError(f"{asked} model calls for {count} rollouts of {TURNS + 1} turns")
    return [Figure("tools", "CPU per turn, all of ours", spent / count / TURNS * 1000, "ms", None, "< 4 ms")]


def tokens(root: Path, *, quick: bool) -> list[Figure]:
    """Answers that carry 65,536 token ids and log-probs from the engine to the record."""
    count = 40 if quick else 200
    reply = Reply(text="\\boxed{A}", token_count=TOKENS, message_tokens=True)
    with tempfile.TemporaryDirectory() as folder, MockProvider(reply) as mock:
        scratch = Path(folder)
        rows, one = scratch / "rows.jsonl", scratch / "one.jsonl"
        write_prompts(rows, count)
        write_prompts(one, 1)
        with started(root, scratch, mock.base_url, model="vllm_model/vllm_model_for_training") as servers:
            spent, peak = _spent(root, scratch, servers, rows, one, "mcqa_simple_agent")
        record = (scratch / "many.jsonl").read_bytes().splitlines()[0]
        answer = _answer_with_tokens(mock.base_url)
    relax_collection()
    floor = _cpu_of(lambda: orjson.dumps(orjson.loads(answer)), 5)
    return [
        Figure("tokens", "CPU per rollout, all of ours", spent / count * 1000, "ms", floor * 1000, "< 8 x floor"),
        Figure("tokens", "largest server, resident memory", peak, "MB"),
        Figure("tokens", "bytes of the engine's answer", len(answer) / 2**20, "MB"),
        Figure("tokens", "bytes of a record", len(record) / 2**20, "MB"),
    ]


def model(root: Path, *, quick: bool) -> list[Figure]:
    """The converter: a request with 32 tools and a history of 64k tokens (four bytes each), and an answer back."""
    del root
    from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymResponseCreateParamsNonStreaming
    from nemo_gym.responses_converter import ResponsesConverter

    body, answer = _long_request(), _chat_answer()
    converter = ResponsesConverter(return_token_id_information=False, uses_reasoning_parser=True)

    def convert() -> bytes:
        params = NeMoGymResponseCreateParamsNonStreaming.model_validate(orjson.loads(body))
        chat = converter.responses_to_chat_completion_create_params(params)
        orjson.dumps(chat.model_dump(exclude_unset=True))
        completion = NeMoGymChatCompletion.model_validate(orjson.loads(answer))
        response = converter.chat_completion_to_response(params, completion)
        return orjson.dumps(response.model_dump(mode="json"))

    times = 20 if quick else 200
    floor = _cpu_of(lambda: (orjson.dumps(orjson.loads(body)), orjson.dumps(orjson.loads(answer))), times)
    return [
        Figure(
            "model", "CPU per call, there and back", _cpu_of(convert, times) * 1000, "ms", floor * 1000, "< 6 x floor"
        )
    ]


def _answer_with_tokens(base_url: str) -> bytes:
    """What the engine sends when it is asked as `vllm_model` asks it."""
    body = {"messages": [{"role": "user", "content": "?"}], "logprobs": True, "return_tokens_as_token_ids": True}
    request = urllib.request.Request(
        f"{base_url}/chat/completions", orjson.dumps(body), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        answer: bytes = reply.read()
        return answer


def _spent(root: Path, scratch: Path, servers: Started, rows: Path, one: Path, agent: str) -> tuple[float, float]:
    """CPU seconds of servers and collector for the rows (start-up taken off), and the largest server's peak in MB."""
    baseline = collect(root, one, scratch / "one-out.jsonl", servers.head_port, 8, agent=agent)
    pids = [int(row["pid"]) for row in servers.instances()]
    before = sum(cpu_seconds(pid) for pid in pids)
    done = collect(root, rows, scratch / "many.jsonl", servers.head_port, 8, agent=agent)
    after = sum(cpu_seconds(pid) for pid in pids)
    peak = max(psutil.Process(pid).memory_info().rss for pid in family(servers.launcher)) / 2**20
    written, wanted = ((path.read_bytes()).count(b"\n") for path in (scratch / "many.jsonl", rows))
    if written != wanted:
        raise RuntimeError(f"{written} records for {wanted} rows")
    return after - before + done.cpu - baseline.cpu, peak


def _write_weather_rows(path: Path, count: int) -> None:
    with path.open("w") as sink:
        for number in range(count):
            question = {"role": "user", "content": f"{number}: how is the weather in Oslo?"}
            row = {
                "responses_create_params": {"input": [question], "tools": [WEATHER]},
                "agent_ref": {"type": "responses_api_agents", "name": "example_single_tool_call_simple_agent"},
            }
            sink.write(json.dumps(row) + "\n")


# What tools answer: code, with line ends and quotes in it.
OUTPUT = 'def degrees(city: str) -> float:\n    """Of today."""\n    return READINGS["city"] + 0.5\n\n\n' * 45


def _long_request() -> bytes:
    turn: list[dict[str, Any]] = [
        {"role": "user", "content": "Where were we? " * 64},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Let me see. " * 160}]},
        {"type": "function_call", "call_id": "c", "name": "tool_1", "arguments": '{"city": "Oslo"}'},
        {"type": "function_call_output", "call_id": "c", "output": OUTPUT},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "It is cold. " * 80, "annotations": []}],
        },
    ]
    history: list[dict[str, Any]] = []
    while len(orjson.dumps(history)) < 4 * 64 * 1024:
        history += turn
    tool_list = [WEATHER | {"name": f"tool_{number}"} for number in range(32)]
    return orjson.dumps({"input": history, "tools": tool_list, "temperature": 0.5})


def _chat_answer() -> bytes:
    message = {"role": "assistant", "content": "<think>" + "Hm. " * 256 + "</think>" + "Cold. " * 256}
    usage = {"prompt_tokens": 16000, "completion_tokens": 500, "total_tokens": 16500}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return orjson.dumps(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    )


def _cpu_of(work: Callable[[], object], times: int) -> float:
    """CPU seconds of one call, median of five rounds."""
    work()
    rounds = []
    for _ in range(5):
        begun = time.process_time()
        for _ in range(times):
            work()
        rounds.append((time.process_time() - begun) / times)
    return median(rounds)
