"""The deprecated script names `ng_<key>` and `nemo_gym_<key>`: each says what to type now, and runs that."""

import shutil
import subprocess
import sys
from pathlib import Path

PREFIXES = ("ng_", "nemo_gym_")

REINSTALL = "reinstall"
REINSTALL_COMMAND = ("uv", "sync", "--extra", "dev")

TOKENS = {
    "run": ("env", "start"),
    "test": ("env", "test"),
    "test_all": ("env", "test", "--all"),
    "dev_test": ("dev", "test"),
    "init_resources_server": ("env", "init"),
    "list_benchmarks": ("list", "benchmarks"),
    "prepare_benchmark": ("eval", "prepare"),
    "collect_rollouts": ("eval", "run", "--no-serve"),
    "e2e_collect_rollouts": ("eval", "run"),
    "aggregate_rollouts": ("eval", "aggregate"),
    "reward_profile": ("eval", "profile"),
    "help": ("--help",),
    "version": ("--version",),
    "upload_dataset_to_gitlab": ("dataset", "upload", "--storage", "gitlab"),
    "download_dataset_from_gitlab": ("dataset", "download", "--storage", "gitlab"),
    "upload_dataset_to_hf": ("dataset", "upload"),
    "download_dataset_from_hf": ("dataset", "download"),
    "gitlab_to_hf_dataset": ("dataset", "migrate"),
    "delete_dataset_from_gitlab": ("dataset", "rm"),
    "prepare_data": ("dataset", "collate"),
    "materialize_prompts": ("dataset", "render"),
    "dump_config": ("env", "resolve"),
    "validate": ("env", "validate"),
    "status": ("env", "status"),
    "pip_list": ("env", "packages"),
}
KEYS = (*TOKENS, REINSTALL)


def main() -> None:
    """Run the command that the called script's name stands for."""
    script = Path(sys.argv[0]).stem
    key = next((script.removeprefix(prefix) for prefix in PREFIXES if script.startswith(prefix)), script)
    if key == REINSTALL:
        _reinstall(script)
    if key not in TOKENS:
        print(f"Error: {script} stands for no command; see `gym --help`.", file=sys.stderr)
        raise SystemExit(1)
    tokens = TOKENS[key]
    print(f"⚠ {script} is deprecated: use `gym {' '.join(tokens)}`.", file=sys.stderr)
    sys.argv = ["gym", *tokens, *sys.argv[1:]]

    from nemo_gym.cli.main import main as gym

    gym()


def _reinstall(script: str) -> None:
    command = " ".join(REINSTALL_COMMAND)
    print(f"⚠ {script} is deprecated and has no successor: run `{command}` yourself. Running it now.", file=sys.stderr)
    if shutil.which(REINSTALL_COMMAND[0]) is None:
        print("Error: uv is not on PATH: install it from https://docs.astral.sh/uv/.", file=sys.stderr)
        raise SystemExit(1)
    raise SystemExit(subprocess.call(REINSTALL_COMMAND))
