from __future__ import annotations

import asyncio
import json
import warnings
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf

from nemo_gym.config.errors import ConfigError
from nemo_gym.global_config import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.rollouts.failures import failure_row
from nemo_gym.serve.failures import CAUSE_HEADER
from nemo_gym.testing.judges import over_http
from nemo_gym.testing.responses import call, message, reasoning, response, verify_request
from nemo_gym.testing.verdicts import check_example_rows, new_server, rows_of
from resources_servers.genrm_compare.aggregation import Adjustments, Comparison
from resources_servers.genrm_compare.app import (
    GROUP_ATTEMPT_KEY_NAME,
    GROUP_ID_KEY_NAME,
    GenRMCompareConfig,
    GenRMCompareRequest,
    GenRMCompareResourcesServer,
    GenRMCompareResponse,
    GenRMCompareVerifyRequest,
    _input_to_conversation_history,
)
from resources_servers.genrm_compare.comparison_strategies import (
    ComparisonStrategy,
    GenRMStrategy,
    GenRMStrategyConfig,
    extract_generated_text,
    generate_response,
)
from resources_servers.genrm_compare.utils import (
    EMPTY_OUTPUT_PLACEHOLDER,
    GenRMOutputParseError,
    _compute_style_density_weights,
    aggregate_scores,
    apply_style_penalties,
    compute_style_density,
    count_style_elements,
    extract_conversation_history,
    extract_from_response_obj,
    extract_output_text,
    generate_comparison_pairs,
    get_prompt_key,
    get_prompt_key_from_input,
    parse_genrm_output,
)

FOLDER = Path(__file__).parents[1]
SETTINGS: dict[str, Any] = {
    "genrm_model_server": {"type": "responses_api_models", "name": "genrm"},
    "genrm_responses_create_params": {"input": [], "temperature": 0.5},
    "num_rollouts_per_prompt": 2,
    "genrm_parse_retry_sleep_s": 0.0,
}


def scores(first: Any, second: Any, ranking: Any) -> str:
    return json.dumps({"score_1": first, "score_2": second, "ranking": ranking})


# --- what a reward model says -----------------------------------------------------------------------------------------

DEFAULTS = (3.0, 3.0, 3.5)
REPLIES: list[tuple[str, tuple[float, float, float] | None]] = [
    (scores(4, 2, 2), (4, 2, 2)),
    (f"Thinking {{a}}.\n{scores(4, 2, 2)}\nDone.", (4, 2, 2)),
    (f"{scores(1, 1, 1)} or {scores(4, 2, 2)}", (4, 2, 2)),
    (f"```json\n{scores(4, 2, 2)}\n```\n{scores(1, 1, 1)}", (4, 2, 2)),
    (f"```json\n{scores(4, 2, 2)}\n```\n```json\n{scores(1, 1, 1)}\n```", (4, 2, 2)),
    (f"```json\n{{}}\n```\n{scores(4, 2, 2)}", (4, 2, 2)),
    (f"```python\n{scores(1, 1, 1)}\n```\n{scores(4, 2, 2)}", (4, 2, 2)),
    ('{"overall": {"score_1": 4, "score_2": 2, "ranking": 2}}', (4, 2, 2)),
    ('{"score_1": 5, "overall": {"score_1": 4}}', (5, 3, 3.5)),
    ('{"score_1": 4}', (4, 3, 3.5)),
    ('{"ranking": 1}', (3, 3, 1)),
    (scores("4", " 2.5 ", "2"), (4, 2.5, 2)),
    (scores(1, 1, 1) + ' {"other": 1}', (1, 1, 1)),
    ('{"a": ' + scores(1, 1, 1) + "}", None),
    ("", None),
    ("4 to 2", None),
    ("{}", None),
    ('{"overall": 3}', None),
    (scores("good", 2, 2), None),
    (scores(None, 2, 2), None),
    (scores(True, 2, 2), None),
    (scores([4], 2, 2), None),
    (scores(float("nan"), 2, 2), None),
    (scores(4, float("inf"), 2), None),
    (scores(1e300, 2, 2), None),
    (scores(float("nan"), 2, 2) + scores(4, 2, 2), (4, 2, 2)),
    (scores(4, 2, 2) + scores(float("nan"), 2, 2), (4, 2, 2)),
    (scores(4, 2, 2)[:-1], None),
    ('{"score_1":' * 100_000 + "}" * 100_000, None),
    ("{" * 200_000, None),
    ("```json" * 20_000, None),
    ('{"score_1": ' + "4" * 10_000 + "}", None),
    ("\x00\u202e" + scores(4, 2, 2) + "\U0001d7dc", (4, 2, 2)),
]


@pytest.mark.parametrize(("text", "said"), REPLIES, ids=range(len(REPLIES)))
def test_what_a_reply_says(text: str, said: tuple[float, float, float] | None) -> None:
    assert parse_genrm_output(text) == (said or DEFAULTS)
    if said is None:
        with pytest.raises(GenRMOutputParseError):
            parse_genrm_output(text, raise_on_fail=True)
        assert parse_genrm_output(text, 1.0, 2.0) == (1.0, 1.0, 2.0)
    else:
        assert parse_genrm_output(text, raise_on_fail=True) == said


def test_pairs() -> None:
    assert generate_comparison_pairs("circular", 3) == [(0, 1), (1, 2), (2, 0)]
    assert generate_comparison_pairs("circular", 2) == [(0, 1), (1, 0)]
    assert generate_comparison_pairs("all_pairs", 3) == [(0, 1), (0, 2), (1, 2)]
    assert generate_comparison_pairs("circular", 1) == generate_comparison_pairs("all_pairs", 1) == []
    with pytest.raises(ValueError, match="'random'"):
        generate_comparison_pairs("random", 3)  # type: ignore[arg-type]


# --- texts ------------------------------------------------------------------------------------------------------------


def test_conversations() -> None:
    image = {"type": "input_image", "image_url": "x", "detail": "auto"}
    parts = [{"type": "input_text", "text": "a"}, image, {"type": "input_text", "text": "b"}]
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": parts}, call("f"), message("x", "y")]
    expected = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "x\ny"},
    ]
    assert extract_conversation_history(turns) == expected
    assert extract_conversation_history({"input": turns}) == expected
    assert _input_to_conversation_history("hi") == [{"role": "user", "content": "hi"}]
    assert extract_conversation_history({"input": []}) == extract_conversation_history({}) == []
    body = GenRMCompareVerifyRequest.model_validate(verify_request({}, "r", question=parts))
    assert extract_conversation_history(body.responses_create_params) == [{"role": "user", "content": "a\nb"}]


RESPONSES = [
    (response(), "", EMPTY_OUTPUT_PLACEHOLDER),
    (response("a"), "", "a"),
    (response(reasoning("t"), "a"), "t", "a"),
    (response(reasoning("t"), reasoning("u"), "a", "b"), "t\nu", "b"),
    (response(message(" a ", "b ")), "", "a \nb"),
    (response(reasoning("t"), call("f")), "t", EMPTY_OUTPUT_PLACEHOLDER),
    (response(message("  ")), "", EMPTY_OUTPUT_PLACEHOLDER),
    ({}, "", EMPTY_OUTPUT_PLACEHOLDER),
    ({"output": [{"type": "message", "content": None}, {"type": "reasoning"}, {}]}, "", EMPTY_OUTPUT_PLACEHOLDER),
]


@pytest.mark.parametrize(("said", "thought", "answer"), RESPONSES)
def test_what_was_thought_and_answered(said: dict[str, Any], thought: str, answer: str) -> None:
    assert extract_from_response_obj(said)[0] == thought
    assert extract_output_text(said) == answer
    assert extract_generated_text(said) == ("" if answer == EMPTY_OUTPUT_PLACEHOLDER else answer)
    if "id" in said:
        assert extract_output_text(NeMoGymResponse.model_validate(said)) == answer


def test_prompt_keys() -> None:
    one, other = [{"role": "user", "content": "a"}], [{"content": "a", "role": "user"}]
    assert get_prompt_key_from_input(one) == get_prompt_key_from_input(other) != get_prompt_key_from_input("a")
    assert get_prompt_key_from_input(one, "p") != get_prompt_key_from_input(one)
    row = {"responses_create_params": {"input": one}, "principle": "p"}
    assert get_prompt_key(row) == get_prompt_key_from_input(one, "p")


# --- from comparisons to rewards --------------------------------------------------------------------------------------


def compared(first: int, second: int, *said: float) -> Comparison:
    return Comparison(response_i=first, response_j=second, score_1=said[0], score_2=said[1], ranking=said[2])


def test_scores_are_means_of_comparisons() -> None:
    comparisons = [compared(0, 1, 4, 2, 1), compared(1, 2, 5, 1, 1), compared(2, 0, 3, 3, 6)]
    rewards, metrics = aggregate_scores(comparisons, [{}] * 4)
    assert rewards == [(4 + 5.5) / 2, (2 + 5) / 2, (1 + 0.5) / 2, 3.0]
    assert metrics == {
        "mean_individual_score": 3.0,
        "std_individual_score": pytest.approx((10 / 6) ** 0.5),
        "tiebreak_usage_rate": pytest.approx(1 / 3),
    }
    assert aggregate_scores([], [{}], default_score=2.0) == ([2.0], {})
    with pytest.raises(ValueError, match="'other'"):
        aggregate_scores([], [], aggregator_method="other")  # type: ignore[arg-type]


TIED = [compared(0, 1, 4, 4, 3.5), compared(2, 3, 2, 2, 3.5)]
LONG, SHORT = "a" * 30, "a" * 10
ADJUSTED: list[tuple[dict[str, float], list[dict[str, Any]], list[float]]] = [
    ({}, [response(LONG), response(SHORT)], [4, 4, 2, 2]),
    ({"answer_bonus": 1}, [response(LONG), response(SHORT)], [4, 5, 2, 2]),
    ({"answer_bonus": 1}, [response(LONG), response(LONG), response(SHORT)], [4, 4, 2, 2]),
    ({"answer_bonus": 1, "top_percentile": 1.0}, [response(LONG), response(LONG), response(SHORT)], [4, 4, 3, 2]),
    ({"answer_bonus": 1}, [response(SHORT), response(SHORT)], [5, 4, 2, 2]),
    ({"answer_bonus": 1}, [], [4, 4, 2, 2]),
    ({"reasoning_bonus": 2}, [response(reasoning(LONG)), response(reasoning(SHORT))], [4, 6, 2, 2]),
    ({"reasoning_bonus": 2}, [response(LONG), response(SHORT)], [4, 4, 2, 2]),
    ({"group_answer_length_penalty_coeff": 2}, [response(LONG)] * 3 + [response(SHORT)], [3.5, 3.5, 1.5, 3.5]),
    ({"group_answer_length_penalty_coeff": 2}, [response(LONG)] * 4, [4, 4, 2, 2]),
    ({"group_reasoning_length_penalty_coeff": 4}, [response(reasoning(LONG))] * 2 + [response()] * 2, [2, 2, 4, 4]),
    ({"group_style_penalty_coeff": 1}, [response("# a\n")] + [response("aaaa")] * 3, [3.25, 4.25, 2.25, 2.25]),
]


@pytest.mark.parametrize(("settings", "responses", "rewards"), ADJUSTED)
def test_adjusted_scores(settings: dict[str, float], responses: list[Any], rewards: list[float]) -> None:
    whole = [*responses, *[response()] * (4 - len(responses))]
    assert aggregate_scores(TIED, whole, adjustments=Adjustments(**settings))[0] == pytest.approx(rewards)


def test_style() -> None:
    text = "# Title\n## Part\n- one\n* two\n3. three\n**bold** __too__ \U0001f600\n```\n# code\n- code\n```\nend"
    assert count_style_elements(text) == {"headers": 2, "list_items": 3, "bold": 2, "emoji": 1}
    assert count_style_elements("a # b - c ** d\n#no\n-no") == {"headers": 0, "list_items": 0, "bold": 0, "emoji": 0}
    assert compute_style_density("- a\n- b") == pytest.approx(2 / 7)
    assert compute_style_density("") == compute_style_density("```\n# code\n```") == 0.0
    assert _compute_style_density_weights(["- a", "plain", "plain"]) == pytest.approx([-2 / 3, 1 / 3, 1 / 3])
    assert apply_style_penalties([1.0, 2.0], [response("- a"), response("a")], 2.0) == [0.0, 3.0]
    for bomb in ("**" + "a" * 200_000, "*" * 200_000, " " * 200_000, "```" * 60_000, "1" * 200_000, "__a" * 60_000):
        count_style_elements(bomb)


# --- over HTTP --------------------------------------------------------------------------------------------------------


def server(client: Any = None, **settings: Any) -> GenRMCompareResourcesServer:
    return new_server(GenRMCompareResourcesServer, client=client, **(SETTINGS | settings))


def asked(index: Any, text: Any = "", group: Any = "g", **more: Any) -> dict[str, Any]:
    place = {GROUP_ID_KEY_NAME: group, GROUP_ATTEMPT_KEY_NAME: 0, ROLLOUT_INDEX_KEY_NAME: index}
    return verify_request({**place, **more}, text or f"answer {index}")


class Fair:
    """A reward model that likes long answers; `after` is what it says first, or raises."""

    def __init__(self, *after: Any) -> None:
        self.first = list(after)
        self.asked: list[dict[str, Any]] = []

    async def post(self, *, server_name: str, url_path: str, json: Any, **_: Any) -> Any:
        self.asked.append(json.model_dump(mode="json"))
        if self.first:
            said = self.first.pop(0)
            if isinstance(said, BaseException):
                raise said
            return over_http(said, url_path)
        told = self.asked[-1]["metadata"]
        one, two = len(told["response_1"]), len(told["response_2"])
        return over_http(scores(one, two, 1 if one > two else 6), url_path)


async def together(
    found: GenRMCompareResourcesServer, *bodies: dict[str, Any], path: str = "/verify"
) -> list[httpx.Response]:
    """The answers to requests that are made at once."""
    transport = httpx.ASGITransport(app=found.setup_webserver())
    async with httpx.AsyncClient(transport=transport, base_url="http://genrm") as client:
        async with asyncio.timeout(20):
            return list(await asyncio.gather(*(client.post(path, json=body) for body in bodies)))


async def test_a_group_is_compared() -> None:
    judge = Fair()
    answers = await together(server(judge, num_rollouts_per_prompt=3), asked(2, "aaa"), asked(0, "a"), asked(1, "aa"))
    assert [answer.status_code for answer in answers] == [200] * 3
    records = [answer.json() for answer in answers]
    assert [record["reward"] for record in records] == [3.0, 1.0, 2.0]
    place = {GROUP_ID_KEY_NAME: "g", GROUP_ATTEMPT_KEY_NAME: 0, ROLLOUT_INDEX_KEY_NAME: 2}
    assert {name: records[0][name] for name in place} == place
    assert (records[0]["mask_sample"], records[0]["failure_kind"]) == (False, None)
    pairs = [(one["metadata"]["response_1"], one["metadata"]["response_2"]) for one in judge.asked]
    assert sorted(pairs) == [("a", "aa"), ("aa", "aaa"), ("aaa", "a")]
    assert {tuple(one["metadata"]) for one in judge.asked} == {("response_1", "response_2")}
    assert [(turn["role"], turn["content"]) for turn in judge.asked[0]["input"]] == [("user", "?")]
    assert judge.asked[0]["temperature"] == 0.5


async def test_all_pairs_by_several_judges() -> None:
    judge = Fair()
    settings = {"num_rollouts_per_prompt": 3, "comparison_strategy": "all_pairs", "num_judges_per_comparison": 2}
    await together(server(judge, **settings), *(asked(index) for index in range(3)))
    assert len(judge.asked) == 6


@pytest.mark.parametrize(
    ("settings", "row", "principle"),
    [
        ({}, {"principle": "own"}, None),
        ({"use_principle": True}, {"principle": "own"}, "own"),
        ({"use_principle": True, "default_principle": "usual"}, {}, "usual"),
    ],
)
async def test_principles(settings: dict[str, Any], row: dict[str, Any], principle: str | None) -> None:
    judge = Fair()
    await together(server(judge, **settings), asked(0, **row), asked(1, **row))
    assert [one["metadata"].get("principle") for one in judge.asked] == [principle] * 2


async def test_without_a_group_id_the_task_and_the_prompt_make_the_group() -> None:
    found = server(Fair())
    rows: list[dict[str, Any]] = [
        {TASK_INDEX_KEY_NAME: 1},
        {TASK_INDEX_KEY_NAME: 2},
        {"prompt_id": "x"},
        {"prompt_id": "y"},
        {},
    ]
    bodies = [asked(index, "a" * (index + 1), group=None, **row) for row in rows for index in range(2)]
    assert [answer.json()["reward"] for answer in await together(found, *bodies)] == [1.0, 2.0] * 5
    other: dict[str, Any] = {"responses_create_params": {"input": "another"}}
    answers = await together(found, *(asked(index, group=None, **row) for row in ({}, other) for index in range(2)))
    assert [answer.status_code for answer in answers] == [200] * 4


@pytest.mark.parametrize("index", [None, -1, 2, "x"])
async def test_a_rollout_without_a_place(index: Any) -> None:
    [answer] = await together(server(Fair()), asked(index))
    assert answer.status_code == 422
    if index != "x":
        assert "from 0 to 1" in answer.text


async def test_one_alone_is_compared_with_nothing() -> None:
    judge = Fair()
    answers = await together(server(judge, num_rollouts_per_prompt=1, default_score=2.5), asked(None), asked(7))
    assert [answer.json()["reward"] for answer in answers] == [2.5, 2.5]
    assert judge.asked == []


async def test_conflicts_are_told() -> None:
    found = server(Fair())
    answers = await together(found, asked(0), asked(1))
    before_the_first: dict[str, Any] = {GROUP_ATTEMPT_KEY_NAME: -1}
    again = await together(found, asked(0), asked(0, "other"), asked(0, **before_the_first))
    assert [answer.status_code for answer in (*answers, *again)] == [200, 200, 200, 409, 422]
    assert "another response" in again[1].text


def test_a_group_that_stays_incomplete_ends_as_such() -> None:
    """B38: one of four is killed. The others get a 503, whose cause names the failure that their records carry."""

    async def killed() -> list[httpx.Response]:
        found = server(Fair(), num_rollouts_per_prompt=4, cohort_collection_timeout_s=0.1)
        return await together(found, asked(0), asked(1), asked(3))

    for answer in asyncio.run(killed()):
        assert answer.status_code == 503
        assert "only 3 of 4 rollouts came within 0.1 s; missing: 2." in answer.json()["detail"]
        cause = json.loads(answer.headers[CAUSE_HEADER])
        assert (cause["server"], cause["kind"]) == ("genrm_compare", "cohort_incomplete")
        assert _class_of_record(answer) == "cohort_incomplete"


def _class_of_record(answer: httpx.Response) -> Any:
    """What the collector makes of an answer."""
    from multidict import CIMultiDict, CIMultiDictProxy
    from yarl import URL

    headers = CIMultiDictProxy(CIMultiDict(answer.headers.items()))
    info = aiohttp.RequestInfo(URL("http://genrm/verify"), "POST", headers, URL("http://genrm/verify"))
    error = aiohttp.ClientResponseError(info, (), status=answer.status_code, headers=headers)
    return failure_row(error)["_ng_failure_class"]


async def test_a_group_is_not_held_up_by_another() -> None:
    """B37"""
    release = asyncio.Event()

    class Slow(Fair):
        async def post(self, **sent: Any) -> Any:
            if "slow" in sent["json"].metadata["response_1"]:
                await release.wait()
            return await super().post(**sent)

    transport = httpx.ASGITransport(app=server(Slow()).setup_webserver())
    async with httpx.AsyncClient(transport=transport, base_url="http://genrm") as client:
        slow = [asyncio.create_task(client.post("/verify", json=asked(n, "slow" * (n + 1), "s"))) for n in range(2)]
        quick = await asyncio.gather(*(client.post("/verify", json=asked(n, "a" * (n + 1), "q")) for n in range(2)))
        assert [answer.json()["reward"] for answer in quick] == [1.0, 2.0]
        assert not any(task.done() for task in slow)
        release.set()
        assert [(await task).json()["reward"] for task in slow] == [4.0, 8.0]


GOOD = scores(4, 2, 2)
TRIES: list[tuple[list[Any], int, list[float] | str]] = [
    ([429, GOOD, GOOD], 3, [3.0, 3.0]),
    ([408, GOOD, GOOD], 3, [3.0, 3.0]),
    ([503, 500, GOOD, GOOD], 4, [3.0, 3.0]),
    ([aiohttp.ServerDisconnectedError(), GOOD, GOOD], 3, [3.0, 3.0]),
    ([ConnectionResetError(), TimeoutError(), GOOD, GOOD], 4, [3.0, 3.0]),
    (["hm", GOOD, GOOD], 3, [3.0, 3.0]),
    (["hm", 429, "hm", 429, "hm", "hm", "hm"], 8, [3.0, 3.0]),
    ([429] * 8, 8, "429"),
    ([400, GOOD], 2, "400"),
    ([401, GOOD], 2, "401"),
    ([{"what": 1}, GOOD], 2, "ValidationError"),
]


@pytest.mark.parametrize(("said", "asked_times", "outcome"), TRIES, ids=range(len(TRIES)))
async def test_a_reward_model_that_fails(said: list[Any], asked_times: int, outcome: list[float] | str) -> None:
    """B82: one that can't be asked is no low reward; busy ones and unreadable replies are asked again."""
    judge = Fair(*said)
    answers = await together(server(judge), asked(0, "aaa"), asked(1, "bbb"))
    assert [answer.status_code for answer in answers] == [200, 200]
    records = [answer.json() for answer in answers]
    if isinstance(outcome, str):
        assert {record["failure_kind"] for record in records} == {"judge_failed"}
        assert all(record["mask_sample"] and record["_ng_failure_class"] == "judge_failed" for record in records)
        assert all(outcome in record["failure_reason"] for record in records)
        assert records[1][ROLLOUT_INDEX_KEY_NAME] == 1
        assert len(judge.asked) <= asked_times
    else:
        assert len(judge.asked) >= min(asked_times, 3)
        assert all(record["failure_kind"] is None for record in records)


async def test_unreadable_replies_have_the_default_scores_or_fail() -> None:
    hm = ["hm"] * 4
    found = server(Fair(*hm), genrm_parse_retries=1)
    assert [a.json()["reward"] for a in await together(found, asked(0), asked(1))] == [3.0, 3.0]
    found = server(Fair(*hm), genrm_parse_retries=1, fail_on_unparsable=True)
    records = [answer.json() for answer in await together(found, asked(0), asked(1))]
    assert [record["failure_kind"] for record in records] == ["judge_failed"] * 2
    assert "gave no scores" in records[0]["failure_reason"]


async def test_a_reward_model_has_its_time() -> None:
    class Silent(Fair):
        async def post(self, **_: Any) -> Any:
            await asyncio.Event().wait()

    found = server(Silent(), judge_request_timeout_s=0.02, genrm_parse_retries=0)
    records = [answer.json() for answer in await together(found, asked(0), asked(1))]
    assert {record["failure_kind"] for record in records} == {"judge_failed"}
    assert "no answer within 0.02 s" in records[0]["failure_reason"]
    answers = await together(server(Silent(), cohort_evaluation_timeout_s=0.02), asked(0), asked(1))
    assert {answer.status_code for answer in answers} == {503}
    assert {_class_of_record(answer) for answer in answers} == {"judge_failed"}


async def test_when_it_shuts_down_nobody_waits_any_more() -> None:
    found = server(Fair())
    app = found.setup_webserver()
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://genrm") as client:
        async with app.router.lifespan_context(app):
            waiting = asyncio.create_task(client.post("/verify", json=asked(0)))
            while not found._cohorts.snapshot()["collecting"]:
                await asyncio.sleep(0.001)
        answer = await waiting
    assert answer.status_code == 503
    assert _class_of_record(answer) == "shutdown"


def test_a_group_id_without_its_attempt_is_warned_of_once() -> None:
    async def twice() -> None:
        found = server(Fair())
        body = asked(0)
        del body[GROUP_ATTEMPT_KEY_NAME]
        await together(found, body, {**asked(1), GROUP_ATTEMPT_KEY_NAME: 0})
        await together(found, body)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(twice())
    assert [GROUP_ATTEMPT_KEY_NAME in str(one.message) for one in caught if one.category is UserWarning] == [True]


def test_hostile_answers() -> None:
    fenced = f"```json\n{scores(9, 1, 1)}\n```"
    for text in ("\x00\u202e\U0001d7dc", scores(9, 1, 1), fenced, "{" * 200_000, "#" * 200_000):
        found = server(Fair(), group_style_penalty_coeff=1.0, answer_bonus=1.0)
        answers = asyncio.run(together(found, asked(0, text), asked(1, " ")))
        assert [answer.status_code for answer in answers] == [200, 200]


# --- comparing without a group ----------------------------------------------------------------------------------------


async def test_compare() -> None:
    body = {
        "conversation_history": [{"role": "user", "content": "Say."}],
        "response_objs": [response("a"), response("aaa"), response()],
    }
    judge = Fair()
    [answer] = await together(server(judge), body, path="/compare")
    compared = GenRMCompareResponse.model_validate(answer.json())
    assert compared.rewards == [1.0, 3.0, 4.0]
    assert [(one.response_i, one.response_j, one.judge_idx) for one in compared.comparison_results] == [
        (0, 1, 0),
        (1, 2, 0),
        (2, 0, 0),
    ]
    assert compared.metrics["tiebreak_usage_rate"] == 0.0
    assert judge.asked[0]["input"][0]["content"] == "Say."
    [few] = await together(server(judge), {**body, "response_objs": [response("a")]}, path="/compare")
    assert few.json() == {"rewards": [3.0], "comparison_results": [], "metrics": {}}
    [none] = await together(server(judge), {**body, "response_objs": []}, path="/compare")
    assert none.json()["rewards"] == []
    [failed] = await together(server(Fair(400)), body, path="/compare")
    assert (failed.status_code, "responses 0 and 1" in failed.text) == (503, True)
    [odd] = await together(server(judge), {**body, "response_objs": ["x"]}, path="/compare")
    assert odd.status_code == 422


async def test_for_trainers() -> None:
    class Client:
        def __init__(self, app: Any) -> None:
            self.app = app
            self.sent: list[Any] = []

        async def post(self, *, server_name: str, url_path: str, json: Any) -> Any:
            self.sent.append((server_name, url_path, json))
            if server_name == "policy_model":
                return over_http("said", url_path)
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://genrm") as client:
                answer = await client.post(url_path, json=json)
            return over_http(answer.json() if answer.status_code == 200 else answer.status_code, url_path)

    client: Any = Client(server(Fair()).setup_webserver())
    strategy: ComparisonStrategy = GenRMStrategy(GenRMStrategyConfig(), client)
    assert strategy.agent_names == ["genrm_simple_agent", "genrm_simple_agent_reasoning_off"]
    assert strategy.num_generations_per_prompt == 16
    history = [{"role": "user", "content": "Say."}]
    rewards, metrics = await strategy.compare(history, [response("a"), response("aa")], principle="short")
    assert (rewards, metrics["mean_individual_score"]) == ([1.0, 2.0], 1.5)
    assert client.sent[0][2]["principle"] == "short"
    said = await generate_response({"input": history}, client)
    assert extract_generated_text(said) == "said"
    client.app = server(Fair(400)).setup_webserver()
    with pytest.raises(aiohttp.ClientResponseError):
        await strategy.compare(history, [response("a"), response("aa")])


# --- configs and files ------------------------------------------------------------------------------------------------


def test_a_group_must_meet_in_one_process() -> None:
    with pytest.raises(ConfigError, match="num_workers to 1"):
        server(num_workers=2)
    assert server(num_workers=2, num_rollouts_per_prompt=1)


def test_the_flavour() -> None:
    loaded: Any = OmegaConf.to_container(OmegaConf.load(FOLDER / "configs" / "genrm_compare.yaml"))
    block = loaded["genrm_compare"]["resources_servers"]["genrm_compare"]
    unknown = set(block) - set(GenRMCompareConfig.model_fields)
    assert unknown <= {"domain", "verified", "description", "value"}
    config = server(**block).config
    assert (config.num_rollouts_per_prompt, config.cohort_result_ttl_s, config.use_principle) == (16, 21600, False)
    assert len(config.default_principle) > 500
    data = loaded["genrm_simple_agent"]["responses_api_agents"]["simple_agent"]["datasets"]
    assert {entry["num_repeats"] for entry in data} == {16}


def test_reverify_is_not_possible() -> None:
    with TestClient(server().setup_webserver()) as client:
        assert client.get("/reverify_mode").json() == "unsupported"
        assert client.post("/compare", json={}).status_code == 422
    assert GenRMCompareRequest.model_fields["principle"].default is None


def test_example_rollouts_are_still_scored_as_they_were() -> None:
    rows, records = (rows_of(FOLDER / "data" / f"example{end}.jsonl") for end in ("", "_rollouts"))
    groups = [[record for record in records if record[TASK_INDEX_KEY_NAME] == number] for number in range(len(rows))]
    said = [entry["scores"] for entry in json.loads((FOLDER / "tests" / "example_replies.json").read_text())]
    for row, group, text in zip(rows, groups, said, strict=True):
        assert [record[ROLLOUT_INDEX_KEY_NAME] for record in group] == [0, 1]
        place = ("response", ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME)
        bodies = [{**row, **{name: record[name] for name in place}} for record in group]
        found = server(Fair(*[text] * 3), comparison_strategy="all_pairs")
        answers = asyncio.run(together(found, *bodies))
        assert [answer.json()["reward"] for answer in answers] == [record["reward"] for record in group]
    assert len({record["reward"] for record in records}) > 3


def test_example_rows() -> None:
    for row in check_example_rows(FOLDER):
        GenRMCompareVerifyRequest.model_validate(row | {"response": response("x")})


async def test_a_group_may_be_tried_again() -> None:
    """What is left of an attempt before doesn't count."""
    found = server(Fair())
    second: dict[str, Any] = {GROUP_ATTEMPT_KEY_NAME: 1}
    old, *new = await together(found, asked(0), asked(0, **second), asked(1, **second))
    assert old.status_code in (409, 503), "it was superseded, or came after the next attempt"
    assert [answer.json()["reward"] for answer in new] == [8.0, 8.0]
    assert [answer.json()[GROUP_ATTEMPT_KEY_NAME] for answer in new] == [1, 1]
