"""Nothing to run: this folder is the base of environments that are reset and stepped."""

import sys

from resources_servers.gymnasium import GymnasiumServer

__all__ = ["GymnasiumServer"]

NOT_RUNNABLE = (
    "Error: resources_servers/gymnasium is a base class, not an environment: derive from GymnasiumServer, as "
    "resources_servers/example_multi_turn_gymnasium does, or start one of those."
)

if __name__ == "__main__":
    print(NOT_RUNNABLE, file=sys.stderr)
    raise SystemExit(1)
