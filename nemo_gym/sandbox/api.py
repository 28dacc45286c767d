"""One sandbox: started from a spec, used, and stopped; asynchronous, and blocking on top of it."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from nemo_gym.sandbox.loop_thread import LoopThread
from nemo_gym.sandbox.providers.base import (
    ConnectableProvider,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxProvider,
    SandboxSpec,
    SandboxStatus,
    SupportsSandboxBackgroundServices,
    SupportsSandboxEndpoint,
    SupportsSandboxPauseResume,
)
from nemo_gym.sandbox.providers.registry import create_provider
from nemo_gym.sandbox.pty import SandboxPty
from nemo_gym.telemetry import managed_span

BLOCKING_TIMEOUT_S = 3600.0

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class AsyncSandbox:
    """A sandbox of a provider, given as such or as `{name: options}`.

    As a context manager it stops at the end; it is not started at the beginning. `owns_provider`: stopping releases
    the provider too.
    """

    def __init__(
        self,
        provider: Mapping[str, Any] | SandboxProvider,
        spec: SandboxSpec | None = None,
        *,
        owns_provider: bool = True,
    ) -> None:
        self.provider: SandboxProvider = create_provider(provider) if isinstance(provider, Mapping) else provider
        self._spec = spec
        self._owns_provider = owns_provider
        self._handle: SandboxHandle | None = None
        self._is_connected = False
        self._is_closed = False

    @property
    def workdir(self) -> str | None:
        """Where commands run unless they say otherwise."""
        return self._spec.workdir if self._spec else None

    @property
    def pty(self) -> SandboxPty:
        """Its terminals."""
        return SandboxPty(self)

    async def start(self, spec: SandboxSpec | None = None) -> AsyncSandbox:
        """Create the sandbox and put its files in; what fails after the creation stops it again.

        Raises RuntimeError when it is closed or started, ValueError without a spec, SandboxCreateError.
        """
        if self._is_closed:
            raise RuntimeError("this sandbox is closed: make a new one")
        if self._handle is not None:
            raise RuntimeError("this sandbox is started already")
        wanted = spec or self._spec
        if wanted is None:
            raise ValueError("a sandbox needs a spec, at construction or at start")
        with self._span("start"):
            self._handle, self._spec = await self.provider.create(wanted), wanted
            async with self._stopped_on_failure():
                await self._put_files(wanted.files)
        return self

    async def start_with_setup(
        self, spec: SandboxSpec | None, setup: Callable[[AsyncSandbox], Awaitable[None]]
    ) -> AsyncSandbox:
        """`start`, then `setup`, which stops the sandbox when it fails."""
        await self.start(spec)
        async with self._stopped_on_failure():
            await setup(self)
        return self

    async def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: int | float | None = 180,
        user: str | int | None = None,
        preserve_background_services: bool = False,
    ) -> SandboxExecResult:
        """Run a shell command, in the spec's workdir unless `cwd` says otherwise.

        A command that ran gives its code, whatever it is; `error_type` tells one that didn't. Providers of remote
        sandboxes may raise TimeoutError instead. Raises RuntimeError before start and after stop.
        """
        with self._span("exec"):
            return await self._exec_uninstrumented(
                command,
                cwd=cwd,
                env=env,
                timeout_s=timeout_s,
                user=user,
                preserve_background_services=preserve_background_services,
            )

    async def upload(self, local_path: Path | str, remote_path: str) -> None:
        """Copy a file in."""
        await self.provider.upload_file(self._require_handle(), Path(local_path), remote_path)

    async def download(self, remote_path: str, local_path: Path | str) -> None:
        """Copy a file out."""
        await self.provider.download_file(self._require_handle(), remote_path, Path(local_path))

    async def status(self) -> SandboxStatus:
        """Where it is in its life: unknown before start, stopped after stop."""
        if self._is_closed:
            return SandboxStatus.STOPPED
        if self._handle is None:
            return SandboxStatus.UNKNOWN
        return await self.provider.status(self._handle)

    async def endpoint(self, port: int) -> SandboxEndpoint:
        """Where a port of the spec is reached. Raises ValueError for another port, NotImplementedError."""
        handle = self._require_handle()
        declared = self._spec.ports if self._spec else ()
        if port not in declared:
            raise ValueError(f"port {port} is not among the ports of the sandbox's spec: {list(declared)}")
        if not isinstance(self.provider, SupportsSandboxEndpoint):
            raise NotImplementedError(f"the sandbox provider {self.provider.name!r} has no endpoints")
        return await self.provider.endpoint(handle, port)

    async def pause(self) -> None:
        """Freeze it. Raises NotImplementedError when the provider can't."""
        await self._pausing().pause(self._require_handle())

    async def resume(self) -> None:
        """Thaw it. Raises NotImplementedError when the provider can't."""
        await self._pausing().resume(self._require_handle())

    async def stop(self) -> None:
        """End it, and release its provider if that is owned. Stopping twice is fine, and so is after a failed stop."""
        if self._is_closed:
            return
        with self._span("stop"):
            if self._handle is not None:
                await self.provider.close(self._handle)
                self._handle = None
            if self._owns_provider:
                await self.provider.aclose()
        self._is_closed = True

    async def disconnect(self) -> None:
        """Leave a connected sandbox running. Raises RuntimeError for one that was started here."""
        if not self._is_connected:
            raise RuntimeError("only a connected sandbox can be left running: stop this one")
        if self._is_closed:
            return
        if self._owns_provider:
            await self.provider.aclose()
        self._handle, self._is_closed = None, True

    async def serialize(self, *, scope: str | None = None) -> dict[str, Any]:
        """A JSON descriptor for `connect`. Raises NotImplementedError when the provider can't."""
        handle = self._require_handle()
        if not isinstance(self.provider, ConnectableProvider):
            raise NotImplementedError(f"sandboxes of the provider {self.provider.name!r} can't be handed on")
        descriptor = await self.provider.serialize_handle(handle, scope=scope)
        ports = list(self._spec.ports) if self._spec else []
        return {**descriptor, "workdir": self.workdir, "ports": ports}

    @classmethod
    async def connect(
        cls,
        descriptor: Mapping[str, Any] | Any,
        *,
        provider: SandboxProvider,
        owns_provider: bool = True,
    ) -> AsyncSandbox:
        """A sandbox started elsewhere, from its descriptor. Raises NotImplementedError when the provider can't."""
        sandbox = cls(provider, owns_provider=owns_provider)
        if not hasattr(sandbox.provider, "connect"):
            raise NotImplementedError(f"the sandbox provider {sandbox.provider.name!r} can't connect to sandboxes")
        known: Mapping[str, Any] = descriptor if isinstance(descriptor, Mapping) else {}
        sandbox._spec = SandboxSpec(workdir=known.get("workdir"), ports=known.get("ports") or ())
        try:
            sandbox._handle = await sandbox.provider.connect(descriptor)
        except BaseException:
            await sandbox.stop()
            raise
        sandbox._is_connected = True
        return sandbox

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        await self.stop()

    async def _exec_uninstrumented(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: int | float | None = 180,
        user: str | int | None = None,
        preserve_background_services: bool = False,
    ) -> SandboxExecResult:
        handle = self._require_handle()
        run = self.provider.exec
        if preserve_background_services and isinstance(self.provider, SupportsSandboxBackgroundServices):
            run = self.provider.exec_with_background_services
        return await run(handle, command, cwd=cwd or self.workdir, env=env, timeout_s=timeout_s, user=user)

    def _require_handle(self) -> SandboxHandle:
        if self._handle is None:
            raise RuntimeError(f"this sandbox is {'closed' if self._is_closed else 'not started'}")
        return self._handle

    def _telemetry_provider_name(self) -> str:
        return str(getattr(self.provider, "name", type(self.provider).__name__))

    def _span(self, what: str) -> AbstractContextManager[Any]:
        attributes = {"nemo.gym.sandbox.provider": self._telemetry_provider_name()}
        return managed_span("sandbox", f"gym.sandbox.{what}", **attributes)

    def _pausing(self) -> SupportsSandboxPauseResume:
        if not isinstance(self.provider, SupportsSandboxPauseResume):
            raise NotImplementedError(f"the sandbox provider {self.provider.name!r} can't pause")
        return self.provider

    async def _put_files(self, files: Mapping[str, str]) -> None:
        if not files:
            return
        with tempfile.TemporaryDirectory(prefix="nemo-gym-files-") as folder:
            source = Path(folder) / "file"
            for path, text in files.items():
                source.write_text(text, encoding="utf-8")
                await self.upload(source, path)

    @contextlib.asynccontextmanager
    async def _stopped_on_failure(self) -> Any:
        try:
            yield
        except BaseException:
            try:
                await self.stop()
            except Exception as error:
                _log.warning("A sandbox that failed to start could not be stopped: %s", error)
            raise


class Sandbox:
    """`AsyncSandbox` for code without an event loop; every call waits for at most an hour.

    Raises RuntimeError when called from a running event loop.
    """

    def __init__(self, provider: Mapping[str, Any] | SandboxProvider, spec: SandboxSpec | None = None) -> None:
        self._thread = LoopThread()
        self._sandbox = AsyncSandbox(provider, spec)

    def start(self, spec: SandboxSpec | None = None) -> Sandbox:
        self._run(lambda: self._sandbox.start(spec))
        return self

    def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: int | float | None = 180,
        user: str | int | None = None,
        preserve_background_services: bool = False,
    ) -> SandboxExecResult:
        return self._run(
            lambda: self._sandbox.exec(
                command,
                cwd=cwd,
                env=env,
                timeout_s=timeout_s,
                user=user,
                preserve_background_services=preserve_background_services,
            )
        )

    def upload(self, local_path: Path | str, remote_path: str) -> None:
        self._run(lambda: self._sandbox.upload(local_path, remote_path))

    def download(self, remote_path: str, local_path: Path | str) -> None:
        self._run(lambda: self._sandbox.download(remote_path, local_path))

    def status(self) -> SandboxStatus:
        return self._run(self._sandbox.status)

    def endpoint(self, port: int) -> SandboxEndpoint:
        return self._run(lambda: self._sandbox.endpoint(port))

    def pause(self) -> None:
        self._run(self._sandbox.pause)

    def resume(self) -> None:
        self._run(self._sandbox.resume)

    def stop(self) -> None:
        """End it and the thread it was served by."""
        self._run(self._sandbox.stop)
        self._thread.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        self.stop()

    def __del__(self) -> None:
        if "_sandbox" in vars(self) and self._sandbox._handle is not None:
            with contextlib.suppress(Exception):
                self.stop()

    def _run(self, start: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        result = self._thread.run(start, BLOCKING_TIMEOUT_S)
        if self._sandbox._is_closed:
            self._thread.close()
        return result
