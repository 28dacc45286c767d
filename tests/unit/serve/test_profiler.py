from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from nemo_gym import WORKING_DIR
from nemo_gym.errors import GymError
from nemo_gym.profiling import Profiler
from nemo_gym.serve import profiler as profiler_module
from nemo_gym.serve.json_app import json_app
from nemo_gym.serve.profiler import ProfilingMiddlewareConfig, profile_app
from tests.unit.serve.toys import toy_resources


class FakeYappi:
    """Yappi, gprof2dot and pydot in one, as far as the profiler uses them."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def set_clock_type(self, clock: str) -> None:
        self.calls.append(clock)

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def get_func_stats(self, filter_callback: Any = None) -> FakeYappi:
        self.kept = filter_callback
        return self

    def print_all(self, out: Any, columns: Any) -> None:
        out.write(" ".join(name for name, _ in columns.values()))

    def save(self, path: str, type: str) -> None:
        Path(path).write_text(type)

    def main(self, arguments: list[str]) -> None:
        Path(next(item for item in arguments if item.startswith("--output="))[9:]).write_text("dot")

    def graph_from_dot_file(self, path: str) -> tuple[FakeYappi]:
        return (self,)

    def write_png(self, path: str) -> None:
        Path(path).write_text("png")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeYappi:
    fake = FakeYappi()
    monkeypatch.setattr(profiler_module, "_import", lambda name: fake)
    monkeypatch.setattr(profiler_module.shutil, "which", lambda name: "/usr/bin/dot")  # type: ignore[attr-defined]
    return fake


def test_a_profile_is_four_files(fake: FakeYappi, tmp_path: Path) -> None:
    profiler = Profiler(name="toy", base_profile_dir=tmp_path / "new", required_str="nemo")
    profiler.start()
    profiler.stop()
    assert {path.name for path in (tmp_path / "new").iterdir()} == {f"toy.{kind}" for kind in KINDS}
    assert (tmp_path / "new" / "toy.log").read_text() == "name ncall tsub ttot tavg"
    assert fake.calls == ["CPU", "start", "stop"]
    assert [fake.kept(FakeFunction(name)) for name in ("nemo_gym.x", "os.y")] == [True, False]


KINDS = ("log", "callgrind", "dot", "png")


class FakeFunction:
    def __init__(self, full_name: str) -> None:
        self.full_name = full_name


def test_an_app_is_profiled_while_it_runs(fake: FakeYappi, tmp_path: Path) -> None:
    app = json_app()
    profile_app(app, Profiler(name="toy", base_profile_dir=tmp_path))
    with TestClient(app) as client:
        assert fake.calls == ["CPU", "start"]
        assert client.get("/stats").status_code == 200
        assert (tmp_path / "toy.log").exists()
    assert fake.calls[-1] == "stop"


def test_profiles_of_servers_lie_apart(fake: FakeYappi, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Profiler] = []
    monkeypatch.setattr("nemo_gym.server_utils.profile_app", lambda app, profiler: made.append(profiler))
    toy_resources().setup_profiling(json_app(), ProfilingMiddlewareConfig(profiling_results_dirpath="results/profile"))
    assert made[0].base_profile_dir == WORKING_DIR / "results/profile" / "ToyResources___toy"


def test_names_have_no_spaces(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="no spaces"):
        Profiler(name="a b", base_profile_dir=tmp_path)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profiler = Profiler(name="toy", base_profile_dir=tmp_path)
    monkeypatch.setattr(profiler_module.shutil, "which", lambda name: None)  # type: ignore[attr-defined]
    with pytest.raises(GymError, match="install graphviz"):
        profiler.start()
    with pytest.raises(GymError, match="no_such_package_here"):
        profiler_module._import("no_such_package_here")
