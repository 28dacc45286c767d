"""Commands on this machine: their time, their processes, their files and what they see."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from nemo_gym.sandbox import SandboxCreateError, SandboxExecResult, SandboxHandle, SandboxSpec, SandboxStatus
from nemo_gym.sandbox.process_tree import marked_processes
from nemo_gym.sandbox.providers.local import LocalProvider

# Starts a process that leaves session and group, says its pid, and stays.
DETACHED = "setsid sh -c 'echo $$ > pid; exec sleep 300' > /dev/null 2>&1 &\nwhile [ ! -s pid ]; do :; done"


@pytest.fixture
def provider(tmp_path: Path) -> LocalProvider:
    return LocalProvider(workspace_root=str(tmp_path))


@pytest.fixture
async def handle(provider: LocalProvider) -> AsyncIterator[SandboxHandle]:
    handle = await provider.create(SandboxSpec(env={"FROM_SPEC": "spec"}))
    yield handle
    await provider.close(handle)


def folder(handle: SandboxHandle) -> Path:
    path: Path = handle.raw.path
    return path


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


async def test_output_and_code_are_reported(provider: LocalProvider, handle: SandboxHandle) -> None:
    result = await provider.exec(handle, "echo out; echo err >&2; exit 3")
    assert result == SandboxExecResult("out\n", "err\n", 3)


async def test_bytes_that_are_no_text_don_t_hurt(provider: LocalProvider, handle: SandboxHandle) -> None:
    assert (await provider.exec(handle, r"printf '\377ok'")).stdout == "\ufffdok"


async def test_a_command_has_no_input_to_wait_for(provider: LocalProvider, handle: SandboxHandle) -> None:
    assert (await provider.exec(handle, "cat; echo done", timeout_s=30)).stdout == "done\n"


async def test_a_folder_of_its_own_is_private_and_deleted(provider: LocalProvider, tmp_path: Path) -> None:
    handle = await provider.create(SandboxSpec())
    assert folder(handle).parent == tmp_path
    assert folder(handle).stat().st_mode & 0o777 == 0o700
    assert await provider.status(handle) is SandboxStatus.RUNNING
    await provider.close(handle)
    await provider.close(handle)
    assert not folder(handle).exists()
    assert await provider.status(handle) is SandboxStatus.STOPPED


async def test_a_folder_of_the_caller_stays(provider: LocalProvider, tmp_path: Path) -> None:
    handle = await provider.create(SandboxSpec(workdir=str(tmp_path / "mine")))
    await provider.exec(handle, "echo kept > file")
    await provider.close(handle)
    assert (tmp_path / "mine" / "file").read_text() == "kept\n"


async def test_a_folder_that_can_not_be_made_is_an_error(provider: LocalProvider, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxCreateError, match="can't be made"):
        await provider.create(SandboxSpec(workdir=str(tmp_path / "file" / "below")))


async def test_the_current_folder_is_chosen(provider: LocalProvider, handle: SandboxHandle, tmp_path: Path) -> None:
    (folder(handle) / "sub").mkdir()
    assert (await provider.exec(handle, "pwd")).stdout == f"{folder(handle)}\n"
    assert (await provider.exec(handle, "pwd", cwd="sub")).stdout == f"{folder(handle)}/sub\n"
    assert (await provider.exec(handle, "pwd", cwd=str(tmp_path))).stdout == f"{tmp_path}\n"


async def test_a_command_that_can_not_start_is_the_sandbox_s_failure(
    provider: LocalProvider, handle: SandboxHandle
) -> None:
    result = await provider.exec(handle, "true", cwd="nowhere")
    assert (result.error_type, result.return_code) == ("sandbox", 125)


async def test_another_user_is_refused(provider: LocalProvider, handle: SandboxHandle) -> None:
    with pytest.raises(ValueError, match="'root'"):
        await provider.exec(handle, "true", user="root")


async def test_time_is_limited_and_output_up_to_then_kept(provider: LocalProvider, handle: SandboxHandle) -> None:
    result = await provider.exec(handle, "echo begun; sleep 300", timeout_s=0.5)
    assert (result.stdout, result.error_type, result.return_code) == ("begun\n", "timeout", 125)
    assert "ended after 0.5 s" in (result.stderr or "")


async def test_the_default_time_is_the_providers(tmp_path: Path) -> None:
    provider = LocalProvider(workspace_root=str(tmp_path), default_timeout_s=0.3)
    handle = await provider.create(SandboxSpec())
    assert (await provider.exec(handle, "sleep 300")).error_type == "timeout"
    await provider.close(handle)


async def test_a_timeout_ends_processes_that_left_group_and_session(
    provider: LocalProvider, handle: SandboxHandle
) -> None:
    result = await provider.exec(handle, f"{DETACHED}\nsleep 300", timeout_s=3)
    assert result.error_type == "timeout"
    assert not is_alive(int((folder(handle) / "pid").read_text()))


async def test_a_timeout_ends_children_without_the_marker(provider: LocalProvider, handle: SandboxHandle) -> None:
    command = "env -i setsid sh -c 'echo $$ > pid; sleep 300' & while [ ! -s pid ]; do :; done; wait"
    assert (await provider.exec(handle, command, timeout_s=3)).error_type == "timeout"
    assert not is_alive(int((folder(handle) / "pid").read_text()))


async def test_cancelling_ends_the_command(provider: LocalProvider, handle: SandboxHandle) -> None:
    os.mkfifo(folder(handle) / "pid")
    task = asyncio.create_task(provider.exec(handle, "echo $$ > pid; exec sleep 300"))
    pid = int(await asyncio.to_thread((folder(handle) / "pid").read_text))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(pid)


async def test_a_service_outlives_its_command_until_the_sandbox_is_closed(provider: LocalProvider) -> None:
    handle = await provider.create(SandboxSpec())
    result = await provider.exec(handle, DETACHED, timeout_s=30)
    pid = int((folder(handle) / "pid").read_text())
    assert (result.return_code, is_alive(pid)) == (0, True)
    await provider.close(handle)
    assert not is_alive(pid)


async def test_a_service_that_holds_the_output_does_not_hold_the_command(
    provider: LocalProvider, handle: SandboxHandle
) -> None:
    result = await provider.exec(handle, "sleep 300 & echo started", timeout_s=30)
    assert result == SandboxExecResult("started\n", "", 0)


async def test_closing_one_sandbox_leaves_another_s_processes(provider: LocalProvider) -> None:
    first, second = await provider.create(SandboxSpec()), await provider.create(SandboxSpec())
    await provider.exec(second, DETACHED, timeout_s=30)
    pid = int((folder(second) / "pid").read_text())
    await provider.close(first)
    assert is_alive(pid)
    await provider.close(second)
    assert not is_alive(pid)


async def test_a_killed_command_has_the_shell_s_code(provider: LocalProvider, handle: SandboxHandle) -> None:
    assert (await provider.exec(handle, "kill -9 $$")).return_code == 128 + signal.SIGKILL


async def test_output_beyond_the_limit_is_cut_and_said(tmp_path: Path) -> None:
    provider = LocalProvider(workspace_root=str(tmp_path), max_output_bytes=1000)
    handle = await provider.create(SandboxSpec())
    result = await provider.exec(handle, "head -c 200000 /dev/zero | tr '\\0' x")
    assert result.stdout == "x" * 1000 + "\n[199000 more bytes were cut]"
    await provider.close(handle)


async def test_secrets_of_the_host_are_not_seen(
    provider: LocalProvider, handle: SandboxHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-s3cr3t")
    monkeypatch.setenv("NEMO_GYM_CONFIG_FILE", "/s3cr3t/config")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:s3cr3t@proxy")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    seen = (await provider.exec(handle, "env", env={"FROM_CALL": "call"})).stdout or ""
    assert "s3cr3t" not in seen
    variables = dict(line.split("=", 1) for line in seen.splitlines())
    assert (variables["FROM_SPEC"], variables["FROM_CALL"], variables["LC_ALL"]) == ("spec", "call", "C.UTF-8")
    assert variables["PATH"] == os.environ["PATH"]


async def test_variables_are_passed_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_A", "a")
    monkeypatch.setenv("TOKEN_B", "b")
    named, everything = (
        LocalProvider(str(tmp_path), pass_env=["TOKEN_A"]),
        LocalProvider(str(tmp_path), inherit_env=True),
    )
    for provider, expected in ((named, "a-\n"), (everything, "a-b\n")):
        handle = await provider.create(SandboxSpec())
        assert (await provider.exec(handle, "echo $TOKEN_A-$TOKEN_B")).stdout == expected
        await provider.close(handle)


async def test_files_go_in_and_out(provider: LocalProvider, handle: SandboxHandle, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"\x00data")
    source.chmod(0o755)
    await provider.upload_file(handle, source, "new/folder/file")
    await provider.upload_file(handle, source, str(folder(handle) / "absolute"))
    assert os.access(folder(handle) / "new/folder/file", os.X_OK)
    await provider.download_file(handle, "new/folder/file", tmp_path / "back" / "file")
    assert (tmp_path / "back" / "file").read_bytes() == (folder(handle) / "absolute").read_bytes() == b"\x00data"


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "link/out"])
async def test_files_stay_inside_the_folder(
    provider: LocalProvider, handle: SandboxHandle, tmp_path: Path, path: str
) -> None:
    (folder(handle) / "link").symlink_to(tmp_path)
    (tmp_path / "out").write_text("outside")
    with pytest.raises(ValueError, match="outside the sandbox's folder"):
        await provider.upload_file(handle, tmp_path / "out", path)
    with pytest.raises(ValueError, match="outside the sandbox's folder"):
        await provider.download_file(handle, path, tmp_path / "stolen")
    assert not (tmp_path / "stolen").exists()


async def test_confinement_of_files_can_be_turned_off(tmp_path: Path) -> None:
    provider = LocalProvider(str(tmp_path), confine_paths=False)
    handle = await provider.create(SandboxSpec())
    (tmp_path / "out").write_text("outside")
    await provider.download_file(handle, str(tmp_path / "out"), tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "outside"
    await provider.close(handle)


async def test_commands_wait_for_their_turn(tmp_path: Path) -> None:
    """With room for two, four commands never see more than two of themselves."""
    providers = [LocalProvider(str(tmp_path), concurrency=2) for _ in range(2)]
    handles = [await provider.create(SandboxSpec()) for provider in providers]
    command = f"mkdir {tmp_path}/run-$$; ls -d {tmp_path}/run-* | wc -l; sleep 0.1; rmdir {tmp_path}/run-$$"
    pairs = [*zip(providers, handles, strict=True)] * 2
    results = await asyncio.gather(*(provider.exec(handle, command) for provider, handle in pairs))
    assert max(int(result.stdout or "9") for result in results) <= 2
    for provider, handle in zip(providers, handles, strict=True):
        await provider.close(handle)


async def test_what_it_ignores_is_said(provider: LocalProvider, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        handle = await provider.create(SandboxSpec(image="img", ttl_s=5, resources={"cpu": 1}))
    await provider.close(handle)
    assert "ignores image, ttl_s, resources" in caplog.text


async def test_that_it_isolates_nothing_is_said_once(
    provider: LocalProvider, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalProvider, "_warned", False)
    for _ in range(2):
        await provider.close(await provider.create(SandboxSpec()))
    assert caplog.text.count("isolates nothing") == 1


async def test_a_provider_may_put_isolation_around_commands(tmp_path: Path) -> None:
    class Wrapped(LocalProvider):
        def _argv(self, handle: SandboxHandle, command: str) -> list[str]:
            return ["env", "WRAPPED=yes", *super()._argv(handle, command)]

    provider = Wrapped(str(tmp_path))
    handle = await provider.create(SandboxSpec())
    assert (await provider.exec(handle, "echo $WRAPPED")).stdout == "yes\n"
    await provider.close(handle)


def test_marks_are_found_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    environment: Callable[[int], list[bytes]] = lambda pid: [b"A=12"] if pid == 1 else []  # noqa: E731
    monkeypatch.setattr("nemo_gym.sandbox.process_tree._environment", environment)
    assert marked_processes("A=12") == [1]
    assert marked_processes("A=1") == []
