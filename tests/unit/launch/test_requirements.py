"""Reading manifests, and telling the line that means this checkout from the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_gym.config.roots import PARENT_DIR
from nemo_gym.launch.difference import parse_difference
from nemo_gym.launch.errors import VenvError
from nemo_gym.launch.interpreter import installed_version
from nemo_gym.launch.requirements import Requirements, extras_of_self, read_requirements


@pytest.mark.parametrize(
    ("line", "extras"),
    [
        ("-e nemo-gym[dev] @ ../../", {"dev"}),
        ("-e nemo-gym[dev,sandbox] @ ../../", {"dev", "sandbox"}),
        ("--editable=nemo-gym @ ../..", set()),
        ("nemo-gym", set()),
        ("nemo_gym[Sandbox]>=0.6", {"sandbox"}),
        ("NeMo.Gym == 0.5 ; python_version > '3'", set()),
        ("nemo-gym@git+https://example.com/gym", set()),
        ("-e ../..", set()),
        ("../../", set()),
        ("-e ../../[dev]", {"dev"}),
        (f"-e {PARENT_DIR}", set()),
    ],
)
def test_lines_that_mean_this_checkout(line: str, extras: set[str]) -> None:
    assert extras_of_self(line, Path("/srv/resources_servers/x")) == frozenset(extras)


@pytest.mark.parametrize(
    "line", ["nemo-gymnasium", "nemo", "-e ../other", "./local", "--extra-index-url https://x", "x"]
)
def test_lines_that_do_not(line: str) -> None:
    assert extras_of_self(line, Path("/srv/resources_servers/x")) is None


def write(folder: Path, text: str) -> Path:
    (folder / "requirements.txt").write_text(text)
    return folder


def test_comments_continuations_and_nested_files(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("\ufeff# nothing\nnested==1\n-e nemo-gym[sandbox] @ ../../\n")
    folder = write(tmp_path, "a==1 # why\nb \\\n  >=2\n\n-r more.txt\nc @ https://x/#egg=c\n")
    read = read_requirements(folder)
    assert read.lines == ("a==1", "b    >=2", "nested==1", "c @ https://x/#egg=c")
    assert read.extras == {"sandbox"}


def test_dev_is_kept_for_tests_only(tmp_path: Path) -> None:
    folder = write(tmp_path, "-e nemo-gym[dev,sandbox] @ ../../\n")
    assert read_requirements(folder).self_line == f"nemo-gym[sandbox]=={installed_version()}"
    assert read_requirements(folder, for_tests=True).extras == {"dev", "sandbox"}


def test_an_extra_without_packages_asks_for_nothing(tmp_path: Path) -> None:
    assert not read_requirements(write(tmp_path, "-e nemo-gym[sandbox] @ ../../\n--pre\n")).asks_for_something
    assert read_requirements(write(tmp_path, "-e nemo-gym[compat] @ ../../\n")).asks_for_something


def test_a_file_that_includes_itself_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(VenvError, match="includes itself"):
        read_requirements(write(tmp_path, "-r requirements.txt\n"))


def test_what_decides_the_install_decides_the_digest(tmp_path: Path) -> None:
    before = read_requirements(write(tmp_path, "a\n")).text()
    (tmp_path / "overrides.txt").write_text("b==1\n")
    after = read_requirements(tmp_path).text()
    assert before != after
    assert read_requirements(write(tmp_path, "a\n-e nemo-gym[sandbox] @ ../../")).text() != after


def test_sources_of_a_pyproject_are_followed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\ndependencies = ["nemo-gym[dev]", "a", "b[x]>=1", "c", "d"]\n'
        '[tool.uv.sources]\na = { git = "https://x/a", tag = "v1" }\nb = { path = "../b", editable = true }\n'
        'c = { url = "https://x/c.whl" }\nnemo-gym = { path = "../.." }\n'
    )
    assert read_requirements(tmp_path).lines == ("a @ git+https://x/a@v1", "-e ../b[x]", "c @ https://x/c.whl", "d")


OUTPUT = """\
Using Python 3.12.1 environment at: /srv/.venv
Resolved 86 packages in 402ms
Would download 2 packages
Would uninstall 1 package
Would install 4 packages
 - anyio==4.0.0
 + anyio==3.7.1
 + nemo-gym==0.7.0
 ~ same==1.0
 + remote @ git+https://x/r@abc
 + localthing @ file:///srv/x/local
"""


def test_the_difference_is_what_would_be_installed(tmp_path: Path) -> None:
    requirements = Requirements(tmp_path, ("anyio==3.7.1", "-e ./local", "--pre"), frozenset())
    found = parse_difference(OUTPUT, requirements)
    assert found.packages == ("anyio==3.7.1", "same==1.0", "remote @ git+https://x/r@abc", "-e ./local")
    assert found.names == ("anyio", "same", "remote", "localthing")


def test_no_change_is_no_difference(tmp_path: Path) -> None:
    assert not parse_difference("Checked 2 packages\nWould make no changes\n", Requirements(tmp_path, (), frozenset()))


def test_an_unknown_form_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VenvError, match="doesn't understand"):
        parse_difference(" + something new (somehow)\n", Requirements(tmp_path, (), frozenset()))
