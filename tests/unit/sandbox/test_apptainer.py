"""The Apptainer provider, with a scripted `apptainer`."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.sandbox import SandboxExecResult, SandboxHandle, SandboxSpec, SandboxStatus
from nemo_gym.sandbox.errors import SandboxConfigError, SandboxCreateError, SandboxError, SandboxPathError
from nemo_gym.sandbox.providers.apptainer import ApptainerProvider
from nemo_gym.sandbox.providers.apptainer import provider as module
from nemo_gym.sandbox.providers.apptainer.command_line import exec_argv
from nemo_gym.sandbox.providers.base import ConnectableProvider, SupportsSandboxEndpoint
from tests.unit.sandbox.fakes import install_program, path_with

SCRIPT = """
echo "$@" >> "$LOG"
case "$1 $2" in
  "instance start") exit 0;;
  "instance list") echo "{\\"instances\\": [{\\"instance\\": \\"$4\\"}]}"; exit 0;;
  "instance stop") exit 0;;
esac
while [ "$1" != sh ]; do [ "$1" = --env-file ] && set -a && . "$2" && set +a; shift; done
exec "$@"
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """An `apptainer` that runs commands on this machine; the command lines it got."""
    path = tmp_path / "log"
    (tmp_path / "bin").mkdir()
    install_program(tmp_path / "bin", "apptainer", f"LOG={path}\n{SCRIPT}")
    monkeypatch.setenv("PATH", path_with(tmp_path / "bin"))
    return lambda: path.read_text().splitlines()


def staging(handle: SandboxHandle) -> Path:
    path: Path = handle.raw.staging
    return path


def test_without_the_program_it_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="install Apptainer"):
        ApptainerProvider()


def test_the_program_is_found_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_program(tmp_path, "apptainer", "exit 0")
    monkeypatch.setenv("PATH", "/nowhere")
    assert ApptainerProvider(bin_path=str(tmp_path))._binary == str(tmp_path / "apptainer")


@pytest.mark.parametrize("stub", [lambda: None, lambda bin_path: None, lambda *_args, **_kwargs: None])
def test_the_check_is_replaceable(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(module, "_require_apptainer", stub)
    assert ApptainerProvider()._binary == "apptainer"


async def test_an_instance_is_started_used_and_stopped(log: Callable[[], list[str]]) -> None:
    provider = ApptainerProvider(
        exec={"default_binds": ["/data:/data:ro"]}, create={"extra_start_args": ["--writable-tmpfs"]}
    )
    spec = SandboxSpec(
        image="docker://img",
        env={"FROM_SPEC": "a b"},
        resources={"cpu": 2, "memory_mib": 64, "gpu": 1},
        provider_options={"binds": ["/x:/y"]},
    )
    handle = await provider.create(spec)
    assert staging(handle).is_dir()
    result = await provider.exec(handle, 'echo "$FROM_SPEC-$FROM_CALL"; exit 2', cwd="/w", env={"FROM_CALL": "c\nd"})
    assert result == SandboxExecResult("a b-c\nd\n", "", 2)
    assert await provider.status(handle) is SandboxStatus.RUNNING
    await provider.close(handle)
    assert not staging(handle).exists()
    started, executed, *_ = log()
    assert started == (
        f"instance start --bind {staging(handle)}:/sandbox --bind /data:/data:ro --bind /x:/y --nv --cpus 2 "
        f"--memory 64M --writable-tmpfs docker://img {handle.sandbox_id}"
    )
    assert executed.startswith("exec --no-eval --env-file ")
    assert f"--pwd /w instance://{handle.sandbox_id} sh -c" in executed


async def test_secrets_of_the_host_are_not_seen(log: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-s3cr3t")
    provider = ApptainerProvider()
    handle = await provider.create(SandboxSpec(image="img"))
    assert "s3cr3t" not in ((await provider.exec(handle, "env")).stdout or "")
    await provider.close(handle)


async def test_users_are_reached_from_a_faked_root(log: Callable[[], list[str]]) -> None:
    provider = ApptainerProvider()
    handle = await provider.create(SandboxSpec(image="img"))
    await provider.exec(handle, "true", user="root")
    provider_without = ApptainerProvider(exec={"fakeroot_for_root": False})
    await provider_without.exec(handle, "true", user=0)
    argv = exec_argv("apptainer", "box", "ls", provider._exec, cwd=None, env_file=None, user="me")
    await provider.close(handle)
    assert [line.startswith("exec --fakeroot") for line in log()[1:3]] == [True, False]
    assert argv == ["apptainer", "exec", "--fakeroot", "instance://box", "su", "-s", "/bin/sh", "me", "-c", "ls"]


async def test_a_command_ends_after_its_time_and_a_grace(log: Callable[[], list[str]]) -> None:
    provider = ApptainerProvider(exec={"timeout_grace_s": 0.1})
    handle = await provider.create(SandboxSpec(image="img"))
    assert (await provider.exec(handle, "sleep 300", timeout_s=0.2)).error_type == "timeout"
    await provider.close(handle)


async def test_a_failed_start_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_program(tmp_path, "apptainer", 'echo "no image, token s3cr3t" >&2; exit 255')
    monkeypatch.setenv("PATH", path_with(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(SandboxCreateError, match=r"token \*\*\*\*"):
        await ApptainerProvider().create(SandboxSpec(image="img", env={"T": "s3cr3t"}))
    assert [path.name for path in tmp_path.iterdir()] == ["apptainer"]


@pytest.mark.parametrize(("env", "message"), [({"1A": ""}, "no name"), ({"PWD": "/"}, "PWD"), ({"A": "\0"}, "NUL")])
async def test_variables_that_can_not_be_set_are_refused(
    log: Callable[[], list[str]], env: dict[str, str], message: str
) -> None:
    with pytest.raises(SandboxConfigError, match=message):
        await ApptainerProvider().create(SandboxSpec(image="img", env=env))


async def test_files_go_through_the_shared_folder(log: Callable[[], list[str]], tmp_path: Path) -> None:
    provider = ApptainerProvider()
    handle = await provider.create(SandboxSpec(image="img"))
    (tmp_path / "src").write_text("data")
    await provider.upload_file(handle, tmp_path / "src", "/sandbox/a/b")
    assert (staging(handle) / "a" / "b").read_text() == "data"
    await provider.download_file(handle, "/sandbox/a/b", tmp_path / "back")
    assert (tmp_path / "back").read_text() == "data"
    (staging(handle) / "link").symlink_to("/etc")
    with pytest.raises(SandboxPathError, match="link"):
        await provider.download_file(handle, "/sandbox/link/passwd", tmp_path / "stolen")
    await provider.close(handle)


async def test_other_files_are_copied_inside(log: Callable[[], list[str]], tmp_path: Path) -> None:
    provider = ApptainerProvider(create={"mount_point": str(tmp_path / "mounted")})
    handle = await provider.create(SandboxSpec(image="img"))
    (tmp_path / "mounted").symlink_to(staging(handle))  # what the bind would do
    (tmp_path / "src").write_text("data")
    await provider.upload_file(handle, tmp_path / "src", str(tmp_path / "in side" / "f"))
    assert (tmp_path / "in side" / "f").read_text() == "data"
    await provider.download_file(handle, str(tmp_path / "in side" / "f"), tmp_path / "back")
    assert (tmp_path / "back").read_text() == "data"
    assert list(staging(handle).iterdir()) == []
    with pytest.raises(SandboxError, match="failed"):
        await provider.download_file(handle, "/not/there", tmp_path / "none")
    await provider.close(handle)


async def test_an_instance_is_connected_to_by_its_user_on_its_host(log: Callable[[], list[str]]) -> None:
    provider = ApptainerProvider()
    handle = await provider.create(SandboxSpec(image="img", env={"A": "1"}))
    descriptor = await provider.serialize_handle(handle)
    assert descriptor == {
        "provider": "apptainer",
        "sandbox_id": handle.sandbox_id,
        "hostname": socket.gethostname(),
        "uid": os.getuid(),
        "staging_dir": str(staging(handle)),
        "mount_point": "/sandbox",
        "image": "img",
        "env": {"A": "1"},
    }
    connected = await provider.connect(descriptor)
    assert connected.raw == handle.raw
    with pytest.raises(SandboxError, match="elsewhere"):
        await provider.connect({**descriptor, "hostname": "elsewhere"})
    await provider.close(handle)


async def test_it_can_be_connected_to_and_has_no_endpoints(log: Callable[[], list[str]]) -> None:
    provider = ApptainerProvider()
    assert isinstance(provider, ConnectableProvider)
    assert not isinstance(provider, SupportsSandboxEndpoint)
