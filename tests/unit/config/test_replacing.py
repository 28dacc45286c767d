"""Files that are written in whole or not at all."""

import os
from pathlib import Path

import pytest

from nemo_gym.config.replacing import replacing, write_private


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


def test_a_file_takes_the_place_of_another_when_it_is_whole(place: Path) -> None:
    path = place / "a.txt"
    path.write_text("old")
    path.chmod(0o640)
    with replacing(path) as file:
        file.write("nëw")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text(encoding="utf-8") == "nëw" and path.stat().st_mode & 0o777 == 0o640
    assert list(place.iterdir()) == [path]


@pytest.mark.parametrize("durable", [True, False])
def test_a_new_file_gets_the_mode_of_new_files_or_the_one_asked_for(place: Path, durable: bool) -> None:
    before = os.umask(0o027)
    try:
        for name, mode in (("a", None), ("b", 0o600)):
            with replacing(place / name, mode=mode, durable=durable) as file:
                file.write("x")
    finally:
        os.umask(before)
    assert [(place / name).stat().st_mode & 0o777 for name in "ab"] == [0o640, 0o600]


def test_nothing_is_left_of_what_did_not_end_well(place: Path) -> None:
    path = place / "a.txt"
    path.write_text("old")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), replacing(path) as file:
            file.write("half")
            raise error
    assert path.read_text() == "old" and list(place.iterdir()) == [path]


def test_only_what_is_durable_is_waited_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    for durable in (False, True):
        with replacing(place / "a", durable=durable) as file:
            file.write("x")
        assert len(synced) == durable


def test_a_private_file_is_its_owners_alone_and_whole_or_as_it_was(place: Path) -> None:
    path = place / "secrets"
    path.write_text("old")
    path.chmod(0o644)
    with pytest.raises(UnicodeEncodeError):
        write_private(path, "begun \ud800")
    assert path.read_text() == "old" and list(place.iterdir()) == [path]
    write_private(path, "new")
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o600
