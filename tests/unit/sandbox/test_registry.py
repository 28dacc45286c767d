"""Providers by name."""

from __future__ import annotations

import warnings
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml

from nemo_gym.sandbox import (
    create_provider,
    get_provider_class,
    list_providers,
    register_provider,
    resolve_provider_config,
)
from nemo_gym.sandbox.providers import registry
from nemo_gym.sandbox.providers.local import LocalProvider
from tests.unit.sandbox.fakes import FakeProvider


@pytest.fixture(autouse=True)
def fresh_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def offer(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, str]) -> None:
    points = [EntryPoint(name, value, registry.ENTRY_POINT_GROUP) for name, value in entries]
    monkeypatch.setattr(registry, "entry_points", lambda *, group: points)


def test_built_in_providers_are_listed() -> None:
    assert {"apptainer", "docker", "local"} <= set(list_providers())


def test_a_registered_provider_is_made_with_its_options() -> None:
    register_provider("mine", FakeProvider)
    provider = create_provider({"mine": {"size": 3}})
    assert isinstance(provider, FakeProvider)
    assert provider.options == {"size": 3}
    assert "mine" in list_providers()


def test_a_taken_name_needs_override() -> None:
    with pytest.raises(ValueError, match="override=True"):
        register_provider("local", FakeProvider)
    register_provider("local", FakeProvider, override=True)
    assert get_provider_class("local") is FakeProvider


def test_no_options_mean_the_defaults() -> None:
    assert isinstance(create_provider({"local": None}), LocalProvider)


@pytest.mark.parametrize("config", [{}, {"local": {}, "docker": {}}])
def test_a_config_names_one_provider(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="one name"):
        create_provider(config)


def test_an_unknown_provider_lists_all() -> None:
    with pytest.raises(ValueError, match=r"there are apptainer, docker, local, namespaces\. Did you mean `local`"):
        create_provider({"locl": {}})


def test_a_provider_of_upstream_that_is_missing_is_said_to_be() -> None:
    with pytest.raises(ValueError, match="isn't part of this package"):
        get_provider_class("daytona")


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(ValueError, match="colour"):
        create_provider({"local": {"colour": 1}})


def test_packages_offer_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("theirs", "tests.unit.sandbox.fakes:FakeProvider"))
    assert get_provider_class("theirs") is FakeProvider
    assert "theirs" in list_providers()


def test_two_packages_may_not_offer_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("theirs", "a:A"), ("theirs", "b:B"))
    with pytest.raises(ValueError, match="a:A and b:B"):
        list_providers()


def test_a_hidden_offer_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("local", "tests.unit.sandbox.fakes:FakeProvider"))
    with pytest.warns(UserWarning, match="hides"):
        assert get_provider_class("local") is LocalProvider
    register_provider("local", FakeProvider, override=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert get_provider_class("local") is FakeProvider


@pytest.mark.parametrize("name", ["local", "docker"])
def test_the_shipped_config_of_a_provider_makes_it(name: str) -> None:
    path = Path(registry.__file__).parent / name / "configs" / f"{name}.yaml"
    config = resolve_provider_config("sandbox", yaml.safe_load(path.read_text(encoding="utf-8")))
    assert create_provider(config).name == name
