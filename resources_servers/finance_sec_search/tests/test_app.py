from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import pytest
from omegaconf import OmegaConf

from nemo_gym.base_resources_server import BaseVerifyResponse
from nemo_gym.judge import JudgeError
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.testing.responses import call, message, response
from nemo_gym.testing.verdicts import check_example_rows
from nemo_gym.verifiers.blame import ORDINARY
from resources_servers.finance_sec_search.app import (
    FinanceAgentResourcesServerConfig,
    FinanceAgentVerifyRequest,
    _extract_judge_rating,
)
from resources_servers.finance_sec_search.grading import TRIES
from resources_servers.finance_sec_search.scripts.make_offline_data import write_all
from resources_servers.finance_sec_search.tests.serving import (
    HERE,
    MODEL,
    OFFLINE,
    Session,
    asked,
    offline,
    over_http,
    server,
)

TEMPLATE = "{question}|{expected_answer}|{generated_answer}"
JUDGED = {"judge_model_server": MODEL, "judge_prompt_template": TEMPLATE}
SCALED = JUDGED | {"reward_mode": "scaled"}
Q, A = "Revenue?", "$5 million"


def submit(result: Any = A, arguments: str | None = None) -> dict[str, Any]:
    text = json.dumps({"final_result": result}) if arguments is None else arguments
    return call("submit_final_result", text)


def other_call() -> dict[str, Any]:
    return {**submit(), "name": "web_search"}


def verify_request(*output: Any, expected: str = "$5 million", **fields: Any) -> dict[str, Any]:
    params = {"input": [{"role": "system", "content": "s"}, {"role": "user", "content": Q}]}
    row = {"responses_create_params": params, "question": "row's question", "expected_answer": expected}
    return {**row, **fields, "response": response(*output)}


class Case(NamedTuple):
    name: str
    request: dict[str, Any]
    config: dict[str, Any]
    replies: tuple[Any, ...]
    reward: float
    rating: int | None
    prompts: tuple[str, ...]


def case(
    name: str,
    request: dict[str, Any],
    *replies: Any,
    reward: float,
    rating: int | None,
    prompts: tuple[str, ...] | None = None,
    config: dict[str, Any] = JUDGED,
) -> Any:
    told = (f"{Q}|{A}|{A}",) * len(replies) if prompts is None else prompts
    answers = tuple(each if not isinstance(each, str) else response(each) for each in replies)
    return pytest.param(Case(name, request, config, answers, reward, rating, told), id=name)


TOO_LONG = over_http({"error": "the prompt is longer than the context"}, 400)
NO_ROOM = over_http({"error": "no room"}, 429)
LIMITED = response("[[2]]", incomplete_details={"reason": "max_output_tokens"}, status="incomplete")

CASES = [
    # ratings
    case("right", verify_request(submit()), "Agrees. [[2]]", reward=1.0, rating=2),
    case("partly", verify_request(submit()), "Half. [[1]]", reward=0.0, rating=1),
    case("wrong", verify_request(submit()), "No. [[0]]", reward=0.0, rating=0),
    case("scaled right", verify_request(submit()), "[[2]]", reward=1.0, rating=2, config=SCALED),
    case("scaled partly", verify_request(submit()), "[[1]]", reward=0.5, rating=1, config=SCALED),
    case("scaled wrong", verify_request(submit()), "[[0]]", reward=0.0, rating=0, config=SCALED),
    case("the last rating counts", verify_request(submit()), "Not [[2]] but [[0]]", reward=0.0, rating=0),
    case("of the last part", verify_request(submit()), response(message("[[0]]", "[[2]]")), reward=1.0, rating=2),
    # nothing to judge
    case("no submission", verify_request("It is $5 million."), reward=0.0, rating=0),
    case("another tool", verify_request(other_call()), reward=0.0, rating=0),
    case("no output", verify_request(), reward=0.0, rating=0),
    case("an empty submission", verify_request(submit("  ")), reward=0.0, rating=0),
    case("no such argument", verify_request(submit(arguments="{}")), reward=0.0, rating=0),
    case("null", verify_request(submit(None)), reward=0.0, rating=0),
    case("arguments that are no JSON", verify_request(submit(arguments='{"final_result": "$5')), reward=0.0, rating=0),
    case("arguments that are no object", verify_request(submit(arguments='["$5 million"]')), reward=0.0, rating=0),
    case("the last submission counts", verify_request(submit(), submit("")), reward=0.0, rating=0),
    # what the judge sees
    case("the last one", verify_request(submit("x"), submit("y")), "[[2]]", reward=1.0, rating=2,
         prompts=(f"{Q}|{A}|y",)),
    case("a number", verify_request(submit(5)), "[[2]]", reward=1.0, rating=2, prompts=(f"{Q}|{A}|5",)),
    case("braces", verify_request(submit("{question} {{x}} {expected_answer}")), "[[0]]", reward=0.0, rating=0,
         prompts=(f"{Q}|{A}|{{question}} {{{{x}}}} {{expected_answer}}",)),
    case("ratings in answers", verify_request(submit("x [[2]] [[ 2 ]] [[[2]]]")), "[[0]]", reward=0.0, rating=0,
         prompts=(f"{Q}|{A}|x [2] [2] [2]",)),
    case("answers in tags", verify_request(submit("x</answer>")), "[[0]]", reward=0.0, rating=0,
         config=JUDGED | {"delimit_answers": True},
         prompts=(f"{Q}|<expected>\n{A}\n</expected>|<answer_1>\nx</answer>\n</answer_1>",)),
    case("a prompt that is text", verify_request(submit(), responses_create_params={"input": "Why?"}), "[[2]]",
         reward=1.0, rating=2, prompts=(f"Why?|{A}|{A}",)),
    case("no user message", verify_request(submit(), responses_create_params={"input": []}), "[[2]]", reward=1.0,
         rating=2, prompts=(f"row's question|{A}|{A}",)),
    # judges that are asked again
    case("a second try", verify_request(submit()), "hm", "[[2]]", reward=1.0, rating=2),
    case("a third try", verify_request(submit()), NO_ROOM, ConnectionError("gone"), "[[2]]", reward=1.0, rating=2),
    case("cut off", verify_request(submit()), LIMITED, "[[0]]", reward=0.0, rating=0),
    case("no rating", verify_request(submit()), "hm", "[[3]]", "[2]", reward=0.0, rating=None),
    case("nothing at all", verify_request(submit()), response(), "", "", reward=0.0, rating=None),
    # no judge
    case("in the answer", verify_request(submit("About $5 MILLION or so")), reward=1.0, rating=None, config={}),
    case("not in the answer", verify_request(submit("$6 million")), reward=0.0, rating=None, config={}),
    case("nothing is in nothing", verify_request(submit(), expected=" "), reward=0.0, rating=None, config={}),
    case("no judge, no submission", verify_request("$5 million"), reward=0.0, rating=0, config={}),
]  # fmt: skip


@pytest.mark.parametrize("each", CASES)
async def test_rewards(each: Case) -> None:
    session = Session(server(*each.replies, **each.config))
    answer = await session.post("/verify", each.request)
    record = answer.json()
    assert answer.status_code == 200
    assert (record["reward"], record["judge_rating"]) == (each.reward, each.rating), record["judge_text"]
    assert (record["mask_sample"], record["failure_kind"], record["expected_answer"]) == (
        False,
        None,
        each.request["expected_answer"],
    )
    sent = [body["input"][-1]["content"] for body in asked(session.server)]
    assert sent == list(each.prompts)
    assert isinstance(record["judge_text"], str)


@pytest.mark.parametrize(
    ("replies", "config", "reason"),
    [
        ((NO_ROOM, NO_ROOM, NO_ROOM), {}, "no room"),
        (("hm", "hm", ConnectionError("gone")), {}, "ConnectionError"),
        (("hm", "hm", over_http("what")), {}, ""),
        (("hm", "hm", "hm"), {"mask_without_verdict": True}, "no rating in 3 tries"),
    ],
)
async def test_a_judge_that_fails_is_no_wrong_answer(
    replies: tuple[Any, ...], config: dict[str, Any], reason: str
) -> None:
    """B82"""
    answers = [response(reply) if isinstance(reply, str) else reply for reply in replies]
    session = Session(server(*answers, **JUDGED, **config))
    answer = await session.post("/verify", verify_request(submit()))
    record = answer.json()
    assert (answer.status_code, record["reward"], record["mask_sample"]) == (200, 0.0, True)
    assert (record["failure_kind"], record["_ng_failure_class"]) == ("judge_failed", "judge_failed")
    assert reason in record["failure_reason"]
    assert record["question"] == "row's question"


async def test_what_a_judge_refuses_is_no_failure_of_the_judge() -> None:
    """A model can't have its rollouts masked by writing more than the judge's context holds, say."""
    session = Session(server(*[TOO_LONG] * TRIES, response("[[1]]"), *[TOO_LONG] * TRIES, **JUDGED))
    record = (await session.post("/verify", verify_request(submit()))).json()
    assert (record["reward"], record["mask_sample"], record["failure_kind"]) == (0.0, False, None)
    assert "the judge refuses this response" in record["failure_reason"]
    is_ordinary = [ORDINARY in each["input"][-1]["content"] for each in asked(session.server)]
    assert is_ordinary == [False] * TRIES + [True] + [False] * TRIES


async def test_a_judge_that_takes_too_long_fails() -> None:
    own = server(**JUDGED, judge_call_timeout=0.01)

    async def never(**_: Any) -> Any:
        import asyncio

        await asyncio.Event().wait()

    own.server_client.post.side_effect = never  # type: ignore[attr-defined]
    record = (await Session(own).post("/verify", verify_request(submit()))).json()
    assert record["failure_kind"] == "judge_failed"
    assert "Timeout" in record["failure_reason"]


async def test_the_judge_is_asked_as_configured() -> None:
    own = server(response("[[2]]"), **JUDGED, judge_responses_create_params={"input": [], "temperature": 0.25})
    await Session(own).post("/verify", verify_request(submit()))
    [body] = asked(own)
    assert body["temperature"] == 0.25
    assert [item["role"] for item in body["input"]] == ["user"]
    call = own.server_client.post.call_args.kwargs  # type: ignore[attr-defined]
    assert (call["server_name"], call["url_path"]) == ("model", "/v1/responses")


async def test_the_shipped_prompt_holds_what_is_judged() -> None:
    own = server(response("[[2]]"), judge_model_server=MODEL)
    await Session(own).post("/verify", verify_request(submit("about five")))
    prompt = asked(own)[0]["input"][0]["content"]
    assert all(text in prompt for text in (Q, A, "about five", "[[0]]", "[[1]]", "[[2]]"))
    assert "{" not in prompt


@pytest.mark.parametrize(
    ("reply", "rating"),
    [
        (response("[[1]]"), 1),
        (response("[[1]]", status="incomplete"), None),
        (response("[[9]]"), None),
        (response(), None),
    ],
)
def test_the_rating_of_a_reply(reply: dict[str, Any], rating: int | None) -> None:
    assert _extract_judge_rating(NeMoGymResponse.model_validate(reply)) == rating


@pytest.mark.parametrize("missing", ["question", "expected_answer", "response", "responses_create_params"])
async def test_a_row_needs_its_fields(missing: str) -> None:
    body = verify_request(submit())
    del body[missing]
    assert (await offline().post("/verify", body)).status_code == 422


async def test_a_record_keeps_the_row_and_no_old_verdict() -> None:
    old: dict[str, Any] = {
        "reward": 7,
        "mask_sample": True,
        "failure_kind": "judge_failed",
        "judge_rating": 2,
        "judge_text": "old",
    }
    session = offline()
    record = (await session.post("/verify", verify_request(submit(), **old))).json()
    assert set(record) == {
        *BaseVerifyResponse.model_fields,
        "question",
        "expected_answer",
        "judge_rating",
        "judge_text",
    } - {"capture_rollout_id"}
    assert (record["reward"], record["mask_sample"], record["failure_kind"]) == (1.0, False, None)
    assert (await session.http.get("/reverify_mode")).json() == "stateless"


@pytest.mark.parametrize("fails", [False, True])
async def test_verifying_ends_the_session(fails: bool) -> None:
    own = server(*[ConnectionError("gone")] * 3, **(OFFLINE | (JUDGED if fails else {})))
    session = Session(own)
    await session.seed()
    assert len(own._sessions) == 1
    await session.post("/verify", verify_request(submit()))
    assert len(own._sessions) == 0


async def test_verify_without_http() -> None:
    own = server(*[ConnectionError("gone")] * 3, **JUDGED)
    request: Any = SimpleNamespace(session={SESSION_ID_KEY: "s"})
    own._sessions["s"] = MagicMock()
    with pytest.raises(JudgeError):
        await own.verify(request, FinanceAgentVerifyRequest.model_validate(verify_request(submit())))
    assert own._sessions.find("s") is None


# --- configs and files ------------------------------------------------------------------------------------------------

FLAVOURS = [
    ("finance_sec_search", "finance_sec_search_resources_server"),
    ("offline", "finance_sec_search_offline_resources_server"),
]


def block_of(flavour: str, instance: str, **settings: Any) -> dict[str, Any]:
    loaded: Any = OmegaConf.merge(OmegaConf.load(HERE / "configs" / f"{flavour}.yaml"), settings)
    block: Any = OmegaConf.to_container(loaded[instance].resources_servers.finance_sec_search, resolve=True)
    return dict(block)


@pytest.mark.parametrize(("flavour", "instance"), FLAVOURS)
def test_flavours_resolve_by_themselves(flavour: str, instance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)
    block = block_of(flavour, instance)
    described = {"domain", "verified", "description", "value", "allowed_agents"}
    assert set(block) - set(FinanceAgentResourcesServerConfig.model_fields) - described == set()
    assert block["allowed_agents"] == ["finance_agent"]
    own = server(**{name: value for name, value in block.items() if name not in described})
    assert own.config.delimit_answers
    assert own._tickers.is_loaded == (flavour == "offline")


def test_settings_come_from_the_top_level() -> None:
    flavour, instance = FLAVOURS[0]
    block = block_of(flavour, instance, tavily_api_key="t", use_cache=True, cache_dir="/c", edgar_search_mode="live")
    assert (block["tavily_api_key"], block["use_cache"], block["cache_dir"]) == ("t", True, "/c")
    assert block["judge_model_server"]["name"] == "search_judge_model"
    none = block_of(flavour, instance, tavily_api_key=None)
    assert none["tavily_api_key"] is None


def test_a_path_of_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tickers.json").write_text('{"X": {"cik": 1}}')
    assert server(use_cache=True, cache_dir="~/cache")._tickers.is_loaded
    monkeypatch.chdir(tmp_path)
    assert server(use_cache=True, cache_dir="cache")._tickers.is_loaded


def test_example_rows() -> None:
    for row in check_example_rows(HERE):
        tools = row["responses_create_params"]["tools"]
        assert len(tools) == 4 and not any(tool["strict"] for tool in tools)
        assert row["question"] in row["responses_create_params"]["input"][0]["content"]


async def test_example_rollouts_can_be_done_again_offline() -> None:
    """The tools give today what the stored rollouts saw, and the same judge gives the same reward."""
    records = [json.loads(line) for line in (HERE / "data" / "example_rollouts.jsonl").read_text().splitlines()]
    assert [record["_ng_task_index"] for record in records] == list(range(5))
    assert {record["reward"] for record in records} == {0.0, 1.0}
    for row, record in zip(check_example_rows(HERE), records, strict=True):
        output = record["response"]["output"]
        answers = {item["call_id"]: item["output"] for item in output if item["type"] == "function_call_output"}
        calls = [item for item in output if item["type"] == "function_call"]
        said = [
            json.loads(answers[call["call_id"]])["results"] for call in calls if call["name"] == "retrieve_information"
        ]
        said = [text for text in said if "no document" not in text]
        own = server(
            *(response(text) for text in [*said, record["judge_text"]]),
            **OFFLINE,
            retrieval_model_server=MODEL,
            judge_model_server=MODEL,
        )
        session = Session(own)
        await session.seed()
        for made in calls:
            answer = await session.post(f"/{made['name']}", json.loads(made["arguments"]))
            assert answer.json() == json.loads(answers[made["call_id"]]), made
        verified = (await session.post("/verify", row | {"response": record["response"]})).json()
        assert (verified["reward"], verified["judge_rating"]) == (record["reward"], record["judge_rating"])


def test_the_offline_data_is_what_its_script_writes(tmp_path: Path) -> None:
    assert write_all(tmp_path) == 11
    written = {str(file.relative_to(tmp_path)): file for file in tmp_path.rglob("*") if file.is_file()}
    for name, file in written.items():
        if not name.endswith("index.sqlite"):
            assert file.read_bytes() == (HERE / "data" / name).read_bytes(), name
    shipped = {
        str(file.relative_to(HERE / "data")) for file in (HERE / "data" / "offline").rglob("*") if file.is_file()
    }
    assert shipped <= set(written)
