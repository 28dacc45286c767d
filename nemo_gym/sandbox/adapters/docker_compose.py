"""The services of a Compose file as sandboxes that know each other by name."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nemo_gym.sandbox.adapters.compose_file import Service, UnsupportedComposeField, read_compose_file
from nemo_gym.sandbox.api import AsyncSandbox
from nemo_gym.sandbox.errors import SandboxConfigError, SandboxError
from nemo_gym.sandbox.providers.base import SandboxProvider, SandboxSpec, SupportsSandboxNetwork
from nemo_gym.sandbox.providers.registry import create_provider

_FILES = "/tmp/nemo-gym-service"


class AsyncSandboxCompose:
    """One sandbox for each service of a Compose file, all of one provider, which must let them reach each other.

    `service_specs` gives a service what a Compose file can't say. Entering the context starts, leaving it stops.
    """

    def __init__(
        self,
        provider: Mapping[str, Any] | SandboxProvider,
        compose_file: str | Path | None,
        *,
        service_specs: Mapping[str, SandboxSpec] | None = None,
        timeout_s: float = 1200,
        poll_interval_s: float = 0.5,
        volume_init_image: str = "alpine:3.22",
        volume_sources: Mapping[str, str] | None = None,
    ) -> None:
        self.provider: SandboxProvider = create_provider(provider) if isinstance(provider, Mapping) else provider
        self.sandboxes: dict[str, AsyncSandbox] = {}
        self._compose_file = Path(compose_file) if compose_file is not None else None
        self._specs = dict(service_specs or {})
        self._timeout_s = timeout_s
        self._poll_interval_s = poll_interval_s
        self._volume_init_image = volume_init_image
        self._volume_sources = dict(volume_sources or {})
        self._services: dict[str, Service] = {}

    async def start(self) -> AsyncSandboxCompose:
        """Start the services in the order of their dependencies; a failure stops those that were started.

        Raises SandboxConfigError for a file that can't be followed, NotImplementedError for a provider without
        network between sandboxes, both before anything is created; TimeoutError for a condition that is never met.
        """
        self._load()
        network = self._validate()
        await self._prepare()
        try:
            for service in self._services.values():
                for name, condition in service.depends_on.items():
                    await self._wait(name, condition)
                await self._start_service(service, network)
        except BaseException:
            await self._stop()
            raise
        return self

    async def serialize(self, *, scope: str | None = None) -> dict[str, Any]:
        """Descriptors of all services, for `connect`."""
        items = self.sandboxes.items()
        return {"services": {name: await sandbox.serialize(scope=scope) for name, sandbox in items}}

    @classmethod
    async def connect(cls, descriptor: Mapping[str, Any], *, provider: SandboxProvider) -> AsyncSandboxCompose:
        """The services that another process has started."""
        compose = cls(provider, None)
        for name, service in descriptor["services"].items():
            sandbox = await AsyncSandbox.connect(service, provider=compose.provider, owns_provider=False)
            compose.sandboxes[name] = sandbox
        return compose

    async def stop(self) -> None:
        """Stop all services, the last started first, and release the provider. Raises ExceptionGroup of what failed."""
        await self._stop()
        await self.provider.aclose()

    async def __aenter__(self) -> AsyncSandboxCompose:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _load(self) -> None:
        if self._compose_file is None:
            raise SandboxConfigError("There is no Compose file to start services from.")
        self._services = {service.name: service for service in read_compose_file(self._compose_file)}

    def _validate(self) -> SupportsSandboxNetwork:
        if unknown := sorted(set(self._specs) - set(self._services)):
            raise SandboxConfigError(f"service_specs names {', '.join(unknown)}, which {self._compose_file} has not.")
        if not isinstance(self.provider, SupportsSandboxNetwork):
            raise NotImplementedError(
                f"sandboxes of the provider {self.provider.name!r} can't reach each other, as a Compose file needs"
            )
        self.provider.validate_networking()
        return self.provider

    async def _prepare(self) -> None:
        await self._prepare_volumes()

    async def _prepare_volumes(self) -> None:
        if self._volume_sources:
            raise UnsupportedComposeField("Volumes of a Compose file can't be followed by these sandboxes.")

    async def _start_service(self, service: Service, network: SupportsSandboxNetwork) -> None:
        base = self._specs.get(service.name, SandboxSpec())
        spec = replace(
            base,
            image=service.image,
            env={**service.env, **base.env},
            workdir=service.workdir or base.workdir,
            ports=tuple(dict.fromkeys((*service.ports, *base.ports))),
            resources=service.resources or base.resources,
        )
        sandbox = AsyncSandbox(self.provider, spec, owns_provider=False)
        await sandbox.start()
        self.sandboxes[service.name] = sandbox
        await self._introduce(network)
        script = f"({service.command}\n) > {_FILES}.log 2>&1; echo $? > {_FILES}.part; mv {_FILES}.part {_FILES}.code"
        started = await sandbox.exec(
            f"nohup sh -c {shlex.quote(script)} > /dev/null 2>&1 &", preserve_background_services=True
        )
        if started.return_code != 0:
            raise SandboxError(f"The service `{service.name}` did not start: {started.stderr}")

    async def _introduce(self, network: SupportsSandboxNetwork) -> None:
        """Tell every sandbox the addresses of all that are there."""
        hosts: dict[str, str] = {}
        for name, sandbox in self.sandboxes.items():
            address = await network.network_address(sandbox._require_handle())
            hosts.update(dict.fromkeys((name, *self._services[name].aliases), address))
        for name, sandbox in self.sandboxes.items():
            if self._services[name].gets_hosts:
                await network.set_hosts(sandbox._require_handle(), hosts)

    async def _wait(self, name: str, condition: str) -> None:
        if condition == "service_started":
            return
        deadline = time.monotonic() + self._timeout_s
        is_met = self._is_healthy if condition == "service_healthy" else self._is_completed
        while not await is_met(name):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the service {name!r} was not {condition} within {self._timeout_s:g} s")
            await asyncio.sleep(self._poll_interval_s)

    async def _is_healthy(self, name: str) -> bool:
        check = self._services[name].healthcheck
        if check is None:
            raise SandboxConfigError(f"The service `{name}` has no healthcheck, so it can't become healthy.")
        return (await self.sandboxes[name].exec(check.command)).return_code == 0

    async def _is_completed(self, name: str) -> bool:
        code = (await self.sandboxes[name].exec(f"cat {_FILES}.code 2>/dev/null")).stdout or ""
        if code.strip() not in ("", "0"):
            raise SandboxError(f"The service `{name}` ended with {code.strip()}.")
        return code.strip() == "0"

    async def _stop(self) -> None:
        errors: list[Exception] = []
        for name in reversed(list(self.sandboxes)):
            try:
                await self.sandboxes[name].stop()
                del self.sandboxes[name]
            except Exception as error:
                errors.append(error)
        if errors:
            raise ExceptionGroup("services could not be stopped", errors)
