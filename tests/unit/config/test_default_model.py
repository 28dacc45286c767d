"""Which model a run without `--model-type` gets."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.cli.composing import with_default_model
from nemo_gym.config.default_model import EMBEDDED_MODEL_CONFIG, DefaultModel, default_model
from nemo_gym.config.errors import ConfigError, ConfigPathNotFoundError

Write = Callable[[str, str], Path]
AGENT = """
a_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      model_server: {type: responses_api_models, name: policy_model}
"""
MODEL = "policy_model: {responses_api_models: {openai_model: {entrypoint: app.py}}}"


@pytest.fixture(autouse=True)
def agent_config(write: Write) -> None:
    write("agent.yaml", AGENT)


def test_servers_that_call_an_undefined_policy_model_get_the_embedded_one() -> None:
    model = default_model(["+config_paths=[agent.yaml]"])
    assert model.config_path == EMBEDDED_MODEL_CONFIG
    assert model.notice is not None and "--model-type" in model.notice


def test_a_defined_policy_model_wins(write: Write) -> None:
    write("model.yaml", MODEL)
    assert default_model(["+config_paths=[agent.yaml,model.yaml]"]) == DefaultModel()
    write("env.yaml", MODEL)
    assert default_model(["+config_paths=[agent.yaml]"]) == DefaultModel()


def test_an_inherited_policy_model_counts(write: Write) -> None:
    write(
        "model.yaml", "policy_model: {_inherit_from: other}\nother: {responses_api_models: {m: {entrypoint: app.py}}}"
    )
    assert default_model(["+config_paths=[agent.yaml,model.yaml]"]) == DefaultModel()


def test_overriding_a_field_of_the_embedded_model_does_not_define_it() -> None:
    override = "+policy_model.responses_api_models.llama_cpp_model.model_path=x.gguf"
    assert default_model(["+config_paths=[agent.yaml]", override]).config_path == EMBEDDED_MODEL_CONFIG


@pytest.mark.parametrize("override", ["+policy_base_url=http://x/v1", "+policy_base_url=[http://x,http://y]"])
def test_an_address_without_a_kind_of_server_is_asked_about(override: str) -> None:
    with pytest.raises(ConfigError, match="--model-type"):
        default_model(["+config_paths=[agent.yaml]", override])


@pytest.mark.parametrize("text", ["policy_base_url: ''", "policy_base_url:", "policy_base_url: ${oc.env:NOT_SET}"])
def test_an_address_that_is_empty_counts_as_none(write: Write, text: str) -> None:
    write("env.yaml", text)
    assert default_model(["+config_paths=[agent.yaml]"]).config_path == EMBEDDED_MODEL_CONFIG


def test_an_address_matters_only_where_a_policy_model_is_called(write: Write) -> None:
    write("other.yaml", "policy_model_name: x\nlike_policy_model_y: 1")
    assert default_model(["+config_paths=[other.yaml]", "+policy_base_url=http://x"]) == DefaultModel()


def test_a_policy_model_inside_an_interpolation_is_called(write: Write) -> None:
    write("other.yaml", "x: ${policy_model.responses_api_models}")
    assert default_model(["+config_paths=[other.yaml]"]).config_path == EMBEDDED_MODEL_CONFIG


def test_warnings_are_left_to_composing(capsys: pytest.CaptureFixture[str]) -> None:
    default_model(["+config_paths=[agent.yaml,agent.yaml]"])
    assert capsys.readouterr().err == ""


def test_what_cannot_be_read_is_said_here_already() -> None:
    with pytest.raises(ConfigPathNotFoundError):
        default_model(["+config_paths=[gone.yaml]"])


def test_the_embedded_model_lies_beneath_everything_else(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded = "policy_model: {responses_api_models: {llama_cpp_model: {entrypoint: app.py, a: 0, b: 0, c: 0, d: 0}}}"
    write(EMBEDDED_MODEL_CONFIG, embedded)
    place = "policy_model: {responses_api_models: {llama_cpp_model: "
    write("a.yaml", "config_paths: [agent.yaml]\n" + place + "{b: file, c: file, d: file}}}")
    write("env.yaml", place + "{c: env, d: env}}}")
    field = "++policy_model.responses_api_models.llama_cpp_model.d=typed"
    monkeypatch.setattr("sys.argv", ["gym", "+config_paths=[a.yaml]", field])
    block = with_default_model().policy_model.responses_api_models.llama_cpp_model
    assert (block.a, block.b, block.c, block.d) == (0, "file", "env", "typed")
