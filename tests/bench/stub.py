"""A collection whose servers answer at once in its own process; prints what it took as JSON.

`python -m tests.bench.stub OUTPUT [--input ROWS] [--resume] [--stop-at-first]`
"""

import argparse
import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import orjson
from omegaconf import OmegaConf

# As in a command that has begun its work; and the time of a floor doesn't hold what it imports either.
import nemo_gym.rollouts.collect
import nemo_gym.rollouts.enrichment
import nemo_gym.rollouts.prompting
import nemo_gym.server_utils  # noqa: F401
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.serve.garbage import relax_collection

CONFIG = {
    "head_server": {"host": "127.0.0.1", "port": 11000},
    "math": {"resources_servers": {"math": {"entrypoint": "app.py", "domain": "math"}}},
    "math_agent": {
        "responses_api_agents": {
            "simple_agent": {
                "entrypoint": "app.py",
                "resources_server": {"type": "resources_servers", "name": "math"},
            }
        }
    },
    "math_environment_server": {
        "environment_servers": {
            "legacy_agent": {
                "entrypoint": "app.py",
                "agent_server": {"type": "responses_api_agents", "name": "math_agent"},
            }
        }
    },
}
SAMPLE_EVERY = 1000
_PAGE = os.sysconf("SC_PAGESIZE")


def resident_megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 2**20


class Reply:
    """As much of an HTTP reply as a collection reads."""

    status, ok = 200, True
    headers: dict[str, str] = {}

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self) -> bytes:
        return self._body


class Stub:
    """Answers `/run` with a record of about a kilobyte, and notes when it was first asked and what memory was used."""

    def __init__(self, *, stops: bool) -> None:
        self.global_config_dict = OmegaConf.create(CONFIG)
        self.asked = 0
        self.first: float | None = None
        self.memory: list[float] = []
        self._stops = stops
        output = [{"type": "message", "content": [{"type": "output_text", "text": "Because it is so. " * 40}]}]
        usage = {"input_tokens": 100, "output_tokens": 20}
        self._answer = orjson.dumps({"response": {"output": output, "usage": usage}, "reward": 1.0})

    async def post(self, server_name: str, url_path: str, **kwargs: Any) -> Reply:
        del server_name
        if url_path == "/aggregate_metrics":
            if "data" in kwargs:
                while kwargs["data"].read(1 << 20):
                    pass
            return Reply(b'{"agent_metrics":{},"key_metrics":{},"group_level_metrics":[],"repeat_level_metrics":[]}')
        if self.first is None:
            self.first = time.perf_counter()
        self.asked += 1
        if self.asked % SAMPLE_EVERY == 0:
            self.memory.append(resident_megabytes())
        if self._stops:
            raise asyncio.CancelledError
        await asyncio.sleep(0)
        return Reply(self._answer)


class Helper(RolloutCollectionHelper):
    def setup_server_client(self, head_server_config: Any = None) -> Any:
        return STUB[0]


STUB: list[Stub] = []


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--input", default="")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--stop-at-first", action="store_true")
    options = parser.parse_args()
    relax_collection()
    stub = Stub(stops=options.stop_at_first)
    STUB.append(stub)
    fields: dict[str, Any] = {"input_jsonl_fpath": options.input} if options.input else {"input_jsonl_fpath": "none"}
    config = RolloutCollectionConfig(
        output_jsonl_fpath=options.output,
        agent_name="math_agent",
        num_samples_in_parallel=256,
        retain_results_in_memory=False,
        resume_from_cache=options.resume,
        **fields,
    )
    begun, cpu = time.perf_counter(), time.process_time()
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(Helper().run_from_config(config))
    peak = next(
        int(line.split()[1]) / 1024
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    )
    figures = {
        "seconds": time.perf_counter() - begun,
        "cpu": time.process_time() - cpu,
        "to_first": None if stub.first is None else stub.first - begun,
        "asked": stub.asked,
        "peak": peak,
        "memory": stub.memory,
    }
    sys.stdout.flush()
    sys.stderr.write("\n" + orjson.dumps(figures).decode() + "\n")


if __name__ == "__main__":
    main()
