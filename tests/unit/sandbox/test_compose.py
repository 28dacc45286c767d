"""Services of a Compose file as sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.errors import GymError
from nemo_gym.sandbox import AsyncSandboxCompose, SandboxExecResult, SandboxHandle, SandboxSpec
from nemo_gym.sandbox.adapters.compose_file import read_compose_file
from tests.unit.sandbox.fakes import FakeProvider

FILE = """
services:
  web:
    image: web
    command: serve --db db
    environment: {PORT: 80}
    depends_on: {db: {condition: service_healthy}, init: {condition: service_completed_successfully}}
    expose: ["80"]
  init: {image: init, command: [load, "a b"]}
  db:
    image: db
    command: run
    hostname: database
    cpus: 1.5
    mem_limit: 1g
    healthcheck: {test: [CMD, ready], interval: 5s}
"""


class Networked(FakeProvider):
    def __init__(self) -> None:
        super().__init__()
        self.specs: list[SandboxSpec] = []
        self.hosts: dict[str, dict[str, str]] = {}
        self.answers: dict[str, SandboxExecResult] = {}

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        self.specs.append(spec)
        self._note("create", spec.image)
        return SandboxHandle(f"id-{spec.image}", self.name, None)

    async def exec(self, handle: SandboxHandle, command: str, **options: Any) -> SandboxExecResult:
        self._note("exec", handle.sandbox_id, command)
        return next((answer for part, answer in self.answers.items() if part in command), SandboxExecResult("0", "", 0))

    def validate_networking(self) -> None:
        self._note("validate_networking")

    async def network_address(self, handle: SandboxHandle) -> str:
        return f"ip-{handle.sandbox_id}"

    async def set_hosts(self, handle: SandboxHandle, hosts: Mapping[str, str]) -> None:
        self.hosts[handle.sandbox_id] = dict(hosts)

    def of(self, what: str) -> list[Any]:
        return [call[1] for call in self.calls if call[0] == what]


@pytest.fixture
def compose_file(tmp_path: Path) -> Path:
    path = tmp_path / "compose.yaml"
    path.write_text(FILE)
    return path


async def test_services_start_after_what_they_depend_on_and_know_each_other(compose_file: Path) -> None:
    provider = Networked()
    async with AsyncSandboxCompose(provider, compose_file, service_specs={"web": SandboxSpec(workdir="/w")}):
        started = provider.of("create")
        assert started[-1] == "web"
        assert provider.hosts["id-web"] == {
            "db": "ip-id-db",
            "database": "ip-id-db",
            "init": "ip-id-init",
            "web": "ip-id-web",
        }
        web, db = provider.specs[-1], next(spec for spec in provider.specs if spec.image == "db")
        assert (web.env, web.ports, web.workdir) == ({"PORT": "80"}, (80,), "/w")
        assert (db.limits.cpu, db.limits.memory_mib) == (1.5, 1024)
    assert provider.of("close") == [f"id-{name}" for name in reversed(started)]
    assert provider.calls[-1] == ("aclose",)


async def test_a_failure_stops_what_was_started(compose_file: Path) -> None:
    provider = Networked()
    provider.answers["cat /tmp"] = SandboxExecResult("3\n", "", 0)
    with pytest.raises(GymError, match="`init` ended with 3"):
        await AsyncSandboxCompose(provider, compose_file).start()
    assert sorted(provider.of("close")) == ["id-db", "id-init"]


async def test_waiting_has_an_end(compose_file: Path) -> None:
    provider = Networked()
    provider.answers["ready"] = SandboxExecResult("", "", 1)
    with pytest.raises(TimeoutError, match="'db' was not service_healthy"):
        await AsyncSandboxCompose(provider, compose_file, timeout_s=0.05, poll_interval_s=0.01).start()


async def test_a_provider_without_network_is_refused_before_anything_starts(compose_file: Path) -> None:
    provider = FakeProvider()
    with pytest.raises(NotImplementedError, match="can't reach each other"):
        await AsyncSandboxCompose(provider, compose_file).start()
    assert provider.calls == []


async def test_services_are_handed_on(compose_file: Path) -> None:
    compose = await AsyncSandboxCompose(Networked(), compose_file).start()
    descriptor = await compose.serialize()
    assert set(descriptor["services"]) == {"web", "db", "init"}
    other = await AsyncSandboxCompose.connect(descriptor, provider=Networked())
    assert (await other.sandboxes["db"].exec("x")).stdout == "0"


async def test_what_can_not_be_stopped_is_reported_together(compose_file: Path) -> None:
    provider = Networked()
    compose = await AsyncSandboxCompose(provider, compose_file).start()
    provider.broken.add("close")
    with pytest.raises(ExceptionGroup) as caught:
        await compose.stop()
    assert len(caught.value.exceptions) == 3
    provider.broken.clear()
    await compose.stop()
    assert compose.sandboxes == {}


@pytest.mark.parametrize(
    ("text", "message", "is_unsupported"),
    [
        ("services: {a: {image: i, command: c, build: .}}", "`a` has build", True),
        ("services: {a: {image: i, command: c, ports: [80]}}", "`a` has ports", True),
        ("services: {a: {image: i, command: c}}\nnetworks: {n: {}}", "networks", True),
        ("services: {a: {image: i, command: c}}\nvolumes: {v: {}}", "volumes", True),
        ("services: {a: {image: i}}", "`a` has no command", False),
        ("services: {a: {image: i, command: c, environment: [A=1]}}", "environment", False),
        ("services: {a: {image: i, command: c, depends_on: {b: {}}}}", "depends on b", False),
        ("services: {a: {image: i, command: c, depends_on: {a: {}}}}", "depend on each other", False),
        ("services: {a: {image: i, command: c, mem_limit: lots}}", "'lots' is no size", False),
        ("services: [", "can't be read", False),
        ("{}", "no services", False),
    ],
)
def test_what_can_not_be_followed_is_named(tmp_path: Path, text: str, message: str, is_unsupported: bool) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_compose_file(path)
    assert isinstance(caught.value, NotImplementedError) is is_unsupported
