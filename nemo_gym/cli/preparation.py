"""`gym eval prepare`: the scripts that write a data set's rows, each run in a process of its own."""

import importlib.util
import inspect
import os
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.roots import resolve_under_roots

if TYPE_CHECKING:
    from nemo_gym.config.instances import ServerInstance

_DATA_OWNERS = ("resources_servers", "responses_api_agents")


@dataclass(frozen=True)
class Preparation:
    """A data set and the script that writes it. `script` and `rows` are paths as declared in the config."""

    instance: str
    dataset: str
    script: str
    rows: str
    dependencies: tuple[str, ...] = ()

    @property
    def script_path(self) -> Path:
        return resolve_under_roots(self.script)

    @property
    def module(self) -> str:
        return ".".join(Path(self.script).with_suffix("").parts).lstrip("./")

    @property
    def is_done(self) -> bool:
        return resolve_under_roots(self.rows).is_file()

    def accepts(self, written: Path) -> bool:
        """Whether a script has written the file the config names, under the current folder or any root."""
        expected = {Path(self.rows).absolute(), resolve_under_roots(self.rows).absolute()}
        return written.absolute() in expected or written.resolve() in {path.resolve() for path in expected}


def preparations(instances: "Iterable[ServerInstance]") -> list[Preparation]:
    """What the config declares to prepare: every benchmark, and every other data set with a script.

    Raises ConfigError when there is nothing.
    """
    found = [
        Preparation(
            instance.name,
            str(dataset.get("name")),
            str(dataset["prepare_script"]),
            str(dataset["jsonl_fpath"]),
            tuple(dataset.get("prepare_dependencies") or ()),
        )
        for instance in instances
        if instance.server_type in _DATA_OWNERS
        for dataset in instance.block.get("datasets") or ()
        if dataset.get("prepare_script")
    ]
    if not found:
        raise ConfigError(
            "Nothing to prepare: no chosen config declares a benchmark or a data set with a prepare_script. "
            "Choose one with --benchmark NAME or --config PATH."
        )
    return found


def install_dependencies(wanted: Iterable[Preparation]) -> None:
    """Install what the scripts need beside Gym. Raises ConfigError when uv is missing or fails."""
    packages = sorted({package for preparation in wanted for package in preparation.dependencies})
    if not packages:
        return
    from nemo_gym.launch.uv import find_uv

    command = [find_uv(), "pip", "install", "--python", sys.executable, *packages]
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(f"The scripts' dependencies ({', '.join(packages)}) can't be installed: {error}.") from error


def prepare_all(
    wanted: list[Preparation], arguments: Mapping[str, Any], processes: int
) -> Iterator[tuple[Preparation, Path]]:
    """Check every script, then run them; yields what each has written, as it is done.

    Raises ConfigError listing every script that can't run before any has run, or naming the first that failed.
    """
    install_dependencies(wanted)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        problems = [problem for problem in pool.map(script_problem, wanted) if problem]
        if problems:
            raise ConfigError("\n".join(["Nothing was prepared:", *(f"- {problem}" for problem in problems)]))
        running = {pool.submit(run_script, preparation, dict(arguments)): preparation for preparation in wanted}
        for done in as_completed(running):
            preparation = running[done]
            failure, written = done.result()
            if failure:
                pool.shutdown(cancel_futures=True)
                raise ConfigError(f"{preparation.script} failed: {failure}")
            yield preparation, written


def script_problem(preparation: Preparation) -> str | None:
    """Why a script can't be run; None when it can."""
    if not preparation.script_path.is_file():
        return f"{preparation.script} (data set {preparation.dataset} of {preparation.instance}) does not exist."
    try:
        prepare = _load(preparation)
    except BaseException as error:
        return f"{preparation.script} can't be imported: {type(error).__name__}: {error}"
    if not callable(prepare):
        return f"{preparation.script} defines no function prepare()."
    if inspect.iscoroutinefunction(prepare):
        return f"{preparation.script}: prepare() must be an ordinary function, not an async one."
    return None


def run_script(preparation: Preparation, arguments: dict[str, Any]) -> tuple[str | None, Path]:
    """Call a script's `prepare(**arguments)`: what was wrong, if anything, and the file it says it wrote."""
    nowhere = Path(os.devnull)
    try:
        written = _load(preparation)(**arguments)
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}", nowhere
    if not isinstance(written, str | os.PathLike):
        return "prepare() must return the path of the file it wrote.", nowhere
    path = Path(written)
    if not preparation.accepts(path):
        return f"prepare() wrote {path}, but the config reads {preparation.rows}.", nowhere
    return None, path


def _load(preparation: Preparation) -> Any:
    spec = importlib.util.spec_from_file_location(preparation.module, preparation.script_path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[preparation.module] = module
    spec.loader.exec_module(module)
    return getattr(module, "prepare", None)
