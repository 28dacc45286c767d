"""Providers and programs that stand in for those a plain machine lacks."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from nemo_gym.sandbox import SandboxEndpoint, SandboxExecResult, SandboxHandle, SandboxSpec, SandboxStatus


class FakeProvider:
    """Remembers what it is asked for; every capability a sandbox can have, except terminals."""

    name: ClassVar[str] = "fake"

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.calls: list[tuple[Any, ...]] = []
        self.files: dict[str, str] = {}
        self.broken: set[str] = set()

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        self._note("create", spec.image)
        return SandboxHandle("fake-1", self.name, None)

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: int | float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        self._note("exec", command, cwd, env, timeout_s, user)
        return SandboxExecResult("out", "", 0)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        self._note("upload", target_path)
        self.files[target_path] = source_path.read_text(encoding="utf-8")

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        self._note("download", source_path)
        target_path.write_text(self.files[source_path], encoding="utf-8")

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        return SandboxStatus.RUNNING

    async def close(self, handle: SandboxHandle) -> None:
        self._note("close", handle.sandbox_id)

    async def aclose(self) -> None:
        self._note("aclose")

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        return SandboxEndpoint(f"http://fake:{port}")

    async def pause(self, handle: SandboxHandle) -> None:
        self._note("pause")

    async def resume(self, handle: SandboxHandle) -> None:
        self._note("resume")

    async def serialize_handle(self, handle: SandboxHandle, *, scope: str | None = None) -> dict[str, Any]:
        return {"sandbox_id": handle.sandbox_id, "scope": scope}

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
        self._note("connect", descriptor["sandbox_id"])
        return SandboxHandle(descriptor["sandbox_id"], self.name, None)

    def _note(self, what: str, *details: Any) -> None:
        self.calls.append((what, *details))
        if what in self.broken:
            raise OSError(f"{what} is broken")


def install_program(folder: Path, name: str, script: str) -> None:
    """A shell script as a program in a folder for PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def path_with(folder: Path) -> str:
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
