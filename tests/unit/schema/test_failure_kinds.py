"""The vocabulary of failures."""

import warnings
from typing import get_args

import pytest

from nemo_gym import failure_kinds
from nemo_gym.schema import failure_kinds as room


@pytest.fixture(autouse=True)
def nothing_warned_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_warned", set())


def test_every_kind_is_a_constant_of_its_own_name() -> None:
    assert len(failure_kinds.FAILURE_KINDS) == 22
    for kind in failure_kinds.FAILURE_KINDS:
        assert getattr(failure_kinds, kind.upper()) == kind
        assert failure_kinds.is_registered(kind)


def test_the_stages() -> None:
    assert get_args(failure_kinds.FailureStage) == ("admission", "seed", "agent", "verification", "cleanup")


@pytest.mark.parametrize("name", ["swe:patch_failed", "a:b", "a1_b:c_2"])
def test_namespaced(name: str) -> None:
    assert failure_kinds.is_namespaced(name)
    assert not failure_kinds.is_registered(name)


@pytest.mark.parametrize("name", ["judge_failed", "A:b", "a:B", "a:", ":b", "a:b:c", "1a:b", "a:b\n", ""])
def test_not_namespaced(name: str) -> None:
    assert not failure_kinds.is_namespaced(name)


@pytest.mark.parametrize("name", [None, "judge_failed", "swe:patch_failed"])
def test_known_names_pass_silently(name: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert failure_kinds.validate_failure_kind(name) == name


def test_an_unknown_name_passes_with_one_warning() -> None:
    with pytest.warns(UserWarning, match="odd_failure"):
        assert failure_kinds.validate_failure_kind("odd_failure") == "odd_failure"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert failure_kinds.validate_failure_kind("odd_failure") == "odd_failure"
