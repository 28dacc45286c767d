from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf

from nemo_gym.testing.responses import reasoning, response, verify_request
from nemo_gym.testing.verdicts import Case, check_case, check_example_rollouts, check_example_rows, new_server, verified
from resources_servers.generative_reward_model.app import (
    GenerativeRewardModelResourcesServer,
    GenerativeRewardModelResourcesServerConfig,
    GenerativeRewardModelVerifyRequest,
)
from resources_servers.generative_reward_model.score_parser import Evaluation, Scores, extract_scores

FOLDER = Path(__file__).parents[1]
Triple = tuple[Any, Any, Any]


def scores(triple: Triple, **more: Any) -> dict[str, Any]:
    return {**more, **dict(zip(("score_1", "score_2", "ranking"), triple, strict=True))}


def reply(overall: Triple = (4, 2, 2), *rubrics: Triple, **more: Any) -> dict[str, Any]:
    numbered = [scores(triple, rubric_id=number) for number, triple in enumerate(rubrics or [(5, 1, 1)], 1)]
    return {"rubric_evaluations": numbered, "overall": scores(overall), **more}


def asked(said: Any, overall: Triple | None = (4, 2, 2), *rubrics: Triple, **more: Any) -> dict[str, Any]:
    row = {
        "id": 1,
        "ground_truth_overall": None if overall is None else scores(overall),
        "ground_truth_rubric_scores": [scores(each, rubric_id=n) for n, each in enumerate(rubrics, 1)] or None,
    }
    text = said if isinstance(said, str) else json.dumps(said)
    return verify_request({**row, **more}, text)


FAILED = {"format_correct": 0.0, "predicted_score_1": None, "overall_ranking_l1": None, "rubric_score_l1": None}
MASKED = {"mask_sample": True, "failure_kind": "verifier_error"}
RIGHT = {"format_correct": 1.0, "overall_score_1_l1": 0.0, "overall_ranking_binary_acc": 1.0}
TWO = [(5, 1, 1), (3, 3, 4)]

CASES = [
    Case("all right", asked(reply()), 0.0, own={**RIGHT, "predicted_score_1": 4.0, "rubric_score_l1": None}),
    Case("the first score", asked(reply((1, 2, 2))), -3.0, own={"overall_score_1_l1": 3.0, "overall_score_2_l1": 0.0}),
    Case("the second score", asked(reply((4, 5, 2))), -3.0, own={"overall_score_2_l1": 3.0}),
    Case("the ranking", asked(reply((4, 2, 3))), -2.0,
         own={"overall_ranking_l1": 1.0, "overall_ranking_binary_acc": 1.0}),
    Case("the other side", asked(reply((4, 2, 4))), -4.0, own={"overall_ranking_binary_acc": 0.0}),
    Case("neither side", asked(reply((4, 2, 3.5))), -3.0, own={"overall_ranking_binary_acc": 0.0}),
    Case("rightly neither", asked(reply((4, 2, 3.5)), (4, 2, 3.5)), 0.0, own={"overall_ranking_binary_acc": 1.0}),
    Case("everything", asked(reply((1, 5, 6))), -14.0),
    Case("fractions", asked(reply((4.5, 2, 2))), -0.5),
    Case("only the ranking counts", asked(reply((1, 5, 2)), (None, None, 2)), 0.0,
         own={"overall_score_1_l1": None, "overall_ranking_l1": 0.0}),
    Case("only a score counts", asked(reply((1, 5, 6)), (4, None, None)), -3.0,
         own={"overall_ranking_l1": None, "overall_ranking_binary_acc": None}),
    # rubrics
    Case("rubrics right", asked(reply((4, 2, 2), *TWO), (4, 2, 2), *TWO), 0.0,
         own={"rubric_score_l1": 0.0, "rubric_ranking_l1": 0.0}),
    Case("a rubric wrong", asked(reply((4, 2, 2), (5, 3, 2), (3, 3, 4)), (4, 2, 2), *TWO), -1.0,
         own={"rubric_score_l1": 0.5, "rubric_ranking_l1": 0.5}),
    Case("rubrics alone", asked(reply((1, 1, 1), (5, 3, 2)), None, (5, 1, 1)), -2.0,
         own={"overall_score_1_l1": None, "predicted_score_1": 1.0}),
    Case("a rubric without scores",
         asked(reply((4, 2, 2), (5, 3, 2), (1, 1, 1)), (4, 2, 2), (5, 1, 1), (None,) * 3), -2.0),
    Case("a rubric less", asked(reply((4, 2, 2), (5, 1, 1)), (4, 2, 2), *TWO), -100.0, own=FAILED),
    Case("a rubric more", asked(reply((4, 2, 2), *TWO, (1, 1, 1)), (4, 2, 2), *TWO), -100.0, own=FAILED),
    Case("rubrics nobody asked for", asked(reply((4, 2, 2), *TWO)), 0.0),
    Case("a rubric twice", asked(
        reply(rubric_evaluations=[scores(TWO[0], rubric_id=1)] * 2), (4, 2, 2), *TWO), -100.0, own=FAILED),
    Case("twice in the row too", asked(
        reply(rubric_evaluations=[scores(TWO[0], rubric_id=1)] * 2),
        ground_truth_rubric_scores=[scores(TWO[0], rubric_id=1)] * 2), -100.0, own=FAILED),
    Case("in another order", asked(
        reply(rubric_evaluations=[scores(TWO[1], rubric_id=2), scores(TWO[0], rubric_id="1")]), (4, 2, 2), *TWO), 0.0),
    # weights
    Case("weights", asked(reply((3, 2, 3), (4, 1, 2)), (4, 2, 2), (5, 1, 1)), -1 * 10 - 1 * 100 - 1000 * 110,
         settings={"score_weight": 10, "ranking_weight": 100, "rubric_weight": 1000}),
    Case("the penalty", asked("none"), -7.0, settings={"parse_failure_penalty": -7}),
    # what can't be read
    Case("nothing", verify_request({"id": 1, "ground_truth_overall": scores((4, 2, 2))}), -100.0, own=FAILED),
    Case("empty", asked(""), -100.0, own=FAILED),
    Case("no object", asked("4, 2 and 2"), -100.0, own=FAILED),
    Case("a list", asked(json.dumps([reply()])), 0.0, own=RIGHT),
    Case("two objects", asked(f"{json.dumps(reply())} or {json.dumps(reply((1, 5, 6)))}"), -100.0, own=FAILED),
    Case("an object beside braces", asked("Think {a, b}: " + json.dumps(reply()) + " {}}"), -100.0, own=FAILED),
    Case("braces that are no object", asked("Think {a, b}: " + json.dumps(reply()) + " }"), 0.0, own=RIGHT),
    Case("not closed", asked(json.dumps(reply())[:-1]), -100.0, own=FAILED),
    Case("in a fence", asked(f"So:\n```json\n{json.dumps(reply(), indent=1)}\n```"), 0.0, own=RIGHT),
    Case("braces in texts", asked(reply(why='} "{" {')), 0.0, own=RIGHT),
    Case("backslashes", asked(json.dumps(reply(why="X")).replace("X", r"\frac{1}{2} \d \u12 \"")), 0.0, own=RIGHT),
    Case("numbers as text", asked(reply(("4", " 2", "2.0"))), 0.0, own=RIGHT),
    Case("no overall", asked({"rubric_evaluations": [scores((1, 1, 1), rubric_id=1)]}), -100.0, own=FAILED),
    Case("no ranking", asked(reply(overall=(4, 2, None))), -100.0, own=FAILED),
    Case("words", asked(reply(("good", 2, 2))), -100.0, own=FAILED),
    Case("no rubrics", asked({"overall": scores((4, 2, 2))}), -100.0, own=FAILED),
    Case("rubrics without any", asked(reply(rubric_evaluations=[])), -100.0, own=FAILED),
    Case("rubrics that are none", asked(reply(rubric_evaluations={"1": 2})), -100.0, own=FAILED),
    Case("a rubric without a number", asked(reply(rubric_evaluations=[scores((1, 1, 1), rubric_id="a")])), -100.0),
    Case("a rubric that is no object", asked(reply(rubric_evaluations=[1])), -100.0),
    Case("a rubric's score that is none", asked(reply((4, 2, 2), (1, [], 1))), -100.0),
    Case("not a number", asked(reply((float("nan"), 2, 2))), -100.0, own=FAILED),
    Case("endless", asked(reply((float("inf"), 2, 2))), -100.0, own=FAILED),
    Case("endless when added up", asked(reply((1.7e308, -1.7e308, 2))), -100.0, own=FAILED),
    Case("an endless rubric", asked(reply(rubric_evaluations=[scores((1, 1, 1), rubric_id=float("inf"))])), -100.0),
    Case("too many digits", asked(json.dumps(reply()).replace("4", "4" * 9000)), -100.0, own=FAILED),
    Case("too large", asked(json.dumps(reply()).replace("4", "4" * 400)), -100.0, own=FAILED),
    Case("nested without end", asked('{"a":' * 100_000 + "1" + "}" * 100_000), -100.0, own=FAILED),
    Case("braces without end", asked("{" * 200_000), -100.0, own=FAILED),
    Case("many objects", asked("{}" * 100_000), -100.0, own=FAILED),
    Case("quotes without end", asked('{"' + '\\"' * 100_000), -100.0, own=FAILED),
    Case("odd characters", asked(json.dumps(reply(why="\x00\u202e\ud83d")) + "\x00\u202e\U0001d7dc"), 0.0, own=RIGHT),
    Case("what is thought", verify_request(
        {"id": 1, "ground_truth_overall": scores((4, 2, 2))}, reasoning(json.dumps(reply())), "Done."), -100.0,
         own=FAILED),
    # rows that say nothing
    Case("no gold", asked(reply(), None), 0.0, own=MASKED),
    Case("empty gold", asked(reply(), (None,) * 3), 0.0, own=MASKED),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(case: Case) -> None:
    await check_case(new_server(GenerativeRewardModelResourcesServer, **case.settings), case)


async def test_scores_that_are_changed_never_get_the_best_reward() -> None:
    """B83"""
    server = new_server(GenerativeRewardModelResourcesServer)
    for place in range(3):
        for change in (-1, 0.5, 1):
            overall = [4.0, 2.0, 2.0]
            overall[place] += change
            said = reply((overall[0], overall[1], overall[2]))
            assert (await verified(server, asked(said))).reward < 0.0


def test_what_a_reply_says() -> None:
    said = extract_scores(json.dumps(reply((4, 2, 2), *TWO)))
    assert said == Evaluation(Scores(4, 2, 2), ((1, Scores(5, 1, 1)), (2, Scores(3, 3, 4))))
    assert extract_scores("") is None


def test_over_http() -> None:
    with TestClient(new_server(GenerativeRewardModelResourcesServer).setup_webserver()) as client:
        record = client.post("/verify", json=asked(reply((4, 2, 3)), (4, 2, 2), (5, 1, 1))).json()
        assert client.post("/verify", json=asked(reply(), id=None)).status_code == 422
        assert client.post("/verify", json=asked(reply(), ground_truth_overall={"score_1": "x"})).status_code == 422
        assert client.post("/verify", json=asked(reply(), ground_truth_rubric_scores=[{}])).status_code == 422
        assert client.get("/reverify_mode").json() == "stateless"
    assert (record["reward"], record["id"], record["ground_truth_overall"]) == (-2.0, 1, scores((4, 2, 2)))
    assert record["ground_truth_rubric_scores"] == [scores((5, 1, 1), rubric_id=1)]


def test_the_flavour() -> None:
    loaded: Any = OmegaConf.to_container(OmegaConf.load(FOLDER / "configs" / "genrm_train.yaml"))
    block = loaded["genrm_train"]["resources_servers"]["generative_reward_model"]
    unknown = set(block) - set(GenerativeRewardModelResourcesServerConfig.model_fields)
    assert unknown <= {"domain", "verified", "description", "value"}


def test_example_rows() -> None:
    for row in check_example_rows(FOLDER):
        GenerativeRewardModelVerifyRequest.model_validate(row | {"response": response("x")})


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    own = ["format_correct", "predicted_ranking", "rubric_score_l1", "rubric_ranking_l1", "overall_ranking_binary_acc"]
    await check_example_rollouts(
        new_server(GenerativeRewardModelResourcesServer), FOLDER, own=own, rewards=[0.0, -3.25, -100.0, -2.0, -100.0]
    )
