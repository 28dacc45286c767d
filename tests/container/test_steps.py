"""The scripts that build the container, one by one, with small trees and fake programs."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT

DOCKER = ROOT / "docker"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder of programs that come before all others, and a `said` beside it of how they were called."""
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


def add_program(folder: Path, name: str) -> None:
    """One that only notes its arguments and the variables that begin with UV_."""
    program = folder / name
    program.write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/../said"\nenv | grep ^UV_ >> "{folder}/../said"\n:\n')
    program.chmod(0o755)


def ran(script: Path, *words: str, path: str = "/usr/bin:/bin", **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", str(script), *words], env={"PATH": path, **variables}, capture_output=True, text=True, check=False
    )


def step(
    name: str,
    prefix: Path,
    source: Path = ROOT,
    *,
    path: str = "/usr/bin:/bin",
    variables: Mapping[str, str] | None = None,
) -> str:
    """What it says on standard error."""
    told = {"GYM_PREFIX": str(prefix), "GYM_SOURCE": str(source), "GYM_PYTHON": "python3.12", **(variables or {})}
    done = ran(DOCKER / f"steps/{name}.sh", path=path, **told)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source tree that is no git checkout, as in the image's build, by somebody whose files nobody else reads."""
    folder = tmp_path / "source"
    for name in (
        "nemo_gym/a b.py",
        "nemo_gym/old.pyc",
        "tests/test_a.py",
        "resources_servers/x/tests/test_app.py",
        "resources_servers/x/data/example.jsonl",
        "resources_servers/x/data/example_rollouts.jsonl",
        ".venv/bin/tool",
        ".ci/run",
        ".gitignore",
        "docs/pictures/big.png",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
        (folder / name).chmod(0o600)
    return folder


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_source_without_git_is_taken_as_it_is_but_for_what_stays_out(source: Path, tmp_path: Path) -> None:
    step("source_tree", tmp_path / "prefix", source, variables={"GYM_COMMIT": "c0ffee"})
    opt = tmp_path / "prefix/opt"
    wanted = {"nemo_gym/a b.py", "resources_servers/x/data/example.jsonl", "env.yaml"}
    assert files_below(opt / "Gym") == wanted
    assert (opt / "gym-commit").read_text() == "c0ffee\n"
    assert f"uv_venv_dir: {opt}/gym-venvs\n" in (opt / "Gym/env.yaml").read_text()


def test_the_commit_of_a_checkout_may_be_told_and_is_unknown_without_either(source: Path, tmp_path: Path) -> None:
    step("source_tree", tmp_path / "prefix", source)
    assert (tmp_path / "prefix/opt/gym-commit").read_text() == "unknown\n"
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    step("source_tree", tmp_path / "prefix", source, variables={"GYM_COMMIT": "told"})
    assert (tmp_path / "prefix/opt/gym-commit").read_text() == "told\n"


def test_everybody_reads_all_and_may_add_venvs_and_write_runs(source: Path, tmp_path: Path) -> None:
    opt = tmp_path / "prefix/opt"
    step("source_tree", opt.parent, source)
    for folder in ("gym-cli-venv", "gym-venvs/resources_servers/x/.venv"):
        (opt / folder).mkdir(parents=True)
        (opt / folder).chmod(0o700)
    lock = opt / "gym-venvs/resources_servers/x.setup.lock"
    lock.touch(0o600)
    step("permissions", opt.parent)
    modes = {path: (opt / path).stat().st_mode & 0o7777 for path in ("Gym/outputs", "Gym/results", "Gym/cache")}
    assert set(modes.values()) == {0o1777}, modes
    for folder in ("gym-venvs", "gym-venvs/resources_servers", "gym-venvs/resources_servers/x"):
        assert (opt / folder).stat().st_mode & 0o777 == 0o777, folder
    assert lock.stat().st_mode & 0o666 == 0o666
    assert (opt / "Gym/nemo_gym/a b.py").stat().st_mode & 0o777 == 0o644
    assert (opt / "gym-cli-venv").stat().st_mode & 0o777 == 0o755
    assert (opt / "gym-venvs/resources_servers/x/.venv").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("closed", ["pythons", "prefixes", None])
def test_what_keeps_other_users_out_is_told(tmp_path: Path, closed: str | None) -> None:
    """A Python in the home of root makes a tree that works, and only for root."""
    with tempfile.TemporaryDirectory(dir="/tmp") as open_place:
        place = Path(open_place)
        place.chmod(0o755)
        for folder in ("pythons/bin", "prefixes/one/opt/gym-cli-venv/bin", "prefixes/one/opt/gym-venvs"):
            (place / folder).mkdir(parents=True)
        (place / "pythons/bin/python3").touch(0o755)
        opt = place / "prefixes/one/opt"
        (opt / "gym-cli-venv/bin/python").symlink_to(place / "pythons/bin/python3")
        if closed:
            (place / closed).chmod(0o700)
        said = step("permissions", opt.parent)
    wanted = [f"{place}/{closed}, which only its owner may enter."] if closed else []
    assert [line.partition(" is in ")[2] for line in said.splitlines()] == wanted


@pytest.mark.parametrize(("compile_it", "compiles"), [({}, True), ({"GYM_COMPILE_BYTECODE": "0"}, False)])
def test_the_cli_venv_is_what_the_lock_says_without_development_tools(
    programs: Path, tmp_path: Path, compile_it: Mapping[str, str], compiles: bool
) -> None:
    add_program(programs, "uv")
    stale = tmp_path / "prefix/opt/gym-cli-venv/stale"
    stale.mkdir(parents=True)
    step(
        "cli_venv",
        tmp_path / "prefix",
        path=f"{programs}:/usr/bin:/bin",
        variables={"VIRTUAL_ENV": "/another", **compile_it},
    )
    said = (tmp_path / "said").read_text()
    words = said.splitlines()[0].split()
    assert words[:2] == ["uv", "sync"] and {"--locked", "--no-dev"} <= set(words)
    assert words[words.index("--python") + 1] == "python3.12"
    assert ("--compile-bytecode" in words) is compiles
    assert f"UV_PROJECT_ENVIRONMENT={tmp_path}/prefix/opt/gym-cli-venv\n" in said
    assert "UV_LINK_MODE=copy\n" in said, "a venv of links to a cache is empty in the image"
    assert not stale.exists()


def test_a_prebuilt_component_that_is_not_there_ends_the_build(tmp_path: Path) -> None:
    asked = "resources_servers/no_such\n"
    done = subprocess.run(
        [sys.executable, DOCKER / "build_component_venvs.py", tmp_path],
        input=asked,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    said = "docker/prebuilt.txt names resources_servers/no_such, and there is no resources_servers/no_such/app.py.\n"
    assert done.stderr == said


def test_a_build_needs_a_place_and_uv(programs: Path, tmp_path: Path) -> None:
    for words in ([], ["one", "python3", "three"]):
        asked = ran(DOCKER / "build_tree.sh", *words)
        assert asked.returncode == 2 and "docker/build_tree.sh PREFIX [PYTHON]" in asked.stderr
    for name in ("bash", "dirname", "mkdir"):
        (programs / name).symlink_to(str(shutil.which(name)))
    lacking = ran(DOCKER / "build_tree.sh", str(tmp_path / "prefix"), path=str(programs))
    assert lacking.returncode == 1 and "needs uv on PATH" in lacking.stderr
    assert not (tmp_path / "prefix/opt").exists()


def test_the_sum_of_sizes_is_of_all_parts(tmp_path: Path) -> None:
    for name, megabytes in (("Gym", 1), ("gym-cli-venv", 2), ("gym-venvs/resources_servers/x/.venv", 4)):
        (tmp_path / "opt" / name).mkdir(parents=True)
        (tmp_path / "opt" / name / "file").write_bytes(os.urandom(megabytes << 20))
    done = ran(DOCKER / "report_sizes.sh", f"{tmp_path}/")
    told = {name: int(size) for name, size in re.findall(r"^(.*?) +(\d+) MB$", done.stdout, re.MULTILINE)}
    assert told["all of it"] == pytest.approx(7, abs=1)
    assert told["resources_servers/x"] == pytest.approx(4, abs=1)


def test_codec_packages_are_those_of_the_lock_and_no_other_settings_count(programs: Path, tmp_path: Path) -> None:
    add_program(programs, "uv")
    add_program(programs, "python")
    script = tmp_path / "Gym/docker/install_codec_deps.sh"
    script.parent.mkdir(parents=True)
    script.write_bytes((DOCKER / "install_codec_deps.sh").read_bytes())
    (tmp_path / "Gym/uv.lock").write_text('[[package]]\nname = "torchvision"\nversion = "1.2.3"\nsource = {}\n')
    path = f"{programs}:/usr/bin:/bin"
    done = ran(script, str(programs / "python"), path=path)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said").read_text().splitlines()[0]
    wanted = "opencv-python-headless torchvision==1.2.3 torchaudio"
    assert said == f"uv pip install --no-config --python {programs}/python {wanted}"
    missing = ran(script, path=path)
    assert missing.returncode == 1
    assert "gym-cli-venv/bin/python: name the venv's python as the argument." in missing.stderr


def test_the_system_packages_are_those_that_recipes_use() -> None:
    words = set((DOCKER / "install_system_packages.sh").read_text().split())
    assert {"ca-certificates", "curl", "procps", "xxd", "orjson", "pyyaml", "--no-install-recommends"} <= words


def test_the_image_is_the_tree_with_the_settings_that_recipes_expect() -> None:
    text = (ROOT / "Dockerfile").read_text()
    lines = text.replace("\\\n", " ").splitlines()
    stage = lines[max(number for number, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert lines.index("ARG PYTHON_IMAGE=python:3.12-slim") < lines.index("FROM ${PYTHON_IMAGE} AS build")
    assert "ENV RAY_JOB_STOP_SIGNAL=SIGINT      RAY_USAGE_STATS_ENABLED=0" in stage
    assert stage[-2:] == ["WORKDIR /", 'CMD ["python3"]']
    assert {"COPY --from=build /opt /opt", "COPY --from=build /usr/local/bin/gym /usr/local/bin/gym"} <= set(stage)
    assert not [line for line in stage if line.startswith(("USER", "ENTRYPOINT"))]
    assert any("/source/docker/build_tree.sh / " in line and "UV_NO_CACHE=1" in line for line in lines)


def test_what_git_ignores_stays_out_of_the_image_too() -> None:
    """Its build has no git to ask."""
    ignored = (ROOT / ".gitignore").read_text().split()
    wanted = {name.strip("/") if name.startswith("/") else f"**/{name.strip('/')}" for name in ignored}
    assert wanted | {".git"} <= set((ROOT / ".dockerignore").read_text().split())
