from __future__ import annotations

import json
import random
import sys
from itertools import islice, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fastapi.testclient import TestClient

from environments.calendar import prepare as environment
from environments.calendar_v2 import prepare as environment_v2
from nemo_gym.data_preparation import PreparationError
from nemo_gym.testing.responses import call, message, reasoning, verify_request
from nemo_gym.testing.verdicts import (
    Case,
    check_case,
    check_example_rollouts,
    check_example_rows,
    new_server,
    rows_of,
    verified,
)
from resources_servers.calendar import generate_data
from resources_servers.calendar.app import CalendarResourcesServer
from resources_servers.calendar.events import first_list, is_right, wanted_events
from resources_servers.calendar.planning import answer, planned
from resources_servers.calendar.published import as_row
from resources_servers.calendar.times import TimeError, Window, minutes_of, time_of

FOLDER = Path(__file__).parents[1]
ENVIRONMENTS = FOLDER.parents[1] / "environments"
UNIQUE = {"unique_events": True}


def expected(number: int, duration: Any = 30, constraint: str | None = None, **fields: Any) -> dict[str, Any]:
    times = {"min_time": "10:00", "max_time": "16:00"}
    return {"event_id": number, "duration": duration, "constraint": constraint, **times, **fields}


def event(number: Any, start: Any, duration: Any = 30, **fields: Any) -> dict[str, Any]:
    return {"event_id": number, "event_name": f"E{number}", "start_time": start, "duration": duration, **fields}


TWO = {"0": expected(0), "1": expected(1, 60)}
A, B = event(0, "10am"), event(1, "11am", 60)


def asked(state: dict[str, Any], *output: Any) -> dict[str, Any]:
    return verify_request({"exp_cal_state": state}, *output)


def listed(*events: Any, state: dict[str, Any] | None = None) -> dict[str, Any]:
    return asked(TWO if state is None else state, json.dumps(events))


def one(constraint: str | None, start: Any, duration: Any = 30, **fields: Any) -> dict[str, Any]:
    """A calendar of one event of half an hour."""
    return asked({"0": expected(0, 30, constraint, **fields)}, json.dumps([event(0, start, duration)]))


LIST = json.dumps([A, B])
CASES = [
    Case("right", listed(A, B), 1.0),
    Case("in another order", listed(B, A), 1.0),
    Case("with words around", asked(TWO, f"Here you are:\n```json\n{LIST}\n```\nAnything else?"), 1.0),
    Case("over lines", asked(TWO, json.dumps([A, B], indent=2)), 1.0),
    Case("inside an object", asked(TWO, f'{{"events": {LIST}}}'), 1.0),
    Case("brackets in names", listed({**A, "event_name": "[x]"}, B), 1.0),
    Case("ids as text", listed(event("0", "10am"), event("1", "11am", 60)), 1.0),
    Case("times of 24 hours", listed(event(0, "10:00"), event(1, "13:05", 60)), 1.0),
    Case("back to back", listed(A, event(1, "10:30am", 60)), 1.0),
    # where the answer is
    Case("nothing", asked(TWO), 0.0),
    Case("empty", asked(TWO, ""), 0.0),
    Case("blank", asked(TWO, " \n"), 0.0),
    Case("no list", asked(TWO, "All set!"), 0.0),
    Case("only the last item counts", asked(TWO, LIST, "All set!"), 0.0),
    Case("and is enough", asked(TWO, "One moment.", LIST), 1.0),
    Case("its first part only", asked(TWO, message("Here:", LIST)), 0.0),
    Case("reasoning at the end", asked(TWO, LIST, reasoning()), 0.0),
    Case("reasoning before", asked(TWO, reasoning(), LIST), 1.0),
    Case("a call at the end", asked(TWO, LIST, call("f")), 0.0),
    Case("thoughts in the answer", asked(TWO, f"<think>hm</think>{LIST}"), 0.0),
    Case("thoughts that don't begin", asked(TWO, f"hm</think>{LIST}"), 1.0),
    # which list counts
    Case("the first list with an object", asked(TWO, f"[1, 2] [] {LIST}"), 1.0),
    Case("also if it is wrong", asked(TWO, f'[{{"event_id": 0}}] {LIST}'), 0.0),
    Case("also if it is no JSON", asked(TWO, f"[{{event: 0}}] {LIST}"), 0.0),
    Case("the first of two", asked(TWO, f"{LIST} [{{}}]"), 1.0),
    Case("a list in a list", asked(TWO, f"[{LIST}]"), 1.0),
    Case("without an end", asked(TWO, LIST[:-1]), 0.0),
    Case("a comma too many", asked(TWO, LIST[:-1] + ",]"), 0.0),
    Case("single quotes", asked(TWO, LIST.replace('"', "'")), 0.0),
    # how many
    Case("one is missing", listed(A), 0.0),
    Case("one too many", listed(A, B, event(2, "3pm")), 0.0),
    Case("another id", listed(A, event(2, "11am", 60)), 0.0),
    Case("no id", listed(A, {"start_time": "11am", "duration": 60}), 0.0),
    Case("something else beside", listed(A, B, 5), 0.0),
    Case("one twice", listed(A, B, A), 1.0),
    Case("one twice, strictly", listed(A, B, A), 0.0, settings=UNIQUE),
    Case("each once, strictly", listed(A, B), 1.0, settings=UNIQUE),
    Case("one id twice, the last counts", listed(event(0, "9am"), B, event(0, "2pm")), 1.0),
    Case("one id twice, overlapping", listed(event(0, "10:15am"), B, A), 0.0),
    # apart
    Case("overlapping", listed(A, event(1, "10:29am", 60)), 0.0),
    Case("one inside the other", listed(event(0, "11:10am"), B), 0.0),
    Case("at the same time", listed(event(0, "11am"), B), 0.0),
    # lengths
    Case("another length", listed(A, event(1, "11am", 45)), 0.0),
    Case("the length as text", listed(A, event(1, "11am", "60")), 0.0),
    Case("the length with a point", listed(A, event(1, "11am", 60.0)), 1.0),
    Case("no length", listed(A, {"event_id": 1, "start_time": "11am"}), 0.0),
    Case("a minus", listed(A, event(1, "11am", -60)), 0.0),
    Case("not a number", asked(TWO, LIST.replace("60", "NaN")), 0.0),
    Case("infinite", asked(TWO, LIST.replace("60", "1e999")), 0.0),
    # the day
    Case("at its beginning", one(None, "10am"), 1.0),
    Case("before its beginning", one(None, "9:59am"), 0.0),
    Case("at its end", one(None, "3:30pm"), 1.0),
    Case("past its end", one(None, "3:31pm"), 0.0),
    Case("at night", one(None, "12am", min_time="00:00"), 1.0),
    Case("at noon", one(None, "12pm"), 1.0),
    Case("until midnight", one(None, "11:30pm", max_time="24:00"), 1.0),
    # constraints
    Case("before, just", one("before 11am", "10:30am"), 1.0),
    Case("before, not", one("before 11am", "10:31am"), 0.0),
    Case("after, just", one("after 1:30pm", "1:30pm"), 1.0),
    Case("after, not", one("after 1:30pm", "1:29pm"), 0.0),
    Case("between, just", one("between 11am and 11:30am", "11am"), 1.0),
    Case("between, too early", one("between 11am and 12pm", "10:59am"), 0.0),
    Case("between, too late", one("between 11am and 12pm", "11:31am"), 0.0),
    Case("at, just", one("at 12:15pm", "12:15pm"), 1.0),
    Case("at, in 24 hours", one("at 1:15pm", "13:15"), 1.0),
    Case("at, later", one("at 12:15pm", "12:16pm"), 0.0),
    Case("at, but not within the day", one("at 9am", "9am"), 0.0),
    Case("other words", one("in the morning", "2pm"), 1.0),
    Case("a capital", one("Before 11am", "2pm"), 1.0),
    Case("no words", one("", "2pm"), 1.0),
    # times that are none
    *[Case(f"start {start!r}", one(None, start), 0.0) for start in
      ("10AM", "10 am", "10", "25:00", "10:60", "13pm", "0am", "10:0am", "10:00:00", "noon", "", " 10am", "1\u0660am",
       None, 600, ["10am"], {"h": 10}, True)],
    Case("no start", asked({"0": expected(0)}, '[{"event_id": 0, "duration": 30}]'), 0.0),
    # nothing expected
    Case("nothing expected", asked({}, "There is nothing left."), 1.0),
    Case("nothing expected, nothing said", asked({}, ""), 0.0),
    Case("nothing expected, thoughts", asked({}, "<think>"), 0.0),
    Case("nulls of a data set", asked({**TWO, "2": None, "3": None}, LIST), 1.0),
    # what a model might write
    Case("brackets without end", asked(TWO, "[{" * 100_000), 0.0),
    Case("many beginnings", asked(TWO, "[{[}" * 50_000), 0.0),
    Case("many objects", asked(TWO, "[" + "{}," * 100_000 + "{}]"), 0.0),
    Case("one event very often", asked(TWO, f"[{json.dumps(B)}, " + ", ".join([json.dumps(A)] * 5000) + "]"), 1.0),
    Case("one id very often", listed(*[event(0, "10am", note=n) for n in range(3000)], B), 0.0),
    Case("nested without end", asked(TWO, LIST.replace('"E0"', "{" * 5000)), 0.0),
    Case("nested in brackets", asked(TWO, LIST.replace('"E0"', "[" * 900 + "]" * 900)), 1.0),
    Case("a number without end", asked(TWO, LIST.replace("60", "6" * 5000)), 0.0),
    Case("a number with no room in a float", asked(TWO, LIST.replace("60", "6" * 400)), 0.0),
    Case("odd characters", listed({**A, "event_name": "\x00\u202e\ufffd"}, B), 1.0),
    Case("half a surrogate pair", asked(TWO, LIST.replace("E0", r"\ud800")), 1.0),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(case: Case) -> None:
    await check_case(new_server(CalendarResourcesServer, **case.settings), case)


@pytest.mark.parametrize(
    "state",
    [
        {"0": {}},
        {"0": {key: value for key, value in expected(0).items() if key != "constraint"}},
        {"0": expected(0, "30")},
        {"0": expected(0, True)},
        {"0": expected(0, min_time="ten")},
        {"0": expected(0, max_time=None)},
        {"0": expected(0, constraint="before noon")},
        {"0": expected(0, constraint="between 10am and later")},
    ],
)
async def test_a_row_that_says_nothing_of_its_events_says_nothing_about_the_model(state: dict[str, Any]) -> None:
    """Spec 51, Do better."""
    answered = await verified(new_server(CalendarResourcesServer), asked(state, json.dumps([A])))
    assert (answered.reward, answered.mask_sample, answered.failure_kind) == (0.0, True, "verifier_error")
    assert "exp_cal_state['0']" in answered.failure_reason


async def test_a_right_calendar_that_is_changed_never_scores() -> None:
    """B83"""
    server = new_server(CalendarResourcesServer, **UNIQUE)
    for row in islice(generate_data.rows("validation", "calendar_v2"), 10):
        state = row["exp_cal_state"]
        right = json.loads(answer(state))
        assert (await verified(server, asked(state, json.dumps(right)))).reward == 1.0
        for place, changed in enumerate(right):
            others = right[:place] + right[place + 1 :]
            for field, value in (("duration", changed["duration"] + 5), ("event_id", 99), ("start_time", "9:55am")):
                wrong = json.dumps([*others, {**changed, field: value}])
                assert (await verified(server, asked(state, wrong))).reward == 0.0, wrong
            for more in ([], [changed, changed], [changed, {**changed, "event_id": 99}]):
                assert (await verified(server, asked(state, json.dumps([*others, *more])))).reward == 0.0


LISTS = [
    ("[1] [{}] [{}]", "[{}]"),
    ("[x {} y]", "[x {} y]"),
    ("[{[}]", "[{[}]"),
    ("[[{}]", "[{}]"),
    ("[{}[]]", None),
    ("{[}]", None),
    ("[{]", None),
    ("[}{]", None),
    ("[]", None),
    ("[} {}]", "[} {}]"),
    ("[{} {]", "[{} {]"),
    ('[{"a": {"b": 1}}]', '[{"a": {"b": 1}}]'),
    ("[{ [{}] ", "[{ [{}]"),
    ("", None),
]


@pytest.mark.parametrize(("text", "found"), LISTS)
def test_the_first_list_that_has_an_object(text: str, found: str | None) -> None:
    assert first_list(text) == found


@pytest.mark.parametrize(
    ("text", "minutes"), [("12am", 0), ("12:05am", 5), ("1am", 60), ("12pm", 720), ("11:59pm", 1439), ("9:05", 545)]
)
def test_times(text: str, minutes: int) -> None:
    assert minutes_of(text) == minutes


def test_times_are_written_as_they_are_read() -> None:
    assert [time_of(minutes) for minutes in (0, 5, 600, 720, 810)] == ["12am", "12:05am", "10am", "12pm", "1:30pm"]
    assert all(minutes_of(time_of(minutes)) == minutes for minutes in range(24 * 60))
    with pytest.raises(TimeError, match="a list is no time"):
        minutes_of([])


def test_windows() -> None:
    assert Window.of("10:00", "16:00", "between 9am and 11am") == Window(600, 660)
    assert Window.of("10:00", "16:00", "at 3pm") == Window(600, 960, 900)
    assert Window.of("10:00", "16:00", None) == Window.of("10:00", "16:00", "before 10pm") == Window(600, 960)


# --- plans and conversations ------------------------------------------------------------------------------------------


def test_a_plan_finds_the_only_way() -> None:
    state = {
        "0": expected(0, 60),
        "1": expected(1, 60, "at 11am"),
        "2": expected(2, 60, "before 11am"),
        "3": expected(3, 180, "after 1pm"),
    }
    starts = planned(wanted_events(state))
    assert starts == {"2": 600, "1": 660, "0": 720, "3": 780}
    assert planned(wanted_events({**state, "4": expected(4, 5)})) is None
    with pytest.raises(ValueError, match="can't all be placed"):
        answer({**state, "4": expected(4, 5)})
    assert is_right(answer(state), wanted_events(state))


@pytest.mark.parametrize("style", ["calendar", "calendar_v2"])
def test_conversations_of_our_own(style: generate_data.Style) -> None:
    for row in islice(generate_data.rows("train", style), 30):
        messages, state = row["responses_create_params"]["input"], row["exp_cal_state"]
        assert [each["role"] for each in messages[:2]] == ["system", "user"]
        assert messages[-1]["role"] == "user"
        assert all(one["role"] != other["role"] for one, other in pairwise(messages))
        wanted = wanted_events(state)
        assert is_right(answer(state), wanted, unique_events=True)
        calendars = [each["content"] for each in messages if each["role"] == "assistant" and each["content"][0] == "["]
        assert calendars and not is_right(calendars[-1], wanted)


def test_the_same_conversations_each_time(tmp_path: Path) -> None:
    for style, prefix in (("calendar", ""), ("calendar_v2", "calendar_v2_")):
        written = generate_data.write("example", tmp_path / "x.jsonl", None, style)  # type: ignore[arg-type]
        assert written.read_bytes() == (FOLDER / "data" / f"{prefix}example.jsonl").read_bytes()
    assert len(rows_of(generate_data.write("train", tmp_path / "y.jsonl", 3))) == 3
    one, other = (generate_data.make_row(random.Random(seed)) for seed in (1, 2))
    assert one != other


# --- the server -------------------------------------------------------------------------------------------------------


def test_over_http() -> None:
    with TestClient(new_server(CalendarResourcesServer).setup_webserver()) as client:
        record = client.post("/verify", json=listed(A, B))
        assert record.status_code == 200
        wrong: list[Any] = [None, [], {"0": 5}]
        assert [client.post("/verify", json=asked(each, "x")).status_code for each in wrong] == [422] * 3
        assert client.post("/verify", json=verify_request({}, "x")).status_code == 422
        assert client.get("/reverify_mode").json() == "stateless"
    assert (record.json()["reward"], record.json()["exp_cal_state"]) == (1.0, TWO)


@pytest.mark.parametrize("prefix", ["", "calendar_v2_"])
async def test_example_data(prefix: str) -> None:
    check_example_rows(FOLDER, prefix=prefix)
    rewards = [1.0, 1.0, 0.0, 1.0, 0.0]
    await check_example_rollouts(new_server(CalendarResourcesServer), FOLDER, prefix=prefix, rewards=rewards)


@pytest.mark.parametrize(("name", "prefix"), [("calendar", ""), ("calendar_v2", "calendar_v2_")])
def test_the_environments_have_the_rows_of_the_server(name: str, prefix: str) -> None:
    own = ENVIRONMENTS / name / "data"
    assert (own / "example.jsonl").read_bytes() == (FOLDER / "data" / f"{prefix}example.jsonl").read_bytes()
    rewards = [record["reward"] for record in rows_of(own / "example_rollouts.jsonl")]
    assert rewards == [1.0, 1.0, 0.0, 1.0, 0.0]
    metrics = json.loads((own / "example_metrics.json").read_text())
    assert metrics["jsonl_fpath"] == f"environments/{name}/data/example.jsonl"


# --- the published conversations --------------------------------------------------------------------------------------

PROMPT = {"input": [{"role": "user", "content": "Add it."}], "temperature": None}
PUBLISHED = {"responses_create_params": PROMPT, "exp_cal_state": {"0": expected(0), "1": None}, "agent_ref": {}}
ROW = {"responses_create_params": {"input": PROMPT["input"]}, "exp_cal_state": {"0": expected(0)}}


def test_published_conversations_become_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Read as a table, every row has the ids of all rows, null where it has no such event."""
    asked_for = []
    module = ModuleType("datasets")

    def load_dataset(*args: Any, **options: Any) -> list[dict[str, Any]]:
        asked_for.append((args[0], options["split"]))
        return [PUBLISHED] * 3

    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    assert rows_of(environment.prepare(output=tmp_path / "a.jsonl", limit=2)) == [ROW] * 2
    assert rows_of(environment_v2.prepare("validation", tmp_path / "b.jsonl")) == [ROW] * 3
    assert asked_for == [(environment.REPOSITORY, "train"), (environment_v2.REPOSITORY, "validation")]
    assert as_row({key: json.dumps(value) for key, value in PUBLISHED.items()}) == ROW


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"responses_create_params": {}}, "Row 6 has no prompt"),
        ({"responses_create_params": "{"}, "Row 6 has no prompt"),
        ({"exp_cal_state": None}, "Row 6 has no exp_cal_state"),
        ({"exp_cal_state": "[]"}, "Row 6 has no exp_cal_state"),
    ],
)
def test_published_conversations_that_can_not_be_used(change: dict[str, Any], told: str) -> None:
    with pytest.raises(PreparationError, match=told):
        as_row({**PUBLISHED, **change}, 6)
