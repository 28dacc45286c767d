"""A Ray job's program: it starts the servers that settings.json says, collects rows.jsonl, and waits to be stopped."""

import asyncio
import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from nemo_gym.cli.env import RunHelper
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import GlobalConfigDictParserConfig
from nemo_gym.rollout_collection import RolloutCollectionHelper


async def collect(head_port: int) -> list[Any]:
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    head = BaseServerConfig(host="127.0.0.1", port=head_port)
    found = RolloutCollectionHelper().run_examples(examples=rows, head_server_config=head)
    return [(await each)[1]["reward"] for each in found]


def main() -> None:
    settings = json.loads(Path("settings.json").read_text())
    helper = RunHelper()
    helper.start(
        GlobalConfigDictParserConfig(
            initial_global_config_dict=DictConfig(settings), skip_load_from_cli=True, skip_load_from_dotenv=True
        )
    )
    print("REWARDS", json.dumps(asyncio.run(collect(settings["head_server"]["port"]))), flush=True)
    print("PIDS", json.dumps({name: each.pid for name, each in helper._processes.items()}), flush=True)
    helper.run_forever()
    print("ENDED IN ORDER", flush=True)


if __name__ == "__main__":
    main()
