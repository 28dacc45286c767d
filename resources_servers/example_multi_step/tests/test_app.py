from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from nemo_gym.testing.responses import call, call_output, message, verify_request
from nemo_gym.testing.verdicts import (
    Case,
    check_case,
    check_example_rollouts,
    check_example_rows,
    new_server,
    rows_of,
    verified,
)
from resources_servers.example_multi_step import generate_data
from resources_servers.example_multi_step.app import ExampleMultiStepResourcesServer, value_of
from resources_servers.example_multi_step.thesaurus import THESAURUS, synonyms_of

FOLDER = Path(__file__).parents[1]
ROW: dict[str, Any] = {
    "id": 7,
    "expected_synonym_values": [321, 628, 663],
    "expected_synonyms": ["ill", "unwell", "ailing"],
    "minefield_label": "sick",
    "minefield_label_value": 426,
}
VALUES = ROW["expected_synonym_values"]


def handing_in(values: Any) -> dict[str, Any]:
    return call("extract_synonym_values", {"synonym_values": values})


def handing_in_number(text: str) -> dict[str, Any]:
    """A list of one number, written as `text`."""
    return call("extract_synonym_values", f'{{"synonym_values": [{text}]}}')


def asked(*output: Any, **fields: Any) -> dict[str, Any]:
    return verify_request({**ROW, **fields}, *output)


def own(parsed: list[int], overlap: float, *, hit: bool = False, order: bool = False) -> dict[str, Any]:
    return {
        "parsed_synonym_values": parsed,
        "accuracy": False,
        "set_overlap": overlap,
        "original_term_minefield_hit": hit,
        "order_instruction_following_failure": order,
    }


NONE = own([], 0.0)
CASES = [
    Case("right", asked(handing_in(VALUES), call_output("{}"), "Done."), 1.0, {**own(VALUES, 1.0), "accuracy": True}),
    Case("after looking up", asked(call("get_synonym_value", {"synonym": "ill"}), call_output("{}"),
                                   handing_in(VALUES)), 1.0),
    Case("the last one counts", asked(handing_in([1]), handing_in(VALUES)), 1.0),
    Case("also if it is wrong", asked(handing_in(VALUES), handing_in([321])), 0.0, own([321], 1 / 3)),
    Case("whole numbers with a point", asked(handing_in([321.0, 628, 663.0])), 1.0,
         {**own(VALUES, 1.0), "accuracy": True}),
    Case("in another order", asked(handing_in(VALUES[::-1])), 0.0, own(VALUES[::-1], 1.0, order=True)),
    Case("one twice", asked(handing_in([*VALUES, 321])), 0.0, own([*VALUES, 321], 1.0, order=True)),
    Case("one is missing", asked(handing_in(VALUES[:2])), 0.0, own(VALUES[:2], 2 / 3)),
    Case("another", asked(handing_in([321, 628, 1])), 0.0, own([321, 628, 1], 2 / 3)),
    Case("the term's value", asked(handing_in([*VALUES, 426])), 0.0, own([*VALUES, 426], 1.0, hit=True, order=True)),
    Case("the term", asked(handing_in(["sick"])), 0.0, own([], 0.0, hit=True)),
    Case("nothing handed in", asked("321, 628, 663"), 0.0, NONE),
    Case("nothing at all", asked(), 0.0, NONE),
    Case("an empty list", asked(handing_in([])), 0.0, NONE),
    Case("looked up only", asked(call("get_synonym_value", {"synonym": "ill"}), message("Done.")), 0.0, NONE),
    Case("expected twice", asked(handing_in([5, 5]), expected_synonym_values=[5, 5]), 1.0,
         {**own([5, 5], 0.5), "accuracy": True}),
    # what a model might hand in
    Case("no JSON", asked(call("extract_synonym_values", "{")), 0.0, NONE),
    Case("no list", asked(handing_in("321")), 0.0, NONE),
    Case("null", asked(handing_in(None)), 0.0, NONE),
    Case("no such argument", asked(call("extract_synonym_values", {"values": VALUES})), 0.0, NONE),
    Case("a list for an object", asked(call("extract_synonym_values", VALUES)), 0.0, NONE),
    Case("texts", asked(handing_in(["321", "628", "663"])), 0.0, NONE),
    Case("one text among them", asked(handing_in([*VALUES, "x"])), 0.0, NONE),
    Case("halves", asked(handing_in([320.5, 628, 663])), 0.0, NONE),
    Case("true", asked(handing_in([True]), expected_synonym_values=[1]), 0.0, NONE),
    Case("lists in it", asked(handing_in([[321], {"a": 1}])), 0.0, NONE),
    Case("a large number", asked(handing_in_number("9" * 300)), 0.0, NONE),
    Case("a larger number", asked(handing_in_number("9" * 5000)), 0.0, NONE),
    Case("infinite", asked(handing_in_number("1e999")), 0.0, NONE),
    Case("half a surrogate pair", asked(handing_in_number(r'"\ud800"')), 0.0, NONE),
    Case("very deep", asked(handing_in_number("[" * 5000)), 0.0, NONE),
    Case("very many", asked(handing_in([1] * 100_000)), 0.0),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(case: Case) -> None:
    await check_case(new_server(ExampleMultiStepResourcesServer), case)


async def test_a_row_that_expects_nothing_says_nothing_about_the_model() -> None:
    """Spec 51, Do better: 0.7 divides by zero."""
    request = asked(handing_in([]), expected_synonym_values=[])
    verdict = await verified(new_server(ExampleMultiStepResourcesServer), request)
    assert (verdict.reward, verdict.mask_sample, verdict.failure_kind) == (0.0, True, "verifier_error")


def test_the_tools() -> None:
    with TestClient(new_server(ExampleMultiStepResourcesServer).setup_webserver()) as client:
        words = {"ill": 321, "unwell": 663, "": 0, "\u00e9\U0001f600": 233 + 0x1F600, "a" * 1_000_000: 97_000_000}
        for word, value in words.items():
            assert client.post("/get_synonym_value", json={"synonym": word}).json() == {"synonym_value": value}
        assert client.post("/extract_synonym_values", json={"synonym_values": [1, 2]}).json() == {"success": True}
        wrong = [{}, {"synonym": 3}, {"synonym": None}, []]
        assert [client.post("/get_synonym_value", json=body).status_code for body in wrong] == [422] * 4
        assert client.post("/extract_synonym_values", json={"synonym_values": "1"}).status_code == 422


def test_over_http() -> None:
    with TestClient(new_server(ExampleMultiStepResourcesServer).setup_webserver()) as client:
        record = client.post("/verify", json=asked(handing_in(VALUES))).json()
        for name in ROW:
            fields = {key: value for key, value in ROW.items() if key != name}
            assert client.post("/verify", json=verify_request(fields, "x")).status_code == 422, name
        assert client.get("/reverify_mode").json() == "stateless"
    assert {name: record[name] for name in ROW} == ROW
    assert (record["reward"], record["set_overlap"]) == (1.0, 1.0)


# --- data -------------------------------------------------------------------------------------------------------------


def test_example_rows() -> None:
    for row in check_example_rows(FOLDER):
        assert row["expected_synonym_values"] == [value_of(synonym) for synonym in row["expected_synonyms"]]
        assert row["minefield_label_value"] not in row["expected_synonym_values"]
        assert row["responses_create_params"]["parallel_tool_calls"] is False


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    names = [*NONE, *ROW]
    rewards = [1.0, 1.0, 0.0, 0.0, 0.0]
    await check_example_rollouts(new_server(ExampleMultiStepResourcesServer), FOLDER, own=names, rewards=rewards)


def test_the_same_rows_each_time(tmp_path: Path) -> None:
    written = generate_data.prepare("example", tmp_path / "x.jsonl")
    assert written.read_bytes() == (FOLDER / "data" / "example.jsonl").read_bytes()
    assert len(rows_of(generate_data.prepare("train", tmp_path / "y.jsonl", 60))) == 60
    train, validation = (
        [row["minefield_label"] for row in generate_data.rows(split)] for split in ("train", "validation")
    )
    assert set(train[: len(THESAURUS)]) == set(THESAURUS) and len(train) == 1000
    assert train[:100] != validation


def test_no_term_is_a_synonym_of_its_own_nor_has_the_value_of_one() -> None:
    for term in THESAURUS:
        synonyms = synonyms_of(term)
        assert len(set(synonyms)) == len(synonyms) >= 4 and value_of(term) not in map(value_of, synonyms), term
