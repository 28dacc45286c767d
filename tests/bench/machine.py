"""What a figure was measured on."""

import os
import platform
import sys
from pathlib import Path
from typing import Any


def facts() -> dict[str, Any]:
    """Processor, cores, interpreter and one-minute load; printed beside every figure."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "interpreter": f"CPython {platform.python_version()}",
        "executable": Path(sys.executable).name,
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 2),
    }


def load() -> float:
    return round(os.getloadavg()[0], 2)


def quiet_environment() -> dict[str, str]:
    """The environment of measured processes: bytecode is written, output is buffered as a user's would be."""
    dropped = {"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}
    return {key: value for key, value in os.environ.items() if key not in dropped}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
