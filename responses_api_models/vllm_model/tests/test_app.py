from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf
from pydantic import ValidationError

from nemo_gym.server_utils import SESSION_ID_KEY
from responses_api_models.vllm_model import app
from responses_api_models.vllm_model.app import VLLMModelConfig
from responses_api_models.vllm_model.tests.serving import CHAT, QUESTION, make_client, make_config, make_server, post
from tests.mock_provider import Fault, MockProvider, Reply, Script, ToolCall

COMPONENT = Path(__file__).parents[1]
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": True}
CHAT_TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def chat(mock: MockProvider, body: dict[str, Any] | None = None, **config: Any) -> dict[str, Any]:
    """The body the engine gets for a chat request."""
    post(make_client(mock, **config), CHAT, {"messages": [QUESTION], **(body or {})})
    return mock.bodies(CHAT)[-1]


# --- dialects ---------------------------------------------------------------------------------------------------------


def test_responses_become_chat_completions(mock: MockProvider) -> None:
    body = {"input": [QUESTION], "instructions": "Be brief.", "max_output_tokens": 9, "temperature": 0.5}
    answer = post(make_client(mock), "/v1/responses", body)
    assert mock.last_body == {
        "messages": [{"role": "system", "content": "Be brief."}, QUESTION],
        "max_tokens": 9,
        "temperature": 0.5,
        "model": "forced",
    }
    (message,) = answer["output"]
    assert message["content"][0]["text"] == "Not much."
    assert answer["usage"]["input_tokens"] > 0 and answer["status"] == "completed"


def test_messages_become_chat_completions(mock: MockProvider) -> None:
    answer = post(make_client(mock), "/v1/messages", {"messages": [QUESTION], "model": "m", "max_tokens": 5})
    assert answer["content"] == [{"type": "text", "text": "Not much."}]
    assert mock.requests[-1].path == CHAT


def test_native_responses_pass_through(mock: MockProvider) -> None:
    client = make_client(
        mock, is_responses_native=True, extra_body={"top_p": 0.1, "user": "u"}, sampling_overrides={"temperature": 0}
    )
    body = {"input": "hi", "include": ["reasoning.encrypted_content"], "top_p": 0.9, "temperature": 1.0}
    assert post(client, "/v1/responses", body)["output"][0]["content"][0]["text"] == "Not much."
    assert mock.requests[-1].path == "/v1/responses"
    assert mock.last_body == {**body, "user": "u", "temperature": 0, "model": "forced"}


def test_a_tool_dialogue_with_reasoning(mock: MockProvider) -> None:
    client = make_client(mock)
    mock.play(Reply(text=None, reasoning="Look first.", tool_calls=(ToolCall("look", {"a": 1}, id="c1"),)))
    output = post(client, "/v1/responses", {"input": [QUESTION], "tools": [TOOL]})["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    assert mock.last_body["tools"] == [CHAT_TOOL]

    mock.play("Done.")
    result = {"type": "function_call_output", "call_id": "c1", "output": "seen"}
    post(client, "/v1/responses", {"input": [QUESTION, *output, result], "tools": [TOOL]})
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    assert mock.last_body["messages"] == [
        QUESTION,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [call],
            "reasoning_content": "Look first.",
            "reasoning": "Look first.",
        },
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
    ]


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter"), ("stop", None)]
)
def test_finish_reasons(mock: MockProvider, finish: str, reason: str | None) -> None:
    mock.play(Reply(text="cut", finish_reason=finish))
    answer = post(make_client(mock), "/v1/responses", {"input": "hi"})
    assert (answer["incomplete_details"] or {}).get("reason") == reason


@pytest.mark.parametrize("message", [{"role": "assistant", "reasoning": "only"}, {"content": None}, None])
def test_messages_without_content_are_empty_answers(mock: MockProvider, message: Any) -> None:
    completion = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    mock.play(Reply(raw={**completion, "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}))
    answer = post(make_client(mock), "/v1/responses", {"input": "hi"})
    assert [item["type"] for item in answer["output"]] == (
        ["reasoning"] if message and len(message) == 2 else ["message"]
    )
    assert answer["usage"] is None


# --- the engine's body ------------------------------------------------------------------------------------------------


def test_the_model_and_only_what_was_asked(mock: MockProvider) -> None:
    assert chat(mock, {"model": "asked", "seed": 1}) == {"messages": [QUESTION], "model": "forced", "seed": 1}


@pytest.mark.parametrize("extra", [{}, {"tool_choice": "auto", "parallel_tool_calls": True}])
def test_empty_tools_are_not_sent(mock: MockProvider, extra: dict[str, Any]) -> None:
    assert chat(mock, {"tools": [], **extra}) == {"messages": [QUESTION], "model": "forced"}


def test_strict_is_not_sent(mock: MockProvider) -> None:
    strict = {"type": "function", "function": {**CHAT_TOOL["function"], "strict": True}}  # type: ignore[dict-item]
    assert chat(mock, {"tools": [strict]})["tools"] == [CHAT_TOOL]


def test_developer_messages(mock: MockProvider) -> None:
    body = {"messages": [{"role": "developer", "content": "x"}, QUESTION]}
    assert chat(mock, body)["messages"][0]["role"] == "developer"
    assert chat(mock, body, replace_developer_role_with_system=True)["messages"][0]["role"] == "system"


def test_extra_body_below_the_request_and_overrides_above(mock: MockProvider) -> None:
    body = {"temperature": 0.5, "metadata": {"extra_body": '{"top_k": 5, "seed": 9, "temperature": 3}'}}
    sent = chat(mock, body, extra_body={"top_k": 1, "min_p": 0.1, "top_p": 1}, sampling_overrides={"top_p": 0.2})
    assert {key: sent[key] for key in ("temperature", "top_k", "seed", "min_p", "top_p")} == {
        "temperature": 0.5,
        "top_k": 5,
        "seed": 9,
        "min_p": 0.1,
        "top_p": 0.2,
    }


@pytest.mark.parametrize(("forward", "asked"), [(False, 1), (True, 2)])
def test_chat_template_kwargs(mock: MockProvider, forward: bool, asked: int) -> None:
    body = {"chat_template_kwargs": {"a": 2}, "metadata": {"chat_template_kwargs": '{"b": 3}'}}
    config = {"chat_template_kwargs": {"a": 1, "b": 1, "c": 1}, "forward_request_chat_template_kwargs": forward}
    assert chat(mock, body, **config)["chat_template_kwargs"] == {"a": asked, "b": 3, "c": 1}


def test_chat_template_kwargs_that_are_dropped_are_warned_of_once(
    mock: MockProvider, caplog: pytest.LogCaptureFixture
) -> None:
    client = make_client(mock)
    for _ in range(2):
        post(client, CHAT, {"messages": [QUESTION], "chat_template_kwargs": {"a": 2}})
    assert "chat_template_kwargs" not in mock.last_body
    assert sum("forward_request_chat_template_kwargs" in line.message for line in caplog.records) == 1


@pytest.mark.parametrize("text", ["{", "[1]", '"x"'])
def test_metadata_that_is_no_object_is_a_400(mock: MockProvider, text: str) -> None:
    body = {"messages": [QUESTION], "metadata": {"extra_body": text}}
    reply = make_client(mock).post(CHAT, json=body)
    assert reply.status_code == 400 and "metadata.extra_body" in reply.json()["detail"]


def test_continuing_the_final_message(mock: MockProvider) -> None:
    history = {"messages": [QUESTION, {"role": "assistant", "content": "So"}]}
    mock.play(Reply(text="far", reasoning=", so "))
    client = make_client(mock, continue_final_assistant_message=True)
    assert post(client, CHAT, history)["choices"][0]["message"]["content"] == ", so far"
    assert mock.last_body["continue_final_message"] is True
    assert mock.last_body["add_generation_prompt"] is False
    post(client, CHAT, {"messages": [QUESTION]})
    assert "continue_final_message" not in mock.last_body


def test_null_top_logprobs_are_none(mock: MockProvider) -> None:
    assert "top_logprobs" not in chat(mock, {"top_logprobs": None})


def test_session_as_conversation_id(mock: MockProvider) -> None:
    client = make_client(mock, forward_session_id_as_conversation_id=True)
    ids = []
    for _ in range(2):
        post(client, CHAT, {"messages": [QUESTION]})
        ids.append(mock.last_body["conversation_params"]["conversation_id"])
    assert ids[0] == ids[1] and ids[0]


# --- reasoning --------------------------------------------------------------------------------------------------------


def assistant(mock: MockProvider, content: Any, **config: Any) -> dict[str, Any]:
    messages = [QUESTION, {"role": "assistant", "content": content}, QUESTION]
    message: dict[str, Any] = chat(mock, {"messages": messages}, **config)["messages"][1]
    return message


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("both", {"reasoning", "reasoning_content"}),
        ("reasoning", {"reasoning"}),
        ("reasoning_content", {"reasoning_content"}),
    ],
)
def test_reasoning_of_the_history_is_sent_in_its_field(mock: MockProvider, field: str, names: set[str]) -> None:
    message = assistant(mock, "<think>hm</think>Yes.", reasoning_field=field)
    assert message == {"role": "assistant", "content": "Yes."} | dict.fromkeys(names, "hm")


def test_reasoning_field_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_REASONING_FIELD", "reasoning")
    assert make_config("http://x/v1").reasoning_field == "reasoning"
    monkeypatch.setenv("NEMO_GYM_REASONING_FIELD", "thoughts")
    with pytest.raises(ValidationError, match="reasoning_field"):
        make_config("http://x/v1")


def test_reasoning_of_the_history_can_be_left_out(mock: MockProvider) -> None:
    message = assistant(mock, "<think>hm</think>Yes.", uses_interleaved_reasoning=False)
    assert message == {"role": "assistant", "content": "Yes."}


@pytest.mark.parametrize(
    "config", [{"preserve_reasoning_in_assistant_content": True}, {"uses_reasoning_parser": False}]
)
def test_think_tags_can_stay(mock: MockProvider, config: dict[str, Any]) -> None:
    assert assistant(mock, "<think>hm</think>Yes.", **config)["content"] == "<think>hm</think>Yes."


def test_reasoning_in_parts(mock: MockProvider) -> None:
    parts = [{"type": "text", "text": "<think>hm</think>Yes."}]
    message = assistant(mock, parts, reasoning_field="reasoning")
    assert message["content"] == [{"type": "text", "text": "Yes."}] and message["reasoning"] == "hm"
    reply = make_client(mock).post(
        CHAT, json={"messages": [QUESTION, {"role": "assistant", "content": [*parts, *parts]}, QUESTION]}
    )
    assert reply.status_code == 400 and "several" in reply.json()["detail"]


def test_reasoning_content_is_sent_again_in_the_fields_wanted(mock: MockProvider) -> None:
    message = {"role": "assistant", "content": "Yes.", "reasoning_content": "hm"}
    sent = chat(mock, {"messages": [QUESTION, message, QUESTION]}, reasoning_field="reasoning")["messages"][1]
    assert sent == {"role": "assistant", "content": "Yes.", "reasoning": "hm"}


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "both", "think_tags"])
def test_reasoning_of_an_answer_becomes_think_tags_and_items(mock: MockProvider, field: Any) -> None:
    mock.play(Reply(text="Yes.", reasoning="hm", reasoning_field=field))
    client = make_client(mock)
    message = post(client, CHAT, {"messages": [QUESTION]})["choices"][0]["message"]
    assert message["content"] == "<think>hm</think>Yes."
    assert not message.get("reasoning") and not message.get("reasoning_content")
    output = post(client, "/v1/responses", {"input": "hi"})["output"]
    assert output[0]["summary"][0]["text"] == "hm"
    assert output[1]["content"][0]["text"] == "Yes."


def test_reasoning_without_a_parser_says_what_to_change(mock: MockProvider) -> None:
    mock.play(Reply(text="Yes.", reasoning="hm"))
    reply = make_client(mock, uses_reasoning_parser=False).post(CHAT, json={"messages": [QUESTION]})
    assert reply.status_code == 400 and "uses_reasoning_parser" in reply.json()["detail"]


def test_an_empty_last_turn_is_answered_here(mock: MockProvider) -> None:
    history = {"messages": [QUESTION, {"role": "assistant", "content": "<think>hm</think>"}]}
    client = make_client(mock, sequential_reasoning_allowed=False)
    choice = post(client, CHAT, history)["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"], mock.count) == ("content_filter", None, 0)
    post(make_client(mock), CHAT, history)
    assert mock.count == 1


# --- errors -----------------------------------------------------------------------------------------------------------

OVERFLOW = {"object": "error", "message": "max_tokens must be at least 1, got -12.", "type": "BadRequestError"}
OVERFLOWS = [
    Fault("context_length"),
    Fault(status=400, body=OVERFLOW),
    Fault(status=500, message="This model's maximum context length is 10 tokens."),
]


@pytest.mark.parametrize("fault", OVERFLOWS)
def test_context_overflow_ends_the_turn(mock: MockProvider, fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    mock.play(Reply(fault=fault))
    client = make_client(mock, return_token_id_information=True)
    answer = post(client, "/v1/responses", {"input": "hi"})
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["output"][0]["content"][0]["text"] == ""
    assert mock.count == 1
    choice = post(client, CHAT, {"messages": [QUESTION]})["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", None)
    assert "Context overflow" in caplog.text


@pytest.mark.parametrize("path", ["/v1/responses", CHAT, "/v1/messages"])
def test_context_overflow_can_be_passed_on(mock: MockProvider, path: str) -> None:
    mock.play(Reply(fault=Fault("context_length")))
    body = {"input": "hi"} if path == "/v1/responses" else {"messages": [QUESTION], "model": "m", "max_tokens": 1}
    reply = make_client(mock, propagate_context_overflow_errors=True).post(path, json=body)
    assert reply.status_code == 400
    assert "maximum context length" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "message", ["max_tokens: Input should be a valid integer", "no such voice", "Unsupported parameter: 'max_tokens'"]
)
@pytest.mark.parametrize("propagate", [False, True])
def test_other_bad_requests_are_errors(mock: MockProvider, message: str, propagate: bool) -> None:
    mock.play(Reply(fault=Fault(status=400, message=message)))
    client = make_client(mock, propagate_context_overflow_errors=propagate)
    reply = client.post("/v1/responses", json={"input": "hi"})
    assert reply.status_code == 500 and message in reply.json()


def test_asking_for_no_tokens_is_no_overflow(mock: MockProvider) -> None:
    mock.play(Reply(fault=Fault(status=400, message="max_tokens must be at least 1, got 0.")))
    reply = make_client(mock).post("/v1/responses", json={"input": "hi", "max_output_tokens": 0})
    assert reply.status_code == 500


def test_rate_limits_are_waited_out(mock: MockProvider) -> None:
    mock.play(Script.in_order(Reply(fault=Fault(status=429, retry_after=0)), Reply(text="ok")))
    assert post(make_client(mock), "/v1/responses", {"input": "hi"})["output"]
    assert mock.count == 2


# --- engines ----------------------------------------------------------------------------------------------------------


def request_of(session_id: str) -> Any:
    request = MagicMock()
    request.session = {SESSION_ID_KEY: session_id}
    return request


def test_a_session_stays_with_the_engine_its_hash_names() -> None:
    urls = [f"http://{name}/v1" for name in "abcdefg"]
    server = make_server(urls)
    for session in ("one", "two", "three", "four"):
        index = int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "big") % 7
        client = server._resolve_client(request_of(session))
        assert client is server._clients[index] and client.base_url == urls[index]
        assert server._resolve_client(request_of(session)) is client
        assert server._session_id_to_client[session] is client
    assert len({server._resolve_client(request_of(str(n))).base_url for n in range(100)}) == 7


def test_callers_that_return_the_cookie_keep_their_engine() -> None:
    """B45: one episode, one engine."""
    with MockProvider("a") as first, MockProvider("b") as second:
        server = make_server([first.base_url, second.base_url])
        app = server.setup_webserver()
        for _ in range(8):
            client = TestClient(app)
            texts = {post(client, "/v1/responses", {"input": "x"})["output"][0]["content"][0]["text"] for _ in range(3)}
            assert len(texts) == 1
        assert first.count + second.count == 24
        assert first.count and second.count


def test_headers_and_key(mock: MockProvider) -> None:
    post(make_client(mock, default_headers={"X-Team": "gym"}), CHAT, {"messages": [QUESTION]})
    headers = mock.requests[-1].headers
    assert (headers["authorization"], headers["x-team"]) == ("Bearer key", "gym")


def test_the_endpoint_file_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "engine"
    with MockProvider("old") as old, MockProvider("new") as new:
        server = make_server(old.base_url, endpoint_file=file, endpoint_check_interval_s=0)
        client = TestClient(server.setup_webserver())
        post(client, "/v1/responses", {"input": "x"})
        file.write_text(new.base_url + "\n")
        post(client, "/v1/responses", {"input": "x"})
        assert (old.count, new.count) == (1, 1)
        assert server._clients[0].max_connection_retries == 8


@pytest.mark.parametrize("path", sorted((COMPONENT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_configs(path: Path) -> None:
    policy = {"policy_base_url": "http://x/v1", "policy_api_key": "k", "policy_model_name": "m"}
    config: Any = OmegaConf.merge(OmegaConf.load(path), policy)
    block: Any = OmegaConf.to_container(config.policy_model.responses_api_models.vllm_model, resolve=True)
    parsed = VLLMModelConfig.model_validate({**block, "host": "h", "port": 1, "name": "policy_model"})
    assert parsed.base_url == ["http://x/v1"]
    assert parsed.return_token_id_information is ("training" in path.stem)
    assert parsed.use_completions_api is ("completions" in path.stem)


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"base_url": []}, "base_url"),
        ({"supply_prefix_token_ids": True}, "supply_prefix_token_ids"),
        ({"render_chat_template": True}, "render_chat_template"),
        ({"use_completions_api": True, "is_responses_native": True}, "is_responses_native"),
    ],
)
def test_settings_that_contradict_each_other(config: dict[str, Any], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        make_config(**{"base_url": "http://x/v1", **config})


@pytest.mark.parametrize("native", [True, False])
def test_a_200_without_an_answer_is_one_sentence(mock: MockProvider, native: bool) -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}
    mock.play(Reply(raw={"choices": [choice]}))
    reply = make_client(mock, is_responses_native=native).post("/v1/responses", json={"input": "x"})
    what = "Response" if native else "chat completion"
    assert reply.status_code == 500
    assert f"the backend at {mock.base_url} answered 200 with no {what}: 'id' is missing" in reply.json()


def test_sessions_that_were_not_seen_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_REMEMBERED_SESSIONS", 2)
    server = make_server(["http://a/v1", "http://b/v1"])
    for session in ("one", "two", "three"):
        server._resolve_client(request_of(session))
    assert list(server._session_id_to_client) == ["two", "three"]
