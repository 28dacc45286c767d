"""Builds one server's venv for a shell; `python -m nemo_gym.cli._venv_setup --help` says how."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from nemo_gym.errors import GymError
from nemo_gym.launch.venvs import VenvSettings, ensure_venv


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the venv of one server.")
    parser.add_argument("--dir", type=Path, required=True, help="the server's folder")
    parser.add_argument("--prefix", default="", help="what lines of output begin with")
    parser.add_argument("--settings", type=json.loads, default={}, help="config keys about venvs, as JSON")
    parser.add_argument("--for-tests", action="store_true", help="keep the packages its tests need")
    arguments = parser.parse_args()
    prefix = f"({arguments.prefix}) " if arguments.prefix else ""
    try:
        ensure_venv(
            arguments.dir,
            VenvSettings.from_config(arguments.settings),
            for_tests=arguments.for_tests,
            report=lambda line: print(prefix + line),
        )
    except GymError as error:
        print(f"{prefix}Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
