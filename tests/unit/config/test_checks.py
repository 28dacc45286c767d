"""What is refused, and that it is all said at once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.config.errors import (
    AlmostServerError,
    ConfigError,
    ConfigMissingValuesError,
    NoServerInstancesError,
    ServerRefNotFoundError,
    UnsupportedModelPairingError,
)
from nemo_gym.config.instances import server_instances
from nemo_gym.global_config import GlobalConfigDictParser
from tests.unit.config.conftest import agent, composed, model, parsed, resources

Write = Callable[[str, str], Path]


def test_everything_wrong_is_said_at_once_with_file_and_key(write: Write) -> None:
    write(
        "bad.yaml",
        """
        one_env:
          resources_servers: {one: {entrypoint: app.py, domain: maths}}
        two_agent:
          responses_api_agents:
            simple_agent:
              entrypoint: app.py
              resources_server: {type: resources_servers, name: one_evn}
              model_server: {type: responses_api_models, name: policy_model}
              key: "???"
              datasets: [{name: d, type: train, jsonl_fpath: x.jsonl}]
        server_spinup_timeout_seconds: soon
        """,
    )
    with pytest.raises(ConfigError) as caught:
        parsed("+config_paths=[bad.yaml]", "+dry_run=maybe")
    text = str(caught.value)
    assert len(caught.value.problems) == 7
    for said in (
        "two_agent.responses_api_agents.simple_agent.key (bad.yaml)",
        "one_env.resources_servers.one.domain (bad.yaml) must be one of",
        "A license is required for d",
        "resources_server (bad.yaml) refers to resources_servers `one_evn`",
        "refers to responses_api_models `policy_model`",
        "server_spinup_timeout_seconds must be a number of seconds, not 'soon'",
        "dry_run must be true or false, not 'maybe'",
    ):
        assert said in text


def test_missing_values_are_listed_with_examples() -> None:
    with pytest.raises(ConfigMissingValuesError) as caught:
        composed({"a": {"b": "???", "c": [1, {"d": "???"}]}, "e": "???"})
    assert "a.b" in str(caught.value) and "a.c[1].d" in str(caught.value)
    assert str(caught.value).endswith("For example: ++a.b=<value> ++e=<value>")


def test_a_missing_value_in_a_later_layer_does_not_hide_an_earlier_one(write: Write) -> None:
    write("a.yaml", "x: 1")
    write("b.yaml", "x: ???")
    assert parsed("+config_paths=[a.yaml,b.yaml]").x == 1


def test_a_reference_to_nobody_offers_what_there_is() -> None:
    with pytest.raises(ServerRefNotFoundError, match="Did you mean `tiny_env`"):
        composed({"tiny_env": resources(), "a": agent(serves="tiny_en"), "policy_model": model()})
    with pytest.raises(ServerRefNotFoundError, match="The resources_servers there are: tiny_env"):
        composed({"tiny_env": resources(), "a": agent(serves="xyz"), "policy_model": model()})
    with pytest.raises(ServerRefNotFoundError, match="add one with --model-type"):
        composed({"tiny_env": resources(), "a": agent()})


def test_a_reference_must_name_an_instance_of_its_type() -> None:
    with pytest.raises(ServerRefNotFoundError, match="`policy_model`"):
        composed({"tiny_env": resources(), "policy_model": resources(), "a": agent()})


def test_a_deeper_reference_to_nobody_is_only_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    judges = [{"model": {"type": "responses_api_models", "name": "judge"}}]
    composed({"tiny_env": resources(judges=judges)})
    assert "tiny_env.resources_servers.tiny.judges[0].model (the initial config) refers to" in capsys.readouterr().err


def test_references_through_interpolations_are_followed() -> None:
    config = {"tiny_env": resources(), "policy_model": model(), "a": agent()}
    config["a"]["responses_api_agents"]["simple_agent"]["model_server"] = "${which}"
    ok = {"type": "responses_api_models", "name": "policy_model"}
    assert "a" in composed({**config, "which": ok})
    with pytest.raises(ServerRefNotFoundError):
        composed({**config, "which": {**ok, "name": "gone"}})


def test_a_block_that_is_nearly_a_server_may_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    config = {"bad": resources(domain="maths"), "good": resources()}
    with pytest.raises(AlmostServerError, match="error_on_almost_servers=false"):
        composed(config)
    result = composed({**config, "error_on_almost_servers": False})
    assert "(the server is left out)" in capsys.readouterr().err
    assert [instance.name for instance in server_instances(result)] == ["good"]
    assert "port" not in result.bad.resources_servers.tiny


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ({"name": "d", "type": "train", "jsonl_fpath": "x"}, "A license is required for d"),
        (
            {"name": "d", "type": "train", "jsonl_fpath": "x", "license": "WTFPL"},
            r"datasets\[0\]\.license .*must be one of",
        ),
        ({"name": "d", "type": "trian", "jsonl_fpath": "x"}, "has a type 'trian', which must be one of 'train'"),
        ({"name": "d", "type": "benchmark", "jsonl_fpath": "x"}, r"datasets\[0\]\.prepare_script .*is missing"),
    ],
)
def test_data_sets_are_checked_without_noise(dataset: dict[str, str], said: str) -> None:
    with pytest.raises(AlmostServerError, match=said) as caught:
        composed({"tiny_env": resources(datasets=[dataset])})
    assert caught.value.problems == ()


def test_one_implementation_per_instance() -> None:
    two = {
        "resources_servers": {"a": {"entrypoint": "x", "domain": "math"}, "b": {"entrypoint": "x", "domain": "math"}}
    }
    with pytest.raises(AlmostServerError, match="exactly one implementation"):
        composed({"two": two})


def test_scratch_mappings_are_no_servers() -> None:
    config = composed({"scratch": {"resources_servers": {"a": {"limit": 1}}}, "other": {"x": 1}})
    assert server_instances(config) == []


def test_a_config_without_a_server_is_refused_where_servers_are_started() -> None:
    parser = GlobalConfigDictParser()
    with pytest.raises(NoServerInstancesError, match="no config file loaded"):
        parser.raise_on_no_server_instances(composed({"x": 1}))
    parser.raise_on_no_server_instances(composed({"tiny_env": resources()}))


def test_the_resources_server_must_allow_the_kind_of_model(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "tiny_env": resources(allowed_model_types=["vllm_model"]),
        "a": agent(),
        "policy_model": model("openai_model"),
    }
    with pytest.raises(UnsupportedModelPairingError, match="use --model-type vllm_model"):
        composed(config)
    assert "a" in composed({**config, "policy_model": model("dummy_model")})
    assert "a" in composed({**config, "policy_model": model("vllm_model")})
    assert "a" in composed({**config, "allow_unsupported_pairing": True})
    monkeypatch.setenv("NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING", "true")
    assert "a" in composed(config)


def test_compatibility_fields_must_be_names() -> None:
    with pytest.raises(ConfigError, match="allowed_model_types of `tiny_env` must be a list of names, not 3"):
        composed({"tiny_env": resources(allowed_model_types=3), "a": agent(), "policy_model": model()})


def test_a_stand_in_model_gives_way_to_a_real_one() -> None:
    both = {"responses_api_models": {"dummy_model": {"entrypoint": "app.py", "x": 1}, "vllm_model": {"x": 2}}}
    real = composed({"policy_model": both}).policy_model.responses_api_models.vllm_model
    assert (real.entrypoint, real.x) == ("app.py", 2)
    assert list(composed({"policy_model": both}).policy_model.responses_api_models) == ["vllm_model"]
    assert list(composed({"policy_model": model("dummy_model")}).policy_model.responses_api_models) == ["dummy_model"]


def test_a_key_that_is_no_key_of_a_config_is_said_in_words(write: Write) -> None:
    write("a.yaml", "? [1, 2]\n: x")
    with pytest.raises(ConfigError, match=r"a\.yaml"):
        parsed("+config_paths=[a.yaml]")
