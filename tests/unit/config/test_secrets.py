"""What is hidden, and what must stay readable."""

import pytest
from omegaconf import OmegaConf

from nemo_gym.config.secrets import Redactor, secret_values
from nemo_gym.secret_utils import (
    hide_secrets_in_overrides,
    looks_like_secret_key,
    recursively_hide_secrets,
    redacted,
)
from tests.unit.config.conftest import composed, plain


@pytest.mark.parametrize(
    "name",
    [
        "policy_api_key", "openai_api_key", "hf_token", "mlflow_tracking_token", "wandb_api_key", "tavily_key", "key",
        "keys", "api_keys", "aws_access_key_id", "PASSWORD", "db_password", "clientSecret", "X-Api-Key", "auth",
        "cookie", "session_cookie", "bearer", "credentials", "default_headers", "access_tokens", "private_key_path",
        "APIKey", "openaiApiKey", "token", "Authorization",
    ],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert looks_like_secret_key(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_output_tokens", "key_metrics", "tokenizer", "tokenizer_path", "max_tokens", "answer_key", "sort_key",
        "eos_token", "pad_token", "_delete_key", "return_token_id_information", "token_id_capture", "num_tokens",
        "author", "keyboard", "policy_base_url", "prompt_token_ids", "public_key", "cache_key", "monkey",
    ],
)  # fmt: skip
def test_names_of_other_things(name: str) -> None:
    assert not looks_like_secret_key(name)


def test_hiding_is_by_value_and_never_changes_the_shape() -> None:
    config = {
        "api_key": "sk-1",
        "api_keys": ["a", "b"],
        "pin_token": 1234,
        "use_auth": True,
        "hf_token": None,
        "empty_key": "",
        "missing_key": "???",
        "auth": {"user": "me", "password": "p"},
        "default_headers": {"X-Tenant": "t", "nested": {"a": ["b"]}},
        "list": [{"token": "t"}, ["plain"]],
        "url": "https://me:secret@host/path?x=a@b",
    }
    recursively_hide_secrets(config)
    assert config == {
        "api_key": "****",
        "api_keys": ["****", "****"],
        "pin_token": "****",
        "use_auth": True,
        "hf_token": None,
        "empty_key": "",
        "missing_key": "???",
        "auth": {"user": "me", "password": "****"},
        "default_headers": {"X-Tenant": "****", "nested": {"a": ["****"]}},
        "list": [{"token": "****"}, ["plain"]],
        "url": "https://****@host/path?x=a@b",
    }


def test_a_config_is_masked_in_place_even_where_it_is_read_only() -> None:
    config = OmegaConf.create({"a": {"api_key": "${b}"}, "b": "x", "l": [{"token": "t"}], "m": "???"})
    OmegaConf.set_readonly(config, True)
    recursively_hide_secrets(config)
    assert plain(config) == {"a": {"api_key": "****"}, "b": "x", "l": [{"token": "****"}], "m": "???"}
    assert OmegaConf.is_readonly(config)


def test_the_parser_hides_on_request() -> None:
    assert composed({"a": {"api_key": "sk-1"}}, hide_secrets=True).a.api_key == "****"
    assert composed({"a": {"api_key": "sk-1"}}).a.api_key == "sk-1"


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("+m={api_key: sk-1, model: x}", "+m={api_key: ****, model: x}"),
        ("+m={a: {api_key: 'sk, 1'}, max_output_tokens: 3}", "+m={a: {api_key: ****}, max_output_tokens: 3}"),
        ('+m={"api_key":"sk-1"}', '+m={"api_key":****}'),
        ("+u={url: http://h:1/v1}", "+u={url: http://h:1/v1}"),
        ("+k=${oc.env:KEY}", "+k=${oc.env:KEY}"),
    ],
)
def test_secrets_inside_an_overrides_mapping_are_masked(token: str, shown: str) -> None:
    assert hide_secrets_in_overrides([token]) == [shown]


def test_overrides_are_masked_by_the_last_part_of_the_key() -> None:
    assert hide_secrets_in_overrides(["+a.api_key=x", "++hf_token=y", "+key.limit=3", "word", "+u=http://a:b@h"]) == [
        "+a.api_key=****",
        "++hf_token=****",
        "+key.limit=3",
        "word",
        "+u=http://****@h",
    ]


def test_a_redactor_masks_known_values_in_any_text() -> None:
    redact = Redactor(["sk-abcdef", "sk-abcdef-longer", "s3cret/&quoted", 'has"quote'])
    assert redact("key=sk-abcdef-longer, sk-abcdef!") == "key=****, ****!"
    assert redact("?k=s3cret%2F%26quoted") == "?k=****"
    assert redact('{"k": "has\\"quote"}') == '{"k": "****"}'
    assert redact("http://u:p@h") == "http://****@h"
    assert Redactor()("anything at all") == "anything at all"


def test_short_values_would_take_words_with_them() -> None:
    assert Redactor(["a", "EMPTY", ""])("a banana EMPTY") == "a banana EMPTY"


def test_secret_values_of_a_config_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "from-the-environment")
    config = OmegaConf.create(
        {
            "m": {"api_key": "${k}", "limit": "not secret"},
            "k": "${oc.env:MY_KEY}",
            "bad_token": "${gone}",
            "headers": {"X": "abc123-in-a-header", "Accept": "application/json", "Authorization": "Bearer tok"},
            "url": "http://user:in-a-url@host",
            "pin_token": 123456,
        }
    )
    found = {"abc123-in-a-header", "Bearer tok", "tok", "in-a-url", "123456"}
    assert secret_values(config) == {"from-the-environment", "${gone}", *found}
    assert Redactor.from_config(config)("from-the-environment!") == "****!"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--api-key", "sk-1", "--model", "m"], ["--api-key", "****", "--model", "m"]),
        (["--api-key=sk-1", "--max-tokens=3"], ["--api-key=****", "--max-tokens=3"]),
        (["HF_TOKEN=hf-1", "PATH=/bin"], ["HF_TOKEN=****", "PATH=/bin"]),
        (["--api-key", "--model", "m"], ["--api-key", "--model", "m"]),
        (["--api-key", {"a": "b"}], ["--api-key", {"a": "b"}]),
        (["token", "word"], ["token", "word"]),
        (["a = b", "token = words of a sentence"], ["a = b", "token = words of a sentence"]),
    ],
)
def test_secrets_among_the_arguments_of_a_program(arguments: list[object], shown: list[object]) -> None:
    config = {"args": list(arguments)}
    recursively_hide_secrets(config)
    assert config == {"args": shown}
    hidden = {str(before).rpartition("=")[2] for before, after in zip(arguments, shown, strict=True) if before != after}
    assert secret_values({"args": list(arguments)}) == hidden


def test_a_redacted_config_is_resolved_and_masked_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "from-the-environment")
    config = OmegaConf.create(
        {
            "m": {"api_key": "${oc.env:MY_KEY}", "said": ["with from-the-environment"], "n": 3},
            "from-the-environment": 1,
            "pin_token": 123456,
            "same": 123456,
            "gone": "${nothing}",
        }
    )
    assert redacted(config) == {
        "m": {"api_key": "****", "said": ["with ****"], "n": 3},
        "****": 1,
        "pin_token": "****",
        "same": "****",
        "gone": "${nothing}",
    }
    assert config.m.said[0] == "with from-the-environment"
