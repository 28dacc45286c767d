"""Text completions, audio, and the file that names the engine."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nemo_gym.config.errors import ConfigError
from responses_api_models.vllm_model.audio import attach_audio
from responses_api_models.vllm_model.endpoints import EndpointFile
from responses_api_models.vllm_model.errors import RefusedRequest, StaleEndpoint
from responses_api_models.vllm_model.tests.serving import CHAT, QUESTION, make_client, make_server, post
from tests.mock_provider import MockProvider, Reply
from tests.mock_provider.tokens import tokenize

TEXT = "/v1/completions"


# --- completions ------------------------------------------------------------------------------------------------------


def completions(mock: MockProvider, body: dict[str, Any], **config: Any) -> dict[str, Any]:
    client = make_client(mock, use_completions_api=True, **config)
    answer = post(client, CHAT, {"messages": [QUESTION], **body})
    assert mock.requests[-1].path != CHAT
    return answer


def test_one_user_message_is_the_prompt(mock: MockProvider) -> None:
    options = {"max_completion_tokens": 4, "stop": "\n", "seed": 1, "temperature": 0.0, "presence_penalty": 0.5}
    answer = completions(mock, {**options, "metadata": {"extra_body": '{"top_k": 2}'}}, extra_body={"min_p": 0.1})
    assert answer["choices"][0]["message"]["content"] == "Not much."
    assert answer["usage"]["completion_tokens"] == 2
    del options["max_completion_tokens"]
    common = {"model": "forced", "prompt": "What is up?", "max_tokens": 4, "top_k": 2, "min_p": 0.1}
    assert mock.last_body == options | common


def test_system_and_user_are_joined(mock: MockProvider) -> None:
    parts = [{"type": "text", "text": "What"}, {"type": "text", "text": " is up?"}]
    completions(mock, {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]})
    assert mock.last_body["prompt"] == "Be brief.\n\nWhat is up?"


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [QUESTION, {"role": "assistant", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
    ],
)
def test_what_has_no_place_in_a_prompt_is_a_400(mock: MockProvider, body: dict[str, Any]) -> None:
    reply = make_client(mock, use_completions_api=True).post(CHAT, json={"messages": [QUESTION], **body})
    assert reply.status_code == 400 and "use_completions_api" in reply.json()["detail"]


def test_responses_through_completions(mock: MockProvider) -> None:
    answer = post(make_client(mock, use_completions_api=True), "/v1/responses", {"input": "What is up?"})
    assert answer["output"][0]["content"][0]["text"] == "Not much."


def test_log_probs_of_completions(mock: MockProvider) -> None:
    completions(mock, {"logprobs": True, "top_logprobs": 3})
    assert mock.last_body["logprobs"] == 3


def test_tokens_of_completions(mock: MockProvider) -> None:
    message = completions(mock, {}, return_token_id_information=True)["choices"][0]["message"]
    assert message["generation_token_ids"] == tokenize("Not much.")
    assert message["prompt_token_ids"] == tokenize("What is up?")
    assert mock.last_body["return_token_ids"] is True and mock.last_body["return_tokens_as_token_ids"] is True
    assert mock.bodies("/tokenize") == []


def test_prompt_tokens_of_completions_that_are_not_inline(mock: MockProvider) -> None:
    logprobs = {"tokens": ["token_id:4"], "token_logprobs": [-0.5]}
    choice = {"index": 0, "text": "x", "finish_reason": "stop", "logprobs": logprobs}
    raw = {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    mock.play(Reply(raw=raw))
    answer = completions(mock, {}, return_token_id_information=True)
    assert mock.bodies("/tokenize") == [{"model": "forced", "prompt": "What is up?"}]
    message = answer["choices"][0]["message"]
    assert (message["prompt_token_ids"], message["generation_token_ids"]) == (tokenize("What is up?"), [4])


class FakeTokenizer:
    chat_template: str | None = "template"

    def apply_chat_template(self, messages: Any, **options: Any) -> str:
        self.options = options
        return "|".join(message["content"] for message in messages)


def fake_transformers(monkeypatch: pytest.MonkeyPatch, tokenizer: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {}

    class AutoTokenizer:
        @staticmethod
        def from_pretrained(name: str, **options: Any) -> Any:
            asked.update(name=name, **options)
            if isinstance(tokenizer, Exception):
                raise tokenizer
            return tokenizer

    module = ModuleType("transformers")
    module.AutoTokenizer = AutoTokenizer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", module)
    return asked


def test_a_chat_template_renders_the_prompt(mock: MockProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = FakeTokenizer()
    asked = fake_transformers(monkeypatch, tokenizer)
    history = [QUESTION, {"role": "assistant", "content": "So"}, QUESTION]
    tool = {"type": "function", "function": {"name": "f"}}
    completions(mock, {"messages": history, "tools": [tool]}, render_chat_template=True, chat_template_kwargs={"a": 1})
    assert mock.last_body["prompt"] == "What is up?|So|What is up?"
    assert asked == {"name": "forced", "trust_remote_code": True}
    assert tokenizer.options == {"tools": [tool], "tokenize": False, "add_generation_prompt": True, "a": 1}


def test_tokenizers_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"use_completions_api": True, "render_chat_template": True, "tokenizer": "some/thing"}
    fake_transformers(monkeypatch, OSError("no such model"))
    with pytest.raises(ConfigError, match=r"some/thing.*no such model"):
        make_server("http://x/v1", **config)
    tokenizer = FakeTokenizer()
    tokenizer.chat_template = None
    fake_transformers(monkeypatch, tokenizer)
    with pytest.raises(ConfigError, match="no chat template"):
        make_server("http://x/v1", **config)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match="needs the package transformers"):
        make_server("http://x/v1", **config)


# --- audio ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "audio"
    folder.mkdir()
    for name in ("a.wav", "b.MP3", "notes.txt"):
        (folder / name).write_bytes(name.encode())
    (tmp_path / "secret.wav").write_bytes(b"secret")
    return folder


def attached(root: Path | None, messages: list[dict[str, Any]] | None = None, **metadata: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": [QUESTION] if messages is None else messages, "metadata": metadata}
    attach_audio(body, root)
    return body


def uri(media_type: str, content: str) -> dict[str, Any]:
    encoded = base64.b64encode(content.encode()).decode()
    return {"type": "audio_url", "audio_url": {"url": f"data:{media_type};base64,{encoded}"}}


def test_audio_goes_before_the_last_user_text(root: Path) -> None:
    body = attached(root, [QUESTION, {"role": "assistant", "content": "So"}, QUESTION], audio_path="a.wav", id="1")
    assert body["messages"][0] == QUESTION
    assert body["messages"][2]["content"] == [uri("audio/wav", "a.wav"), {"type": "text", "text": "What is up?"}]
    assert body["metadata"] == {"id": "1"}


def test_several_files_and_no_user_message(root: Path) -> None:
    system = {"role": "system", "content": "Listen."}
    body = attached(root, [system], audio_paths='["a.wav", "b.MP3"]')
    blocks = [uri("audio/wav", "a.wav"), uri("audio/mpeg", "b.MP3")]
    assert body["messages"] == [system, {"role": "user", "content": blocks}]
    assert "metadata" not in body


def test_audio_data_as_it_is() -> None:
    body = attached(None, audio_data="data:audio/wav;base64,AAAA")
    assert body["messages"][0]["content"][0]["audio_url"]["url"] == "data:audio/wav;base64,AAAA"


def test_an_absolute_path_needs_no_root(root: Path) -> None:
    assert attached(None, audio_path=str(root / "a.wav"))["messages"][0]["content"][0] == uri("audio/wav", "a.wav")


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"audio_path": "a.wav", "audio_data": "data:x"}, "once"),
        ({"audio_data": "AAAA"}, "data: URI"),
        ({"audio_path": "notes.txt"}, "only"),
        ({"audio_path": "missing.wav"}, "can't be read"),
        ({"audio_path": "../secret.wav"}, "outside"),
        ({"audio_paths": "a.wav"}, "list of paths"),
        ({"audio_paths": "[]"}, "list of paths"),
    ],
)
def test_audio_that_is_refused(root: Path, metadata: dict[str, Any], words: str) -> None:
    with pytest.raises(RefusedRequest, match=words):
        attached(root, None, **metadata)


def test_symlinks_and_absolute_paths_stay_inside_the_root(root: Path) -> None:
    (root / "link.wav").symlink_to(root.parent / "secret.wav")
    for path in ("link.wav", str(root.parent / "secret.wav")):
        with pytest.raises(RefusedRequest, match="outside"):
            attached(root, audio_path=path)
    with pytest.raises(RefusedRequest, match="audio_root"):
        attached(None, audio_path="a.wav")


def test_audio_reaches_the_engine(mock: MockProvider, root: Path) -> None:
    client = make_client(mock, audio_root=str(root))
    post(client, "/v1/responses", {"input": "What is said?", "metadata": {"audio_path": "a.wav"}})
    assert mock.last_body["messages"][0]["content"][0] == uri("audio/wav", "a.wav")
    assert client.post(CHAT, json={"messages": [QUESTION], "metadata": {"audio_path": "no.wav"}}).status_code == 400


# --- the endpoint file ------------------------------------------------------------------------------------------------


def test_the_file_is_looked_at_once_per_interval(tmp_path: Path) -> None:
    file = tmp_path / "engine"
    file.write_text("http://a/v1")
    endpoint = EndpointFile(file, interval=10, grace=30)
    assert endpoint.changed_url(0) == "http://a/v1"
    file.write_text("http://b/v1\n")
    assert endpoint.changed_url(9) is None
    assert endpoint.changed_url(10) == "http://b/v1"
    assert endpoint.changed_url(20) is None


@pytest.mark.parametrize("content", [None, " \n"])
def test_a_file_without_an_address_is_an_error_after_the_grace(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "engine"
    file.write_text("http://a/v1")
    endpoint = EndpointFile(file, interval=10, grace=30)
    endpoint.changed_url(0)
    file.unlink()
    if content is not None:
        file.write_text(content)
    assert endpoint.changed_url(10) is None
    assert endpoint.changed_url(40) is None
    for now in (41, 50):
        with pytest.raises(StaleEndpoint, match="no address"):
            endpoint.changed_url(now)
    file.write_text("http://a/v1")
    assert endpoint.changed_url(60) is None
    file.write_text("http://b/v1")
    assert endpoint.changed_url(70) == "http://b/v1"
