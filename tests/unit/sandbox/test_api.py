"""A sandbox's life, whatever its provider."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.sandbox import AsyncSandbox, Sandbox, SandboxHandle, SandboxSpec, SandboxStatus
from nemo_gym.telemetry import _fallbacks
from tests.unit.sandbox.fakes import FakeProvider

SPEC = SandboxSpec(image="img", workdir="/w", ports=[8080])


async def test_start_creates_then_puts_files_in() -> None:
    provider = FakeProvider()
    spec = SandboxSpec(image="img", files={"/a/b.txt": "héllo"})
    sandbox = await AsyncSandbox(provider, spec).start()
    assert provider.calls == [("create", "img"), ("upload", "/a/b.txt")]
    assert provider.files == {"/a/b.txt": "héllo"}
    assert await sandbox.status() is SandboxStatus.RUNNING


async def test_a_file_that_can_not_be_put_in_stops_the_sandbox() -> None:
    provider = FakeProvider()
    provider.broken.add("upload")
    sandbox = AsyncSandbox(provider, SandboxSpec(files={"a": "b"}))
    with pytest.raises(OSError, match="upload is broken"):
        await sandbox.start()
    assert ("close", "fake-1") in provider.calls
    assert await sandbox.status() is SandboxStatus.STOPPED


async def test_a_setup_that_fails_stops_the_sandbox() -> None:
    provider = FakeProvider()

    async def setup(sandbox: AsyncSandbox) -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        await AsyncSandbox(provider).start_with_setup(SPEC, setup)
    assert provider.calls[-2:] == [("close", "fake-1"), ("aclose",)]


async def test_start_is_refused_without_spec_twice_and_after_stop() -> None:
    sandbox = AsyncSandbox(FakeProvider())
    with pytest.raises(ValueError, match="spec"):
        await sandbox.start()
    await sandbox.start(SPEC)
    with pytest.raises(RuntimeError, match="started already"):
        await sandbox.start(SPEC)
    await sandbox.stop()
    with pytest.raises(RuntimeError, match="closed"):
        await sandbox.start(SPEC)


async def test_a_command_runs_in_the_specs_workdir_by_default() -> None:
    provider = FakeProvider()
    sandbox = await AsyncSandbox(provider, SPEC).start()
    await sandbox.exec("ls")
    await sandbox.exec("ls", cwd="/elsewhere", env={"A": "1"}, timeout_s=5, user="root")
    assert provider.calls[1:] == [
        ("exec", "ls", "/w", None, 180, None),
        ("exec", "ls", "/elsewhere", {"A": "1"}, 5, "root"),
    ]


async def test_nothing_runs_before_start() -> None:
    sandbox = AsyncSandbox(FakeProvider(), SPEC)
    assert await sandbox.status() is SandboxStatus.UNKNOWN
    with pytest.raises(RuntimeError, match="not started"):
        await sandbox.exec("ls")


async def test_stopping_twice_is_fine_and_a_shared_provider_stays() -> None:
    provider = FakeProvider()
    sandbox = await AsyncSandbox(provider, SPEC, owns_provider=False).start()
    await sandbox.stop()
    await sandbox.stop()
    assert provider.calls == [("create", "img"), ("close", "fake-1")]


async def test_a_failed_stop_can_be_repeated() -> None:
    provider = FakeProvider()
    sandbox = await AsyncSandbox(provider, SPEC).start()
    provider.broken.add("close")
    with pytest.raises(OSError, match="close is broken"):
        await sandbox.stop()
    assert await sandbox.status() is SandboxStatus.RUNNING
    provider.broken.clear()
    await sandbox.stop()
    assert provider.calls[-1] == ("aclose",)


async def test_a_context_stops_but_does_not_start() -> None:
    provider = FakeProvider()
    async with AsyncSandbox(provider, SPEC):
        assert provider.calls == []
    assert provider.calls == [("aclose",)]


async def test_an_endpoint_must_be_declared() -> None:
    sandbox = await AsyncSandbox(FakeProvider(), SPEC).start()
    assert (await sandbox.endpoint(8080)).endpoint == "http://fake:8080"
    with pytest.raises(ValueError, match="9090"):
        await sandbox.endpoint(9090)


async def test_what_a_provider_lacks_is_said(tmp_path: Path) -> None:
    sandbox = AsyncSandbox({"local": {}}, SandboxSpec(workdir=str(tmp_path), ports=[80]))
    await sandbox.start()
    with pytest.raises(NotImplementedError, match="'local' has no endpoints"):
        await sandbox.endpoint(80)
    with pytest.raises(NotImplementedError, match="'local' can't pause"):
        await sandbox.pause()
    with pytest.raises(NotImplementedError, match="'local' can't be handed on"):
        await sandbox.serialize()
    with pytest.raises(NotImplementedError, match="'local' has no terminals"):
        await sandbox.pty.create()
    await sandbox.stop()


async def test_a_sandbox_is_handed_on_and_left_running() -> None:
    first = await AsyncSandbox(FakeProvider(), SPEC).start()
    descriptor = await first.serialize(scope="s")
    assert descriptor == {"sandbox_id": "fake-1", "scope": "s", "workdir": "/w", "ports": [8080]}
    provider = FakeProvider()
    second = await AsyncSandbox.connect(descriptor, provider=provider)
    await second.exec("ls")
    await second.disconnect()
    assert provider.calls == [("connect", "fake-1"), ("exec", "ls", "/w", None, 180, None), ("aclose",)]
    assert await second.status() is SandboxStatus.STOPPED
    with pytest.raises(RuntimeError, match="connected"):
        await first.disconnect()


async def test_a_failed_connect_releases_the_provider() -> None:
    class Lost(FakeProvider):
        async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
            raise OSError("lost")

    provider = Lost()
    with pytest.raises(OSError, match="lost"):
        await AsyncSandbox.connect({"sandbox_id": "x"}, provider=provider)
    assert provider.calls == [("aclose",)]


async def test_pause_and_resume_reach_the_provider() -> None:
    provider = FakeProvider()
    sandbox = await AsyncSandbox(provider, SPEC).start()
    await sandbox.pause()
    await sandbox.resume()
    assert provider.calls[1:] == [("pause",), ("resume",)]


async def test_spans_name_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    spans: list[tuple[str, dict[str, Any]]] = []

    class Source:
        def open(self, name: str, attributes: Mapping[str, Any]) -> Any:
            spans.append((name, dict(attributes)))
            return _fallbacks._NO_SPAN

        def wrap(self, function: Any, name: str) -> Any:
            return function

    monkeypatch.setattr(_fallbacks, "_source", Source())
    monkeypatch.setattr(_fallbacks, "_enabled", frozenset({"sandbox"}))
    async with AsyncSandbox(FakeProvider(), SPEC) as sandbox:
        await sandbox.start()
        await sandbox.exec("ls")
    provider = {"nemo.gym.sandbox.provider": "fake"}
    names = ["gym.sandbox.start", "gym.sandbox.exec", "gym.sandbox.stop"]
    assert spans == [(name, provider) for name in names]


def test_a_blocking_sandbox_does_the_same(tmp_path: Path) -> None:
    with Sandbox({"local": {"workspace_root": str(tmp_path)}}, SandboxSpec(files={"a.txt": "hi"})) as sandbox:
        assert sandbox.start() is sandbox
        assert sandbox.exec("cat a.txt").stdout == "hi"
        (tmp_path / "up.txt").write_text("up")
        sandbox.upload(tmp_path / "up.txt", "in.txt")
        sandbox.download("in.txt", tmp_path / "down.txt")
        assert sandbox.status() is SandboxStatus.RUNNING
    assert (tmp_path / "down.txt").read_text() == "up"
    assert sandbox.status() is SandboxStatus.STOPPED


async def test_a_blocking_sandbox_refuses_to_block_an_event_loop() -> None:
    sandbox = Sandbox(FakeProvider(), SPEC)
    with pytest.raises(RuntimeError, match="AsyncSandbox"):
        sandbox.start()


def test_a_blocking_sandbox_that_is_forgotten_stops() -> None:
    provider = FakeProvider()
    sandbox = Sandbox(provider, SPEC).start()
    del sandbox
    assert provider.calls[-1] == ("aclose",)


def test_several_loops_use_one_provider_class(tmp_path: Path) -> None:
    async def echo() -> str | None:
        async with AsyncSandbox({"local": {"concurrency": 1}}, SandboxSpec(workdir=str(tmp_path))) as sandbox:
            await sandbox.start()
            results = await asyncio.gather(*(sandbox.exec("echo hi") for _ in range(3)))
            return results[-1].stdout

    assert asyncio.run(echo()) == asyncio.run(echo()) == "hi\n"
