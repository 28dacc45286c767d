"""The README's table of environments."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.roots import PARENT_DIR
from nemo_gym.environment.table import BEGIN, END, environments_table, main, updated
from tests.unit.environment.conftest import CONFIG, Write

TRAIN = """
      - {name: train, type: train, jsonl_fpath: t.jsonl, license: MIT, source: {type: huggingface, repo_id: o/n}}
      - {name: more, type: validation, jsonl_fpath: v.jsonl, license: Apache 2.0}
"""


def test_the_readme_of_this_checkout_is_current() -> None:
    """Out of date? `python -m nemo_gym.environment.table README.md` from the top folder writes it anew."""
    text = (PARENT_DIR / "README.md").read_text(encoding="utf-8")
    assert updated(text, PARENT_DIR) == text


def test_a_row_says_what_an_environment_offers(manifest: Callable[..., Path], write: Write, project: Path) -> None:
    manifest(description="Guess | words")
    write(
        "environments/words/config.yaml",
        CONFIG.replace("domain: games", "domain: games, value: Vocabulary").replace(
            "data/example.jsonl}", "data/example.jsonl, license: TBD}"
        )
        + TRAIN[1:],
    )
    write("resources_servers/quiz/configs/hard.yaml", CONFIG.replace("words:", "quiz:"))
    lines = environments_table(project).splitlines()
    assert lines[0].startswith("| Environment | Domain |") and len(lines) == 4
    assert lines[2] == (
        "| [quiz/hard](resources_servers/quiz) <br> `--resources-server quiz/hard` | games | – | – | – | – | – | – |"
    )
    assert lines[3] == (
        "| [words](environments/words) <br> `--environment words` | games | Guess \\| words | Vocabulary | ✓ | ✓ | "
        "[o/n](https://huggingface.co/datasets/o/n) | MIT, Apache 2.0 |"
    )


def test_benchmarks_have_a_table_of_their_own(manifest: Callable[..., Path], write: Write, project: Path) -> None:
    manifest()
    write("benchmarks/hard/config.yaml", CONFIG.replace("type: example,", "type: benchmark,"))
    tables = environments_table(project).split("\n\n")
    assert [table.split(" | ")[0] for table in tables] == ["| Environment", "| Benchmark"]
    assert "`--benchmark hard`" in tables[1]


def test_other_roots_are_not_in_it(
    manifest: Callable[..., Path], project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = manifest()
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(project))
    assert "words" in environments_table(project)
    assert environments_table(tmp_path) == ""
    assert path.exists()


def test_the_rest_of_a_readme_stays(manifest: Callable[..., Path], project: Path) -> None:
    manifest()
    once = updated(f"before\n{BEGIN}\nold\n{END}\nafter\n", project)
    assert once.startswith(f"before\n{BEGIN}\n\n| Environment") and once.endswith(f"|\n\n{END}\nafter\n")
    assert "old" not in once and updated(once, project) == once
    with pytest.raises(ConfigError, match="no place"):
        updated("no markers\n", project)


def test_the_command_writes_and_checks(
    manifest: Callable[..., Path], write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest()
    readme = write("README.md", f"{BEGIN}\n{END}\n")
    monkeypatch.setattr("sys.argv", ["table", str(readme), "--check"])
    with pytest.raises(SystemExit, match="out of date"):
        main()
    assert readme.read_text() == f"{BEGIN}\n{END}\n"
    monkeypatch.setattr("sys.argv", ["table", str(readme)])
    main()
    assert "words" in readme.read_text()
    monkeypatch.setattr("sys.argv", ["table", str(readme), "--check"])
    main()


def test_a_data_set_that_is_elsewhere_than_on_the_hub_has_no_link(
    manifest: Callable[..., Path], write: Write, project: Path
) -> None:
    manifest()
    row = TRAIN.splitlines()[1].replace("huggingface", "gitlab")
    write("environments/words/config.yaml", f"{CONFIG}{row}\n")
    assert environments_table(project).splitlines()[-1].endswith("| ✓ | – | – | MIT |")
