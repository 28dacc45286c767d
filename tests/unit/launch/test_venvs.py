"""Venvs: what is built, what is kept, what is refused."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

from nemo_gym.launch import venvs
from nemo_gym.launch.difference import Difference
from nemo_gym.launch.errors import VenvError
from nemo_gym.launch.interpreter import this_installation
from nemo_gym.launch.overlay import STAMP_NAME, link_base, read_stamp, write_bare_venv
from nemo_gym.launch.requirements import Requirements
from nemo_gym.launch.venvs import VenvSettings, ensure_venv, venv_path
from tests.unit.launch import toys
from tests.unit.launch.wheels import write_wheel


@pytest.fixture(autouse=True)
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """uv sees a folder of wheels, an empty cache and nothing else; the folder is given."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return wheels


@pytest.fixture
def settings(root: Path) -> VenvSettings:
    return VenvSettings(root=root / "venvs")


def in_venv(python: Path, code: str) -> str:
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def forbid_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise AssertionError("uv was called")

    monkeypatch.setattr("nemo_gym.launch.uv.find_uv", fail)


def test_a_component_that_adds_nothing_gets_an_overlay_without_uv(
    root: Path, settings: VenvSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B28: no network, and nothing seeded."""
    forbid_uv(monkeypatch)
    venv = ensure_venv(toys.add_component(root, "plain"), settings)
    assert venv.path == root / "venvs/resources_servers/plain/.venv"
    assert (venv.kind, venv.provides) == ("ours", frozenset())
    code = "import sys, pydantic, nemo_gym; print(sys.prefix, pydantic.__file__, nemo_gym.__file__)"
    prefix, pydantic, nemo_gym = in_venv(venv.python, code).split()
    assert prefix == str(venv.path)
    assert Path(pydantic).is_relative_to(this_installation().site_directories[0])
    import nemo_gym as ours

    assert nemo_gym == ours.__file__


def test_its_activate_script_works_from_a_shell(root: Path, settings: VenvSettings) -> None:
    venv = ensure_venv(toys.add_component(root, "plain"), settings)
    shell = f"source '{venv.path}/bin/activate' && echo $VIRTUAL_ENV && which python"
    shell += " && deactivate && echo [$VIRTUAL_ENV]"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(venv.path), f"{venv.path}/bin/python", "[]"]


def test_only_the_difference_is_installed(root: Path, settings: VenvSettings, no_network: Path) -> None:
    write_wheel(no_network, "tinyextra", "1.2", requires=["tinydep", "pydantic>=2"])
    write_wheel(no_network, "tinydep", "0.1")
    lines: list[str] = []
    venv = ensure_venv(toys.add_component(root, "some", requirements="tinyextra\n"), settings, report=lines.append)
    assert venv.provides == {"tinyextra", "tinydep"}
    assert in_venv(venv.python, "import tinyextra, pydantic, nemo_gym; print(tinyextra.VERSION)") == "1.2"
    stamp = read_stamp(venv.path)
    assert stamp is not None
    assert sorted(stamp.added) == ["tinydep", "tinyextra"]
    assert lines[0].startswith("(resources_servers/some) Installing 2 packages into ")


def test_a_satisfied_requirement_needs_no_install(root: Path, settings: VenvSettings) -> None:
    venv = ensure_venv(toys.add_component(root, "satisfied", requirements="pydantic>=2\norjson\n"), settings)
    assert venv.provides == frozenset()


def test_a_pinned_version_shadows_the_bases(root: Path, settings: VenvSettings, no_network: Path) -> None:
    write_wheel(no_network, "tqdm", "4.68.9", code="SHADOW = True\n")
    venv = ensure_venv(toys.add_component(root, "pins", requirements="tqdm==4.68.9\n"), settings)
    assert venv.provides == {"tqdm"}
    assert in_venv(venv.python, "import tqdm; print(tqdm.SHADOW)") == "True"


def test_nemo_gym_never_comes_from_an_index(root: Path, settings: VenvSettings, no_network: Path) -> None:
    write_wheel(no_network, "nemo-gym", "99.0", code="FOREIGN = True\n")
    write_wheel(no_network, "tinyextra", "1.0", requires=["nemo-gym>=0.1"])
    folder = toys.add_component(root, "trap")
    for line in ("nemo-gym", "nemo-gym[dev]", "-e nemo-gym[dev] @ ../../", "nemo_gym>=0.5", "-e ../..", ""):
        (folder / "requirements.txt").write_text(f"{line}\ntinyextra\n")
        venv = ensure_venv(folder, settings)
        assert venv.provides == {"tinyextra"}, line
        assert not hasattr_in(venv.python, "nemo_gym", "FOREIGN"), line


def hasattr_in(python: Path, module: str, name: str) -> bool:
    return in_venv(python, f"import {module}; print(hasattr({module}, {name!r}))") == "True"


def test_a_package_that_wants_another_nemo_gym_is_refused(root: Path, settings: VenvSettings, no_network: Path) -> None:
    write_wheel(no_network, "nemo-gym", "99.0")
    write_wheel(no_network, "wantsnew", "1.0", requires=["nemo-gym>=99"])
    folder = toys.add_component(root, "trap", requirements="wantsnew\n")
    with pytest.raises(VenvError, match="can't be resolved against this installation"):
        ensure_venv(folder, settings)
    assert not venv_path(folder, settings.root).exists()


def test_without_installed_metadata_nemo_gym_is_still_not_installed(
    root: Path, settings: VenvSettings, no_network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nemo_gym.launch.requirements.installed_version", lambda: None)
    monkeypatch.setattr("nemo_gym.launch.difference.DISTRIBUTION", "tinydep")
    write_wheel(no_network, "tinyextra", "1.0", requires=["tinydep"])
    write_wheel(no_network, "tinydep", "1.0")
    venv = ensure_venv(toys.add_component(root, "trap", requirements="tinyextra\n"), settings)
    assert venv.provides == {"tinyextra"}, "whatever stands for nemo-gym is dropped from what is installed"


def test_a_conflict_with_a_pin_is_one_sentence(root: Path, settings: VenvSettings, no_network: Path) -> None:
    write_wheel(no_network, "tqdm", "4.68.9")
    pinned = VenvSettings(root=settings.root, pins=("tqdm==4.67.1",))
    folder = toys.add_component(root, "conflict", requirements="tqdm==4.68.9\n")
    with pytest.raises(VenvError) as raised:
        ensure_venv(folder, pinned)
    message = str(raised.value)
    assert str(folder) in message
    assert "tqdm==4.68.9" in message
    assert "\n" not in message
    assert "overrides.txt" in message


def test_overrides_are_honoured(root: Path, settings: VenvSettings, no_network: Path) -> None:
    write_wheel(no_network, "tinyextra", "1.0", requires=["tinydep"])
    write_wheel(no_network, "tinydep", "1.0")
    folder = toys.add_component(root, "overridden", requirements="tinyextra\n")
    (folder / "overrides.txt").write_text("tinydep; python_version < '3'\n")
    assert ensure_venv(folder, settings).provides == {"tinyextra"}


def test_a_local_project_is_installed_from_its_folder(root: Path, settings: VenvSettings, no_network: Path) -> None:
    wheel = write_wheel(no_network / "elsewhere", "localthing", "1.0")
    folder = toys.add_component(root, "local", requirements=f"./{wheel.name}\n")
    wheel.rename(folder / wheel.name)
    venv = ensure_venv(folder, settings)
    assert in_venv(venv.python, "import localthing; print(localthing.VERSION)") == "1.0"


def test_a_pyproject_component_is_read(root: Path, settings: VenvSettings, no_network: Path) -> None:
    write_wheel(no_network, "tinyextra", "1.0")
    folder = toys.add_component(root, "project")
    (folder / "requirements.txt").unlink()
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "project"\nversion = "0"\ndependencies = ["nemo-gym[dev]", "tinyextra"]\n'
        '[tool.uv.sources]\nnemo-gym = { path = "../..", editable = true }\n'
    )
    assert ensure_venv(folder, settings).provides == {"tinyextra"}


def test_a_finished_venv_is_used_again(
    root: Path, settings: VenvSettings, no_network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(no_network, "tinyextra", "1.0")
    folder = toys.add_component(root, "some", requirements="tinyextra\n")
    first = ensure_venv(folder, settings)
    forbid_uv(monkeypatch)
    assert ensure_venv(folder, settings) == first


def test_changed_requirements_rebuild_it(root: Path, settings: VenvSettings, no_network: Path) -> None:
    for name in ("one", "two"):
        write_wheel(no_network, f"tiny{name}", "1.0")
    folder = toys.add_component(root, "some", requirements="tinyone\n")
    assert ensure_venv(folder, settings).provides == {"tinyone"}
    (folder / "requirements.txt").write_text("tinytwo\n")
    assert ensure_venv(folder, settings).provides == {"tinytwo"}
    assert [path.name for path in sorted(venv_path(folder, settings.root).parent.iterdir())] == [
        ".venv",
        ".venv.setup.lock",
    ]


def test_changed_packages_of_the_base_rebuild_it(
    root: Path, settings: VenvSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = toys.add_component(root, "plain")
    ensure_venv(folder, settings)
    marker = settings.root / "resources_servers/plain/.venv/marker"  # type: ignore[operator]
    marker.write_text("")
    ensure_venv(folder, settings)
    assert marker.exists()
    monkeypatch.setattr("nemo_gym.launch.interpreter._distributions", lambda _: ["another-1.0.dist-info"])
    this_installation.cache_clear()
    try:
        ensure_venv(folder, settings)
    finally:
        this_installation.cache_clear()
    assert not marker.exists()


def test_skipping_takes_a_finished_venv_without_a_look(root: Path, settings: VenvSettings) -> None:
    folder = toys.add_component(root, "plain")
    ensure_venv(folder, settings)
    (folder / "requirements.txt").write_text("nothing-that-exists==0\n")
    skipping = VenvSettings(root=settings.root, skip_if_present=True)
    assert ensure_venv(folder, skipping).kind == "ours"


def test_a_failed_build_leaves_nothing_that_a_later_run_could_take(
    root: Path, settings: VenvSettings, no_network: Path
) -> None:
    """B17: an environment that failed to build is not there."""
    folder = toys.add_component(root, "broken", requirements="nothing-that-exists\n")
    skipping = VenvSettings(root=settings.root, skip_if_present=True)
    for _ in range(2):
        with pytest.raises(VenvError, match="nothing-that-exists"):
            ensure_venv(folder, skipping)
    assert [path.name for path in venv_path(folder, settings.root).parent.iterdir()] == [".venv.setup.lock"]
    write_wheel(no_network, "nothing-that-exists", "1.0")
    assert ensure_venv(folder, skipping).provides == {"nothing_that_exists"}


def test_what_a_killed_builder_left_is_removed(root: Path, settings: VenvSettings) -> None:
    """B17: killed in the middle of it."""
    folder = toys.add_component(root, "plain")
    half = venv_path(folder, settings.root).with_name(".venv.building-1-abc")
    (half / "bin").mkdir(parents=True)
    ensure_venv(folder, settings)
    assert not half.exists()


def test_a_foreign_venv_that_can_import_is_taken_as_it_is(
    root: Path, settings: VenvSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_uv(monkeypatch)
    folder = toys.add_component(root, "foreign", requirements="nothing-that-exists\n")
    make_foreign(venv_path(folder, settings.root))
    venv = ensure_venv(folder, settings)
    assert venv.kind == "foreign"
    assert ensure_venv(folder, settings) == venv


def test_a_half_built_foreign_venv_is_not(root: Path, settings: VenvSettings) -> None:
    """B17: what was half built by others is seen by an import probe."""
    folder = toys.add_component(root, "half", "import surely_missing\n")
    path = venv_path(folder, settings.root)
    make_foreign(path)
    lines: list[str] = []
    venv = ensure_venv(folder, VenvSettings(root=settings.root, skip_if_present=True), report=lines.append)
    assert venv.kind == "ours"
    assert lines == [
        f"(resources_servers/half) The venv {path} is not used: it lacks surely_missing. Building it anew."
    ]


def test_imports_that_may_fail_are_not_probed(root: Path, settings: VenvSettings) -> None:
    source = "try:\n    import surely_missing\nexcept ImportError:\n    pass\ndef f():\n    import also_missing\n"
    folder = toys.add_component(root, "lenient", source)
    make_foreign(venv_path(folder, settings.root))
    assert ensure_venv(folder, settings).kind == "foreign"


@pytest.mark.parametrize("skip", [True, False])
def test_a_venv_whose_interpreter_is_gone_is_built_anew(root: Path, settings: VenvSettings, skip: bool) -> None:
    folder = toys.add_component(root, "gone")
    python = ensure_venv(folder, settings).python
    python.unlink()
    python.symlink_to("/nowhere/python3")
    venv = ensure_venv(folder, VenvSettings(root=settings.root, skip_if_present=skip))
    assert in_venv(venv.python, "print(1)") == "1"


def test_where_nothing_can_be_written_the_base_will_do(
    root: Path, settings: VenvSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venvs, "can_write_below", lambda _: False)
    venv = ensure_venv(toys.add_component(root, "plain"), settings)
    assert (venv.kind, venv.python) == ("base", this_installation().executable)


def test_where_nothing_can_be_written_packages_are_one_sentence(
    root: Path, settings: VenvSettings, no_network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venvs, "can_write_below", lambda _: False)
    write_wheel(no_network, "tinyextra", "1.0")
    folder = toys.add_component(root, "needs", requirements="tinyextra\n")
    with pytest.raises(VenvError, match=r"needs packages of its own, and .* can't be written: set \+uv_venv_dir"):
        ensure_venv(folder, settings)


def test_a_folder_that_is_no_folder_is_one_sentence(root: Path) -> None:
    (root / "file").write_text("")
    with pytest.raises(VenvError, match=r"can't be written"):
        ensure_venv(toys.add_component(root, "plain"), VenvSettings(root=root / "file"))


def test_tests_keep_what_tests_need(root: Path, settings: VenvSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def spy(requirements: Requirements, *_: object) -> Difference:
        seen.append(requirements.self_line)
        return Difference((), ())

    monkeypatch.setattr(venvs, "difference", spy)
    folder = toys.add_component(root, "plain")
    plain = ensure_venv(folder, settings)
    tested = ensure_venv(folder, settings, for_tests=True)
    assert [line and line.partition("==")[0] for line in seen] == ["nemo-gym[dev]"]
    assert ensure_venv(folder, settings) == tested == plain, "it also serves"


def test_builders_take_turns(root: Path, settings: VenvSettings) -> None:
    folder = toys.add_component(root, "plain")
    lock = venv_path(folder, settings.root).with_name(".venv.setup.lock")
    lock.parent.mkdir(parents=True)
    waiting = threading.Event()
    done: list[str] = []
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        builder = threading.Thread(
            target=lambda: done.append(ensure_venv(folder, settings, report=lambda _: waiting.set()).kind)
        )
        builder.start()
        assert waiting.wait(20)
        builder.join(0.3)
        assert done == []
    builder.join(20)
    assert done == ["ours"]


def test_the_stamp_is_the_last_thing_written(
    root: Path, settings: VenvSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    folder = toys.add_component(root, "plain")
    monkeypatch.setattr(venvs, "_move_into_place", fail)
    with pytest.raises(VenvError, match="disk full"):
        ensure_venv(folder, settings)
    assert not venv_path(folder, settings.root).exists()


@pytest.mark.parametrize(
    ("configured", "expected"),
    [("/srv/venvs", "/srv/venvs/resources_servers/mcqa/.venv"), (None, "/opt/x/resources_servers/mcqa/.venv")],
)
def test_where_a_venv_lives(configured: str | None, expected: str) -> None:
    root = VenvSettings.from_config({"uv_venv_dir": configured}).root
    assert str(venv_path(Path("/opt/x/resources_servers/mcqa"), root)) == expected


def test_the_install_root_itself_means_the_components_own_folders(tmp_path: Path) -> None:
    from nemo_gym.config.roots import PARENT_DIR

    link = tmp_path / "link"
    link.symlink_to(PARENT_DIR)
    for spelling in (PARENT_DIR, link):
        assert VenvSettings.from_config({"uv_venv_dir": str(spelling)}).root is None


def test_missing_and_double_manifests_are_one_sentence(root: Path, settings: VenvSettings) -> None:
    folder = toys.add_component(root, "plain")
    (folder / "pyproject.toml").write_text("[project]\nname='x'\n")
    with pytest.raises(VenvError, match=r"has both requirements\.txt and pyproject\.toml"):
        ensure_venv(folder, settings)
    (folder / "pyproject.toml").unlink()
    (folder / "requirements.txt").unlink()
    with pytest.raises(VenvError, match=r"has no requirements\.txt"):
        ensure_venv(folder, settings)


def make_foreign(venv: Path) -> None:
    write_bare_venv(venv, this_installation())
    link_base(venv, this_installation())
    assert not (venv / STAMP_NAME).exists()


def test_a_stamp_that_is_damaged_counts_as_none(root: Path, settings: VenvSettings) -> None:
    venv = ensure_venv(toys.add_component(root, "plain"), settings)
    (venv.path / STAMP_NAME).write_text(json.dumps({"digest": 1, "unknown": 2}))
    assert read_stamp(venv.path) is None
    assert os.access(venv.python, os.X_OK)
