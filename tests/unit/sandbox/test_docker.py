"""The Docker provider, with a scripted `docker`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.sandbox import SandboxExecResult, SandboxHandle, SandboxSpec, SandboxStatus
from nemo_gym.sandbox.errors import (
    SandboxConfigError,
    SandboxCreateError,
    SandboxCreateVerificationError,
    SandboxError,
    SandboxUnavailableError,
)
from nemo_gym.sandbox.providers.base import ConnectableProvider, SupportsSandboxEndpoint
from nemo_gym.sandbox.providers.docker import DockerCreateConfig, DockerProvider
from nemo_gym.sandbox.providers.docker.command_line import run_argv
from tests.unit.sandbox.fakes import install_program, path_with

OK = SandboxExecResult("", "", 0)
HANDLE = SandboxHandle("box", "docker", None)


class Scripted(DockerProvider):
    """Answers command lines by their second word, and remembers them."""

    def __init__(self, answers: dict[str, Any] | None = None, **config: Any) -> None:
        super().__init__(**config)
        self.answers = answers or {}
        self.seen: list[list[str]] = []
        self.environments: list[dict[str, str]] = []

    async def _run(self, argv: list[str], *, timeout_s: Any, stdin: Any = None, env: Any = None) -> SandboxExecResult:
        self.seen.append(argv)
        self.environments.append(dict(env or {}))
        answer = self.answers.get(argv[1], OK)
        found: SandboxExecResult = answer(argv) if callable(answer) else answer
        return found

    def lines(self, word: str) -> list[str]:
        return [" ".join(argv) for argv in self.seen if argv[1] == word]


def run_line(spec: SandboxSpec, **config: Any) -> str:
    return " ".join(run_argv("box", spec, DockerCreateConfig(**config), {}))


def test_a_container_stays_until_it_is_removed() -> None:
    assert run_line(SandboxSpec(image="img")) == (
        "docker run --detach --name box --label=nemo-gym.sandbox=1 --init "
        "--entrypoint /bin/sh img -c while :; do sleep 2147483647; done"
    )


def test_a_container_with_a_ttl_ends_and_removes_itself() -> None:
    line = run_line(SandboxSpec(image="img", ttl_s=60))
    assert "--rm" in line
    assert line.endswith("--entrypoint /bin/sh img -c sleep 60")


def test_a_spec_s_entrypoint_replaces_the_keepalive() -> None:
    line = run_line(SandboxSpec(image="img", entrypoint=["serve", "-p", "1"], ttl_s=5))
    assert line.endswith("--entrypoint serve img -p 1")
    assert "--rm" not in line


def test_everything_of_a_spec_has_its_option() -> None:
    spec = SandboxSpec(
        image="img",
        workdir="/w",
        ports=[80],
        metadata={"team": "a"},
        resources={"cpu": 1.5, "memory_mib": 256, "gpu": 2},
        provider_options={"volumes": ["/a:/b:ro"], "run_args": ["--ipc=host"]},
    )
    line = run_line(spec, publish_host="0.0.0.0")
    for option in (
        "--workdir /w",
        "--publish=0.0.0.0::80",
        "--label=team=a",
        "--cpus=1.5",
        "--memory=256m --memory-swap=256m",
        "--gpus=2",
        "--volume=/a:/b:ro",
        "--ipc=host",
    ):
        assert option in line
    assert "--cpus" not in run_line(spec, apply_resource_limits=False)


def test_confinement_is_configured() -> None:
    line = run_line(
        SandboxSpec(image="img"),
        use_init=False,
        network="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        pids_limit=64,
        extra_run_args=["--userns=host"],
    )
    assert (
        "--network none --read-only --cap-drop=ALL --security-opt=no-new-privileges --pids-limit 64 --userns=host"
    ) in line
    assert "--init" not in line


def test_a_spec_needs_an_image_and_known_options() -> None:
    with pytest.raises(SandboxConfigError, match="image"):
        run_line(SandboxSpec())
    with pytest.raises(SandboxConfigError, match="gpus"):
        run_line(SandboxSpec(image="img", provider_options={"gpus": "all"}))


def test_unknown_config_is_named() -> None:
    with pytest.raises(ValueError, match=r"docker\.exec has no shell"):
        DockerProvider(exec={"shell": "zsh"})


async def test_create_labels_the_run_and_keeps_values_off_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_RUN_ID", "run7")
    provider = Scripted()
    handle = await provider.create(SandboxSpec(image="img", env={"TOKEN": "s3cr3t", "PATH": "/bin"}))
    (line,) = provider.lines("run")
    assert "--env=TOKEN --env=PATH=/bin" in line
    assert "s3cr3t" not in line
    assert "--label=nemo-gym.run=run7" in line
    assert f"--name {handle.sandbox_id}" in line


async def test_a_failed_start_says_why_without_secrets_and_cleans_up() -> None:
    provider = Scripted({"run": SandboxExecResult("", "bad value s3cr3t here", 125)})
    with pytest.raises(SandboxCreateError, match=r"bad value \*\*\*\* here"):
        await provider.create(SandboxSpec(image="img", env={"TOKEN": "s3cr3t"}))
    assert len(provider.lines("rm")) == 1


async def test_a_container_that_does_not_answer_is_removed() -> None:
    def answer(argv: list[str]) -> SandboxExecResult:
        return SandboxExecResult("wrong", "", 0) if "echo ready" in argv else OK

    provider = Scripted({"exec": answer}, probe={"command": "echo ready", "expected_stdout": "ready"})
    with pytest.raises(SandboxCreateVerificationError, match="'wrong'"):
        await provider.create(SandboxSpec(image="img"))
    assert len(provider.lines("rm")) == 1


async def test_a_probe_must_hold_several_times() -> None:
    provider = Scripted(probe={"command": "true", "stable_count": 3}, exec={"exec_shell": "sh"})
    await provider.create(SandboxSpec(image="img"))
    assert len(provider.lines("exec")) == 3


async def test_ttl_with_an_entrypoint_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await Scripted().create(SandboxSpec(image="img", ttl_s=1, entrypoint=["serve"]))
    assert "ignores ttl_s" in caplog.text


async def test_commands_run_in_bash_where_there_is_one() -> None:
    def with_bash(argv: list[str]) -> SandboxExecResult:
        return SandboxExecResult("/bin/bash\n", "", 0) if "command -v bash" in argv else OK

    for provider, shell in ((Scripted({"exec": with_bash}), "bash"), (Scripted(), "sh")):
        handle = await provider.create(SandboxSpec(image="img"))
        for _ in range(2):
            await provider.exec(handle, "ls", cwd="/w", env={"A": "1"}, user="root", stdin=b"in")
        looked, first, _second = provider.lines("exec")
        assert looked.endswith("sh -c command -v bash")
        assert first.startswith(
            "docker exec --interactive --workdir /w --user 0 --env=A --env=NEMO_GYM_SANDBOX_EXEC_ID"
        )
        assert first.endswith(f"{handle.sandbox_id} {shell} -c ls")
        assert provider.environments[-1]["A"] == "1"


async def test_a_timeout_ends_what_runs_inside() -> None:
    late = SandboxExecResult("", "", 125, "timeout")
    provider = Scripted({"exec": lambda argv: late if "sleep 9" in argv else OK}, exec={"exec_shell": "sh"})
    result = await provider.exec(HANDLE, "sleep 9", timeout_s=1)
    assert result.error_type == "timeout"
    exec_id = provider.environments[0]["NEMO_GYM_SANDBOX_EXEC_ID"]
    assert f"grep -qx 'NEMO_GYM_SANDBOX_EXEC_ID={exec_id}'" in provider.lines("exec")[-1]


@pytest.mark.parametrize(
    ("stderr", "code", "kind"),
    [
        ("Error response from daemon: No such container: box", 1, "sandbox"),
        ("Error response from daemon: container box is not running", 1, "sandbox"),
        ("grep: no such container", 1, None),
        ("", 1, None),
    ],
)
async def test_failures_of_docker_are_told_from_those_of_commands(stderr: str, code: int, kind: str | None) -> None:
    provider = Scripted({"exec": SandboxExecResult("", stderr, code)}, exec={"exec_shell": "sh"})
    result = await provider.exec(HANDLE, "ls")
    assert (result.error_type, result.return_code) == (kind, 125 if kind else code)


async def test_files_are_copied_below_folders_that_are_made(tmp_path: Path) -> None:
    provider = Scripted()
    await provider.upload_file(HANDLE, Path("/src"), "/a/b/c")
    await provider.download_file(HANDLE, "/a/b/c", tmp_path / "new" / "c")
    assert provider.lines("exec") == ["docker exec --user 0 box mkdir -p /a/b"]
    assert provider.lines("cp") == ["docker cp /src box:/a/b/c", f"docker cp box:/a/b/c {tmp_path}/new/c"]
    provider.answers["cp"] = SandboxExecResult("", "no space", 1)
    with pytest.raises(SandboxError, match="no space"):
        await provider.upload_file(HANDLE, Path("/src"), "c")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (SandboxExecResult("running\n", "", 0), SandboxStatus.RUNNING),
        (SandboxExecResult("exited\n", "", 0), SandboxStatus.STOPPED),
        (SandboxExecResult("", "Error: No such object: box", 1), SandboxStatus.STOPPED),
        (SandboxExecResult("", "Cannot connect to the Docker daemon", 1), SandboxStatus.UNKNOWN),
    ],
)
async def test_status_is_the_daemons(answer: SandboxExecResult, status: SandboxStatus) -> None:
    assert await Scripted({"inspect": answer}).status(HANDLE) is status


async def test_only_a_running_container_is_connected_to() -> None:
    running = Scripted({"inspect": SandboxExecResult("running", "", 0)})
    descriptor = await running.serialize_handle(HANDLE)
    assert (await running.connect(descriptor)).sandbox_id == "box"
    with pytest.raises(SandboxError, match="it is paused"):
        await Scripted({"inspect": SandboxExecResult("paused", "", 0)}).connect(descriptor)


async def test_an_endpoint_is_where_docker_published_it() -> None:
    provider = Scripted({"port": SandboxExecResult("127.0.0.1:49153\n", "", 0)})
    assert (await provider.endpoint(HANDLE, 80)).endpoint == "http://127.0.0.1:49153"
    assert provider.lines("port") == ["docker port box 80/tcp"]


async def test_close_removes_the_container_once() -> None:
    provider = Scripted({"rm": SandboxExecResult("", "Error: No such container: box", 1)})
    await provider.close(HANDLE)
    provider.answers["rm"] = SandboxExecResult("", "device busy", 1)
    with pytest.raises(SandboxError, match="device busy"):
        await provider.close(HANDLE)


def test_it_has_endpoints_and_can_be_connected_to() -> None:
    assert isinstance(DockerProvider(), SupportsSandboxEndpoint)
    assert isinstance(DockerProvider(), ConnectableProvider)


async def test_without_the_program_it_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailableError, match="install Docker"):
        await DockerProvider().create(SandboxSpec(image="img"))


async def test_the_program_gets_values_input_and_its_output_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_program(tmp_path, "docker", 'echo "$1 $TOKEN $(cat)"; echo warn >&2; exit 4')
    monkeypatch.setenv("PATH", path_with(tmp_path))
    provider = DockerProvider(exec={"exec_shell": "sh"})
    result = await provider.exec(HANDLE, "true", env={"TOKEN": "t"}, stdin=b"in")
    assert result == SandboxExecResult("exec t in\n", "warn\n", 4)
