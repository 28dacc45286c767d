"""The names under which components can be found, as far as selecting and suggesting them goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nemo_gym.config.facts import MANIFEST_FILE_NAME, kept_facts
from nemo_gym.config.roots import component_search_roots

TOMBSTONE_FILE_NAME = ".nemo_gym_tombstone"


def component_names(folder: str) -> list[str]:
    """Folders that hold at least one YAML file, below one kind of component in any root."""
    names = {
        child.name
        for tree in trees(folder)
        for child in tree.iterdir()
        if child.is_dir() and not is_hidden(child) and (any(child.glob("*.yaml")) or any(child.glob("configs/*.yaml")))
    }
    return sorted(names)


def config_stems(folder: str, name: str, subfolder: str = "") -> list[str]:
    """The flavors of one component: names of its config files, without manifests."""
    return sorted({path.stem for tree in trees(folder) for path in config_files(tree / name / subfolder, "*.yaml")})


def benchmark_names() -> list[str]:
    """Every benchmark's name: the folder of a `config.yaml`, else its file's path below `benchmarks/`, no suffix."""
    return sorted(benchmark_files())


def benchmark_files() -> dict[str, Path]:
    """The config file of every benchmark by its name; where roots share a name, the better root's.

    A file is a benchmark when its own text declares exactly one data set of type `benchmark`.
    """
    files: dict[str, Path] = {}
    with kept_facts() as facts:
        for tree in trees("benchmarks"):
            for path in config_files(tree, "**/*.yaml"):
                if facts.of(path).benchmarks == 1:
                    files.setdefault(benchmark_name(path.relative_to(tree)), path)
    return files


def group_members(value: str) -> list[str]:
    """The benchmarks below a folder that is none itself."""
    return [name for name in benchmark_names() if name.startswith(f"{value}/")]


def trees(folder: str) -> list[Path]:
    """The folders of that name in the search roots, best first."""
    return [root / folder for root in component_search_roots() if (root / folder).is_dir()]


def config_files(folder: Path, pattern: str = "*.yaml") -> Iterator[Path]:
    """The config files below a folder, sorted; not manifests, and not where a tombstone lies."""
    for path in sorted(folder.glob(pattern)):
        if path.name != MANIFEST_FILE_NAME and not is_hidden(path.parent):
            yield path


def is_hidden(folder: Path) -> bool:
    """Whether a tombstone takes a folder out of every list."""
    return (folder / TOMBSTONE_FILE_NAME).exists()


def benchmark_name(relative: Path) -> str:
    """What a benchmark is called whose file is at this path below `benchmarks/`."""
    return relative.parent.as_posix() if relative.stem == "config" else relative.with_suffix("").as_posix()
