"""`gym --version`: what is installed and what it runs on, told without reading any config."""

import json
import os
import platform
import sys
from typing import TYPE_CHECKING, Any

from nemo_gym import ROOT_DIR, __version__
from nemo_gym.cli.utils import flag_is_on

if TYPE_CHECKING:
    from nemo_gym.cli.command_configs import VersionConfig as VersionConfig

KEY_DEPENDENCIES = ("openai", "ray")


def __getattr__(name: str) -> Any:
    if name == "VersionConfig":
        from nemo_gym.cli.command_configs import VersionConfig

        return VersionConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def version() -> None:
    """Print versions for people, or as JSON with `+json=true`."""
    facts = version_facts()
    print(json.dumps(facts, indent=2) if flag_is_on("json") else _as_text(facts))


def version_facts() -> dict[str, Any]:
    """Versions of Gym, Python and key dependencies, and the machine; `null` for what is not there."""
    return {
        "nemo_gym": __version__,
        "python": platform.python_version(),
        "python_path": sys.executable,
        "installation_path": str(ROOT_DIR),
        "dependencies": {name: _installed_version(name) for name in KEY_DEPENDENCIES},
        "system": {
            "os": f"{platform.system()} {platform.release()}",
            "platform": platform.platform(),
            "architecture": platform.machine(),
            "processor": platform.processor() or "unknown",
            "cpus": os.cpu_count(),
            "memory_gb": _memory_gigabytes(),
        },
    }


def _installed_version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        return version_of(distribution)
    except PackageNotFoundError:
        return None


def _memory_gigabytes() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 2)
    except (ValueError, OSError):
        return None


def _as_text(facts: dict[str, Any]) -> str:
    system = facts["system"]
    lines = [
        f"NeMo Gym v{facts['nemo_gym']}",
        f"Python {facts['python']} ({facts['python_path']})",
        f"Installation: {facts['installation_path']}",
        "",
        "Key Dependencies:",
        *(f"  {name}: {found or 'not installed'}" for name, found in facts["dependencies"].items()),
        "",
        "System:",
        f"  OS: {system['os']}",
        f"  Platform: {system['platform']}",
        f"  Architecture: {system['architecture']}",
        f"  Processor: {system['processor']}",
        f"  CPUs: {system['cpus']}",
        f"  Memory: {system['memory_gb']} GB",
    ]
    return "\n".join(lines)
