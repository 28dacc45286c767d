"""Which provider a config means."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.errors import GymError
from nemo_gym.sandbox import resolve_provider_config, resolve_provider_metadata
from nemo_gym.sandbox.attribution import resolve_attribution

NAMED = {"sandbox": {"local": {"concurrency": 2}, "default_metadata": {"team": "a"}}, "policy_model": {"x": {"y": 1}}}


def test_a_named_block_gives_its_provider_and_metadata() -> None:
    assert resolve_provider_config("sandbox", NAMED) == {"local": {"concurrency": 2}}
    assert resolve_provider_metadata("sandbox", NAMED) == {"team": "a"}


def test_an_inline_block_needs_no_name() -> None:
    assert resolve_provider_config({"docker": None}) == {"docker": {}}
    assert resolve_provider_metadata({"docker": None}) == {}


def test_a_composed_config_becomes_plain_data() -> None:
    config = OmegaConf.create({"n": 4, "sandbox": {"local": {"concurrency": "${n}"}}})
    resolved = resolve_provider_config("sandbox", config)
    assert resolved == {"local": {"concurrency": 4}}
    assert type(resolved["local"]) is dict


def test_what_is_resolved_is_a_copy() -> None:
    block: dict[str, Any] = {"local": {"pass_env": ["A"]}}
    resolve_provider_config(block)["local"]["pass_env"].append("B")
    assert block == {"local": {"pass_env": ["A"]}}


def test_an_unknown_name_lists_the_blocks_that_could_be_meant() -> None:
    with pytest.raises(ValueError, match=r"sandbox configs are: sandbox\. Did you mean `sandbox`"):
        resolve_provider_config("sandbx", NAMED)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("", "empty"),
        ({}, "exactly one provider; it names none"),
        ({"local": {}, "docker": {}}, "exactly one provider; it names local, docker"),
        ({"local": 3}, "must be a mapping"),
        (7, "must be a name or a mapping"),
    ],
)
def test_other_mistakes_are_named(reference: Any, message: str) -> None:
    with pytest.raises(GymError, match=message):
        resolve_provider_config(reference, NAMED)


def test_metadata_must_be_a_mapping() -> None:
    with pytest.raises(GymError, match="default_metadata"):
        resolve_provider_metadata({"local": {}, "default_metadata": [1]})


def test_attribution_prefers_what_is_given_then_our_variables_then_slurms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_TEAM", "ours")
    monkeypatch.setenv("SLURM_JOB_ACCOUNT", "slurms")
    monkeypatch.setenv("SLURM_JOB_NAME", "job")
    monkeypatch.delenv("NEMO_GYM_WORKLOAD", raising=False)
    monkeypatch.delenv("NEMO_GYM_RUN_ID", raising=False)
    found = resolve_attribution({"user": "me"})
    assert (found["team"], found["user"], found["workload"]) == ("ours", "me", "job")
    assert len(found["run"]) == 12
    assert resolve_attribution()["run"] == found["run"]
