"""The servers of an environment in this process, with scripted models in place of real ones."""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib
import importlib.util
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from fastapi.exceptions import RequestValidationError
from omegaconf import DictConfig, OmegaConf
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.audit.errors import AuditError
from nemo_gym.audit.models import ModelApp
from nemo_gym.config.entries import implementation_blocks
from nemo_gym.config.instances import BaseServerConfig, ServerInstance, server_instances
from nemo_gym.config.keys import (
    HEAD_SERVER_KEY_NAME,
    LEGACY_AGENT,
    POLICY_MODEL_KEY_NAME,
    RESOURCES_SERVERS,
    RESPONSES_API_AGENTS,
    RESPONSES_API_MODELS,
)
from nemo_gym.config.roots import server_directory
from nemo_gym.serve import local
from nemo_gym.serve.process import validated_block
from nemo_gym.serve.validation_log import log_and_answer_422

JUDGE = "audit_judge"
"""The model that resources servers ask, whichever their config names."""


@dataclass
class Stage:
    """`served` counts the requests of each path that a resources server got; `apps` are the environment's, by name."""

    config: DictConfig
    policy: ModelApp
    judge: ModelApp
    served: dict[str, int] = field(default_factory=dict)
    apps: dict[str, Any] = field(default_factory=dict)
    _servers: dict[str, local.LocalServer] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Have all servers of the config answer calls from this process. Raises AuditError where one can't be made."""
        async with contextlib.AsyncExitStack() as stack:
            self._register(POLICY_MODEL_KEY_NAME, self.policy)
            for name, _, _ in implementation_blocks(_plain(self.config), RESPONSES_API_MODELS):
                if name != POLICY_MODEL_KEY_NAME:
                    self._register(name, self.judge)
            for instance in server_instances(self.config):
                if instance.server_type != RESPONSES_API_MODELS and instance.implementation != LEGACY_AGENT:
                    app = self.apps[instance.name] = _app_of(instance, self.config)
                    state = await stack.enter_async_context(_lifespan(app))
                    counted = self._counted(app) if instance.server_type == RESOURCES_SERVERS else app
                    self._register(instance.name, counted, state)
            try:
                yield
            finally:
                for server in self._servers.values():
                    local.unregister(server)

    async def post(self, server: str, path: str, body: Any) -> Any:
        """What a server answers: an HTTP response."""
        return await self._servers[server].request("POST", path, json=body)

    def _register(self, name: str, app: ASGIApp, state: dict[str, Any] | None = None) -> None:
        block = next(block for known, _, block in implementation_blocks(_plain(self.config)) if known == name)
        self._servers[name] = local.register(name, f"http://{block['host']}:{block['port']}", app, state=state)

    def _counted(self, app: ASGIApp) -> ASGIApp:
        async def counting(scope: Scope, receive: Receive, send: Send) -> None:
            self.served[scope["path"]] = self.served.get(scope["path"], 0) + 1
            await app(scope, receive, send)

        return counting


def staged(config: DictConfig) -> DictConfig:
    """The config with an address for every server, and the scripted models as all its models."""
    entries = copy.deepcopy(_plain(config))
    entries[POLICY_MODEL_KEY_NAME] = {RESPONSES_API_MODELS: {"audit": {"entrypoint": "app.py"}}}
    entries[JUDGE] = {RESPONSES_API_MODELS: {"audit": {"entrypoint": "app.py"}}}
    for port, (_, _, block) in enumerate(implementation_blocks(entries), 1):
        block |= {"host": "127.0.0.1", "port": port, "num_workers": None}
    for _, _, block in implementation_blocks(entries, RESOURCES_SERVERS):
        _ask_the_judge(block)
    return OmegaConf.create(entries)


def _ask_the_judge(value: Any) -> None:
    """Have every reference to a model server mean the judge."""
    if isinstance(value, dict) and value.get("type") == RESPONSES_API_MODELS and "name" in value:
        value["name"] = JUDGE
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _ask_the_judge(item)


def _plain(config: DictConfig) -> dict[str, Any]:
    entries = OmegaConf.to_container(config, resolve=False)
    assert isinstance(entries, dict)
    return {str(key): value for key, value in entries.items()}


def _app_of(instance: ServerInstance, config: DictConfig) -> Any:
    directory = server_directory(instance.server_type, instance.implementation)
    kind = served_class(directory, instance)
    fields = kind.model_fields
    block = config[instance.name][instance.server_type][instance.implementation]
    client = fields["server_client"].annotation(
        head_server_config=BaseServerConfig(**{"host": "127.0.0.1", "port": 1} | _head(config)),
        global_config_dict=config,
    )
    with contextlib.chdir(directory):
        server = kind(config=validated_block(fields["config"].annotation, instance.name, block), server_client=client)
        app = server.setup_webserver()
    server.setup_exception_middleware(app)
    app.add_exception_handler(RequestValidationError, log_and_answer_422)
    return app


def _head(config: DictConfig) -> dict[str, Any]:
    head = config.get(HEAD_SERVER_KEY_NAME) or {}
    return {key: head[key] for key in ("host", "port") if head.get(key)}


def served_class(directory: Path, instance: ServerInstance) -> Any:
    """The class an entrypoint serves as a program. Raises AuditError when it can't be imported or serves none."""
    path = directory / instance.entrypoint
    name = f"{instance.server_type}.{instance.implementation}.{path.stem}"
    try:
        with importable(directory):
            module = imported(name, path)
        served = next(filter(None, map(_served_by, ast.parse(path.read_bytes()).body)), None)
    except Exception as error:
        raise AuditError(f"{path} can't be imported: {type(error).__name__}: {error}.") from error
    if served is None or not hasattr(module, served):
        raise AuditError(f"{path} serves nothing: end it with `if __name__ == '__main__': <Server>.run_webserver()`.")
    return getattr(module, served)


@contextlib.contextmanager
def importable(directory: Path) -> Iterator[None]:
    """Have imports find a component's own files first, as in its process."""
    before = list(sys.path)
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path[:] = before


def imported(name: str, path: Path) -> ModuleType:
    """The module of a file: by its name where that means this file, else by its path alone."""
    with contextlib.suppress(ImportError):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None and os.path.samefile(spec.origin, path):  # noqa: PTH121
            return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(f"_audited_{abs(hash(str(path)))}", path)
    assert spec is not None and spec.loader is not None, "an entrypoint is a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _served_by(node: ast.stmt) -> str | None:
    """`C` in `if __name__ == "__main__": C.run_webserver()`."""
    if not isinstance(node, ast.If) or ast.unparse(node.test) != "__name__ == '__main__'":
        return None
    for inner in node.body:
        match inner:
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "run_webserver"))):
                return name
    return None


@contextlib.asynccontextmanager
async def _lifespan(app: Any) -> AsyncIterator[dict[str, Any]]:
    async with app.router.lifespan_context(app) as state:
        yield dict(state or {})


def agents_for(config: DictConfig) -> list[tuple[str, dict[str, Any]]]:
    """The agents of a config with their blocks, those that declare data sets first."""
    agents = [(name, block) for name, _, block in implementation_blocks(_plain(config), RESPONSES_API_AGENTS)]
    return sorted(agents, key=lambda agent: not agent[1].get("datasets"))
