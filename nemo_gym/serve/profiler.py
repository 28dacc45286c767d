"""CPU profiles of a running server."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, PrivateAttr, field_validator

from nemo_gym.errors import GymError


class Profiler(BaseModel):
    """A CPU-clock profile written as `<base_profile_dir>/<name>.{log,callgrind,dot,png}`.

    `required_str` keeps only functions whose full name contains it. Needs yappi, gprof2dot, pydot and graphviz;
    GymError says which is missing.
    """

    name: str
    base_profile_dir: Path
    required_str: str | None = None
    _yappi: Any = PrivateAttr(default=None)

    @field_validator("name")
    @classmethod
    def refuse_spaces(cls, name: str) -> str:
        if " " in name:
            raise ValueError(f"the name of a profile must have no spaces, {name!r} has")
        return name

    def start(self) -> None:
        """Profile from now on."""
        self._check_for_dot_installation()
        self._yappi = _import("yappi")
        self._yappi.set_clock_type("CPU")
        self._yappi.start()

    def stop(self) -> None:
        """End profiling and write what was seen."""
        if self._yappi is not None:
            self._yappi.stop()
            self.dump()

    def dump(self) -> None:
        """Write what has been seen so far."""
        gprof2dot, pydot = _import("gprof2dot"), _import("pydot")
        self.base_profile_dir.mkdir(parents=True, exist_ok=True)
        stem = self.base_profile_dir / self.name
        statistics = self._yappi.get_func_stats()
        if self.required_str:
            wanted = self.required_str
            statistics = self._yappi.get_func_stats(filter_callback=lambda item: wanted in item.full_name)
        with stem.with_suffix(".log").open("w") as log:
            columns = {0: ("name", 120), 1: ("ncall", 10), 2: ("tsub", 10), 3: ("ttot", 10), 4: ("tavg", 10)}
            statistics.print_all(out=log, columns=columns)
        callgrind, dot = stem.with_suffix(".callgrind"), stem.with_suffix(".dot")
        statistics.save(str(callgrind), type="callgrind")
        gprof2dot.main(["--format=callgrind", f"--output={dot}", "--strip", str(callgrind)])
        (graph,) = pydot.graph_from_dot_file(str(dot))
        graph.write_png(str(stem.with_suffix(".png")))

    def _check_for_dot_installation(self) -> None:
        if shutil.which("dot") is None:
            raise GymError("Profiling draws with graphviz, and `dot` isn't on PATH: install graphviz.")


class ProfilingMiddlewareConfig(BaseModel):
    """Whether servers profile themselves, and where the profiles go below the working directory."""

    profiling_enabled: bool = False
    profiling_results_dirpath: str | None = None


def profile_app(app: FastAPI, profiler: Profiler) -> None:
    """Profile an app while it runs; `GET /stats` writes what was seen so far."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def profiled(app: FastAPI) -> AsyncIterator[Any]:
        profiler.start()
        try:
            async with inner(app) as state:
                yield state
        finally:
            profiler.stop()

    async def stats() -> None:
        profiler.dump()

    app.router.lifespan_context = profiled
    app.get("/stats")(stats)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise GymError(
            f"Profiling needs the package {name}: install the extra `compat` (`uv pip install 'nemo-gym[compat]'`)."
        ) from error
