"""Wheels small enough to make on the spot, and a folder of them that uv uses instead of any index."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path


def write_wheel(folder: Path, name: str, version: str, *, requires: Sequence[str] = (), code: str = "") -> Path:
    """A pure wheel with one module of the distribution's name."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = "".join(f"Requires-Dist: {line}\n" for line in requires)
    files = {
        f"{module}/__init__.py": code or f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file_name, content in files.items():
            archive.writestr(file_name, content)
    return path
