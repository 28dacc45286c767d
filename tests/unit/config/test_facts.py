"""What lists know of each file, and when they look again."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.config import facts, metadata
from nemo_gym.config.facts import Facts, FactStore, kept_facts
from nemo_gym.registry import discover_environment_catalog

Write = Callable[[str, str], Path]

SERVER = "s: {resources_servers: {quiz: {entrypoint: app.py, domain: math, description: Sums}}}\n"
LONG_AGO = 10**9


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read, in order."""
    names: list[str] = []
    learn = metadata.facts_of

    def noting(path: Path) -> Facts:
        names.append(path.name)
        return learn(path)

    monkeypatch.setattr(metadata, "facts_of", noting)
    return names


@pytest.fixture
def config(write: Write) -> Path:
    """A config that includes another, both of long ago."""
    for path in (write("base.yaml", SERVER), write("environments/words/config.yaml", "config_paths: [base.yaml]\n")):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return Path("environments/words/config.yaml").absolute()


def fresh() -> FactStore:
    """What the next command starts with."""
    facts._store.cache_clear()
    with kept_facts() as store:
        return store


def test_a_later_command_reads_no_file_that_stayed_as_it_was(config: Path, read: list[str]) -> None:
    with kept_facts() as store:
        assert store.of(config).description == "Sums"
    assert read == ["config.yaml"]
    again = fresh()
    assert again.of(config) == Facts(
        is_readable=True,
        server_types=[],  # type: ignore[arg-type]  # as JSON has it
        agent_datasets=[],  # type: ignore[arg-type]
        agents=[],  # type: ignore[arg-type]
        domain="math",
        description="Sums",
    )
    assert read == ["config.yaml"]


def test_a_changed_file_or_include_is_read_again(config: Path, write: Write, read: list[str]) -> None:
    with kept_facts() as store:
        store.of(config)
    base = write("base.yaml", SERVER.replace("Sums", "Multiplication"))
    assert fresh().of(config).description == "Multiplication"
    base.unlink()
    assert fresh().of(config).description is None
    config.write_text(SERVER)
    assert fresh().of(config).description == "Sums"
    assert read == ["config.yaml"] * 4


def test_a_file_that_changed_long_ago_but_later_is_read_again(config: Path, read: list[str]) -> None:
    with kept_facts() as store:
        store.of(config)
    config.write_text("config_paths: [base.yaml]\n" + SERVER.replace("Sums", "More"))
    os.utime(config, (LONG_AGO + 1, LONG_AGO + 1))
    assert fresh().of(config).description == "More" and len(read) == 2


def test_another_file_that_comes_to_be_included_is_noticed(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    better = tmp_path / "better"
    better.mkdir()
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(better))
    with kept_facts() as store:
        assert store.of(config).description == "Sums"
    (better / "base.yaml").write_text(SERVER.replace("Sums", "Better"))
    assert fresh().of(config).description == "Better"


def test_a_file_that_changed_just_now_is_not_kept(write: Write, read: list[str]) -> None:
    path = write("environments/words/config.yaml", SERVER)
    with kept_facts() as store:
        store.of(path)
    fresh().of(path)
    assert read == ["config.yaml"] * 2


def test_nothing_is_kept_of_files_that_are_gone(config: Path, write: Write) -> None:
    with kept_facts() as store:
        store.of(config)
    kept = next(Path(os.environ["XDG_CACHE_HOME"], "nemo-gym").iterdir())
    assert list(json.loads(kept.read_text())) == [str(config)]
    config.unlink()
    other = write("environments/other/config.yaml", SERVER)
    os.utime(other, (LONG_AGO, LONG_AGO))
    facts._store.cache_clear()
    with kept_facts() as store:
        store.of(other)
    assert list(json.loads(kept.read_text())) == [str(other)]


@pytest.mark.parametrize("text", ["{", "[]", ""])
def test_a_broken_store_is_no_store(config: Path, read: list[str], text: str) -> None:
    with kept_facts() as store:
        store.of(config)
    next(Path(os.environ["XDG_CACHE_HOME"], "nemo-gym").iterdir()).write_text(text)
    assert fresh().of(config).description == "Sums" and len(read) == 2


def test_lists_work_where_nothing_can_be_kept(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "blocked"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert discover_environment_catalog()[("environment", "words")].description == "Sums"


def test_a_warm_list_reads_nothing_of_hundreds_of_files(write: Write, read: list[str]) -> None:
    for number in range(200):
        path = write(f"resources_servers/s{number}/configs/s{number}.yaml", SERVER)
        os.utime(path, (LONG_AGO, LONG_AGO))
    discover_environment_catalog()
    assert len(read) == 200
    facts._store.cache_clear()
    discover_environment_catalog()
    assert len(read) == 200
