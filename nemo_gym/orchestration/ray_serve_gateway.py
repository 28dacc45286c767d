"""Several `vllm serve` behind one port, by Ray Serve. Run on a cluster's nodes by itself, without Gym installed there.

`python ray_serve_gateway.py --model M --port P --number-of-instances N …`
"""

import argparse
import asyncio
import contextlib
import shlex
import signal
import socket
from collections.abc import AsyncIterator, Iterable
from typing import Any

HEALTH_POLL_SECONDS = 5.0
HEALTH_TIMEOUT_SECONDS = 900.0
DEPLOYMENT = "gym-vllm"
_HOP_BY_HOP = frozenset(
    [
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__)
    result.add_argument("--model", required=True)
    result.add_argument("--port", type=int, required=True)
    result.add_argument("--tensor-parallel-size", type=int, default=1)
    result.add_argument("--pipeline-parallel-size", type=int, default=1)
    result.add_argument("--number-of-instances", type=int, default=1)
    result.add_argument("--gpus-per-node", type=int, default=0, help="0: not known")
    result.add_argument("--trust-remote-code", action="store_true")
    result.add_argument("--served-model-name")
    result.add_argument("--extra-args", default="")
    return result


def replica_command(settings: argparse.Namespace, port: int) -> list[str]:
    """What one replica runs. Its tensor and pipeline parallel parts may lie on other nodes of the Ray cluster."""
    words = ["vllm", "serve", settings.model, "--port", str(port)]
    words += ["--tensor-parallel-size", str(settings.tensor_parallel_size)]
    if settings.pipeline_parallel_size > 1:
        words += ["--pipeline-parallel-size", str(settings.pipeline_parallel_size)]
    words += ["--distributed-executor-backend", "ray"]
    if settings.served_model_name:
        words += ["--served-model-name", settings.served_model_name]
    if settings.trust_remote_code:
        words += ["--trust-remote-code"]
    return words + shlex.split(settings.extra_args)


def replicas_per_node(settings: argparse.Namespace) -> int:
    """How many replicas may stand on one node; at least 1."""
    needed: int = settings.tensor_parallel_size * settings.pipeline_parallel_size
    available: int = settings.gpus_per_node
    return max(1, available // needed)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def passed_on(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """The headers that are meant for the other end, not for this hop."""
    named = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
    return [(name, value) for name, value in named if name.lower() not in _HOP_BY_HOP]


class Replica:
    """One server, and an ASGI app that passes requests on to it as they come: bodies and answers are streamed."""

    def __init__(self, command: list[str], port: int) -> None:
        self._command = command
        self._url = f"http://127.0.0.1:{port}"
        self._process: asyncio.subprocess.Process | None = None
        self._session: Any = None

    async def start(self, timeout: float = HEALTH_TIMEOUT_SECONDS, poll: float = HEALTH_POLL_SECONDS) -> None:
        """Start the server and wait until it is healthy. Raises RuntimeError where it ends or takes too long."""
        import aiohttp

        # A connection for each request, as many as come: one kept alive may be closed by the server when it is used.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
            auto_decompress=False,
        )
        self._process = await asyncio.create_subprocess_exec(*self._command)
        deadline = asyncio.get_running_loop().time() + timeout
        while not await self.is_healthy():
            if self._process.returncode is not None:
                raise RuntimeError(f"{self._command[0]} ended with exit code {self._process.returncode}.")
            if asyncio.get_running_loop().time() > deadline:
                await self.stop()
                raise RuntimeError(f"{self._command[0]} was not healthy within {timeout:g} s.")
            await asyncio.sleep(poll)

    async def is_healthy(self) -> bool:
        import aiohttp

        if self._process is None or self._process.returncode is not None:
            return False
        try:
            async with self._session.get(f"{self._url}/health", timeout=aiohttp.ClientTimeout(total=5)) as answer:
                return bool(answer.status == 200)
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def stop(self) -> None:
        """End the server; it has ten seconds to do it itself."""
        if self._session is not None:
            await self._session.close()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] not in ("GET", "POST"):
            await _answer(send, 405, b"only GET and POST are passed on")
            return
        await self._pass_on(scope, receive, send)

    async def _pass_on(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        import aiohttp

        path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
        query = scope["query_string"].decode("latin-1")
        begun = False
        try:
            async with self._session.request(
                scope["method"],
                _exact_url(f"{self._url}{path}{f'?{query}' if query else ''}"),
                headers=passed_on(scope["headers"]),
                data=_body(receive) if scope["method"] == "POST" else None,
                allow_redirects=False,
            ) as answer:
                headers = passed_on(answer.raw_headers)
                begun = True
                await send(
                    {
                        "type": "http.response.start",
                        "status": answer.status,
                        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
                    }
                )
                async for chunk in answer.content.iter_any():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except aiohttp.ClientError as error:
            if begun:
                raise
            await _answer(send, 502, f"the model server does not answer: {error}".encode())


def _exact_url(text: str) -> Any:
    from yarl import URL

    return URL(text, encoded=True)


async def _body(receive: Any) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def _answer(send: Any, status: int, text: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": text})


def application(settings: argparse.Namespace) -> Any:
    """The Ray Serve application: N replicas, each with a server of its own."""
    from ray import serve

    class Deployment:
        def __init__(self) -> None:
            port = free_port()
            self._replica = Replica(replica_command(settings, port), port)
            self._start: asyncio.Task[None] | None = None

        async def _started(self) -> Replica:
            if self._start is None:
                self._start = asyncio.create_task(self._replica.start())
            await asyncio.shield(self._start)
            return self._replica

        async def check_health(self) -> None:
            if not await (await self._started()).is_healthy():
                raise RuntimeError("the model server is not healthy")

        async def __call__(self, request: Any) -> Any:
            return await _streamed(await self._started(), request)

        async def __del__(self) -> None:
            await self._replica.stop()

    deployment = serve.deployment(
        name=DEPLOYMENT,
        num_replicas=settings.number_of_instances,
        max_replicas_per_node=replicas_per_node(settings),
        max_ongoing_requests=65536,
        health_check_period_s=HEALTH_POLL_SECONDS,
        health_check_timeout_s=HEALTH_TIMEOUT_SECONDS,
    )(Deployment)
    return deployment.bind()


async def _streamed(replica: Replica, request: Any) -> Any:
    """What the replica answers to a Starlette request, as a Starlette response whose body comes as it is made."""
    from starlette.responses import StreamingResponse

    messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(maxsize=16)

    async def ask() -> None:
        try:
            await replica(request.scope, request.receive, messages.put)
        finally:
            await messages.put(None)

    task = asyncio.create_task(ask())
    start = await messages.get()
    if start is None:
        await task
        raise RuntimeError("the model server answered nothing")

    async def body() -> AsyncIterator[bytes]:
        try:
            while (message := await messages.get()) is not None:
                yield message.get("body", b"")
            await task
        finally:
            task.cancel()

    response = StreamingResponse(body(), status_code=start["status"])
    response.raw_headers = list(start["headers"])
    return response


def main() -> None:
    """Serve until ended. `/health` of the port is the replicas' own, so it answers when one is ready."""
    settings = parser().parse_args()
    import ray
    from ray import serve

    with contextlib.suppress(ConnectionError):
        ray.init(address="auto", ignore_reinit_error=True)
    if not ray.is_initialized():
        ray.init()
    serve.start(http_options={"host": "0.0.0.0", "port": settings.port})
    serve.run(application(settings), route_prefix="/", blocking=True)


if __name__ == "__main__":
    main()
