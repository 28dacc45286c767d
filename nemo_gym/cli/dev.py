"""`gym dev test`: the tests of the folder one stands in."""

import subprocess
import sys


def dev_test() -> None:
    """Run pytest with coverage in the current folder and exit with its code."""
    command = [sys.executable, "-m", "pytest", "--cov=.", "--durations=10"]
    try:
        raise SystemExit(subprocess.call(command))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
