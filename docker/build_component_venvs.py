"""Builds the venvs of the components named on standard input, one `category/name` a line, under a folder."""

import sys
from pathlib import Path

from nemo_gym.errors import GymError
from nemo_gym.launch.venvs import VenvSettings, ensure_venv


def main() -> None:
    settings = VenvSettings(root=Path(sys.argv[1]))
    for line in sys.stdin.read().split():
        folder = Path.cwd() / line
        if not (folder / "app.py").is_file():
            sys.exit(f"docker/prebuilt.txt names {line}, and there is no {line}/app.py.")
        try:
            venv = ensure_venv(folder, settings)
        except GymError as error:
            sys.exit(str(error))
        print(f"{line}: {venv.path}")


if __name__ == "__main__":
    main()
