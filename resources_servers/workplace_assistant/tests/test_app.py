from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from nemo_gym.testing.responses import call, response, verify_request
from nemo_gym.testing.verdicts import check_example_rollouts, check_example_rows, new_server, rows_of
from resources_servers.workplace_assistant.app import (
    WorkbenchResourcesServer,
    WorkbenchVerifyRequest,
)
from resources_servers.workplace_assistant.generate_data import FOLDER, main
from resources_servers.workplace_assistant.toolkits.mail import SENT_AT
from resources_servers.workplace_assistant.utils import SCHEMAS, ToolEnvironment, get_tools

HERE = Path(__file__).parents[1]
ROWS = rows_of(HERE / "data" / "example.jsonl")
TOOL_CASES = rows_of(HERE / "tests" / "tool_cases.jsonl")
SEND = ("email_send_email", {"recipient": "x@y.z", "subject": "S", "body": "B"})
MEET = (
    "calendar_create_event",
    {"event_name": "M", "participant_email": "x@y.z", "event_start": "2023-12-05 09:00:00", "duration": "30"},
)
TASK = ("project_management_update_task", {"task_id": "00000149", "field": "task_name"})
WON = ("customer_relationship_manager_update_customer", {"customer_id": "00000053", "field": "status"})


@pytest.fixture
def client() -> TestClient:
    return TestClient(new_server(WorkbenchResourcesServer).setup_webserver())


def seeded(client: TestClient) -> TestClient:
    assert client.post("/seed_session", json={}).status_code == 200
    return client


def used(client: TestClient, tool: str, **arguments: Any) -> Any:
    reply = client.post(f"/{tool}", json=arguments)
    assert reply.status_code == 200
    return reply.json()["output"]


def calls(*made: tuple[str, Any]) -> list[dict[str, Any]]:
    return [call(name, arguments, f"c{number}") for number, (name, arguments) in enumerate(made)]


def as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def verdict(client: TestClient, made: list[tuple[str, Any]], wanted: Any) -> dict[str, Any]:
    truth = (
        wanted
        if isinstance(wanted, str)
        else [{"name": name, "arguments": as_text(arguments)} for name, arguments in wanted]
    )
    reply = client.post("/verify", json=verify_request({"ground_truth": truth, "id": 1}, *calls(*made)))
    assert reply.status_code == 200
    found: dict[str, Any] = reply.json()
    return found


# --- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", TOOL_CASES, ids=[f"{case['tool']}-{n}" for n, case in enumerate(TOOL_CASES)])
def test_a_tool_answers(client: TestClient, case: dict[str, Any]) -> None:
    assert used(seeded(client), case["tool"], **case["arguments"]) == case["output"]


def test_searches_give_the_newest_first_in_pages(client: TestClient) -> None:
    found = used(seeded(client), "email_search_emails", query="budget QUARTERLY", page=2, page_size=3)
    assert found["pagination"] == {"total_emails": 24, "page": 2, "page_size": 3, "total_pages": 8}
    assert len(found["emails"]) == 3
    times = [email["sent_datetime"] for email in found["emails"]]
    assert times == sorted(times, reverse=True)
    last = used(client, "email_search_emails", query="budget quarterly", page=99, page_size=5)["pagination"]
    assert (last["page"], last["total_pages"]) == (5, 5)


def test_days_count_whole_in_searches(client: TestClient) -> None:
    day = {"date_min": "2023-11-29", "date_max": "2023-11-29", "page_size": 100}
    found = used(seeded(client), "email_search_emails", **day)["emails"]
    assert found and {email["sent_datetime"][:10] for email in found} == {"2023-11-29"}
    events = used(client, "calendar_search_events", time_min="2023-12-01 09:15:00", time_max="2023-12-01 11:15:00")
    assert [event["event_id"] for event in events["events"]] == ["00000175", "00000174"]


def test_visits_are_counted_by_day(client: TestClient) -> None:
    seeded(client)
    window = {"time_min": "2023-11-01", "time_max": "2023-11-03"}
    total = used(client, "analytics_total_visits_count", **window)
    sources = [
        used(client, "analytics_traffic_source_count", traffic_source=source, **window)
        for source in ("direct", "referral", "search engine", "social media")
    ]
    assert list(total) == ["2023-11-01", "2023-11-02", "2023-11-03"]
    assert {day: sum(source[day] for source in sources) for day in total} == total
    engaged = used(client, "analytics_engaged_users_count", **window)
    assert all(0 <= engaged[day] <= total[day] for day in total)
    averages = used(client, "analytics_get_average_session_duration", **window)
    assert all(1 <= averages[day] <= 40 for day in total)


def test_what_was_deleted_is_not_found_again_and_other_sessions_have_it() -> None:
    app = new_server(WorkbenchResourcesServer).setup_webserver()
    mine, other = seeded(TestClient(app)), seeded(TestClient(app))
    assert used(mine, "email_delete_email", email_id="00000001") == "Email deleted successfully."
    asked = {"email_id": "00000001", "field": "subject"}
    assert used(mine, "email_get_email_information_by_id", **asked) == "Email not found."
    assert used(other, "email_get_email_information_by_id", **asked) == {"subject": "About the travel policy"}


def test_a_sent_email_is_numbered_and_dated(client: TestClient) -> None:
    used(seeded(client), "email_send_email", recipient="Ada@B.org", subject="S", body="words of its own")
    (email,) = used(client, "email_search_emails", query="words of its own")["emails"]
    expected = ("500", "outbox", "ada@b.org", SENT_AT)
    assert (email["email_id"], email["inbox/outbox"], email["sender/recipient"], email["sent_datetime"]) == expected


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("email_send_letter", {}, "there is no such tool"),
        ("email_send_email", {"to": "a@b.c"}, "unexpected keyword argument 'to'"),
        ("calendar_search_events", {"query": "("}, "no regular expression"),
        ("calendar_search_events", {"query": "a" * 100_001}, "is too long"),
    ],
)
def test_mistakes_are_told_to_the_model(client: TestClient, tool: str, arguments: Any, said: str) -> None:
    output = used(seeded(client), tool, **arguments)
    assert output.startswith(f"Error executing tool '{tool}': ") and said in output


def test_a_pattern_that_takes_for_ever_is_an_error_for_the_model(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B35: the server answers others meanwhile, since the pattern runs in a process of its own."""
    monkeypatch.setattr("nemo_gym.verifiers.patterns.SECONDS", 0.2)
    output = used(seeded(client), "calendar_search_events", query="(.+)+9{9}")
    assert "took more than" in output


def test_without_a_seed_there_is_no_office(client: TestClient) -> None:
    assert client.post("/email_search_emails", json={}).status_code == 400


def test_all_schemas_name_arguments_that_the_tools_take() -> None:
    tools = get_tools()
    assert len(tools["functions"]) == len(SCHEMAS) == 27
    for name, schema in SCHEMAS.items():
        code = getattr(tools["functions"][name], "__func__").__code__  # noqa: B009
        parameters = schema["parameters"]
        assert list(parameters["properties"]) == list(code.co_varnames[1 : code.co_argcount])
        assert set(parameters["required"]) <= set(parameters["properties"])
        assert (parameters["additionalProperties"], schema["strict"]) == (False, False)
    assert list(get_tools(["email"])["functions"]) == [name for name in SCHEMAS if name.startswith("email_")]


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "wanted", "reward"),
    [
        ([SEND], [SEND], 1.0),
        ([], [], 1.0),
        ([], [SEND], 0.0),
        ([SEND], [], 0.0),
        ([SEND, SEND], [SEND], 0.0),
        ([("email_search_emails", {"query": "x"}), SEND], [SEND], 1.0),
        ([SEND, ("email_delete_email", {"email_id": "500"})], [], 1.0),
        ([("email_send_email", {**SEND[1], "body": "b", "recipient": "X@Y.Z"})], [SEND], 1.0),
        ([("email_send_email", {**SEND[1], "body": "other"})], [SEND], 0.0),
        ([("email_send_email", "{not json"), SEND], [SEND], 1.0),
        ([("email_send_email", "[1]"), SEND], [SEND], 1.0),
        ([("rm_rf", {}), SEND], [SEND], 1.0),
        ([SEND, MEET], [MEET, SEND], 1.0),
        ([MEET, ("calendar_delete_event", {"event_id": "00000300"})], [], 1.0),
        ([("calendar_delete_event", {"event_id": "00000299"}), MEET], [MEET], 0.0),
        ([("calendar_update_event", {"event_id": "00000174", "field": "duration", "new_value": "30"})], [], 0.0),
        ([("calendar_update_event", {"event_id": "00000174", "field": "duration", "new_value": "90"})], [], 1.0),
        ([(WON[0], {**WON[1], "new_value": "Won"})], [(WON[0], {**WON[1], "new_value": "Won"})], 1.0),
        ([(WON[0], {**WON[1], "new_value": "won"})], [(WON[0], {**WON[1], "new_value": "Won"})], 0.0),
        ([("calendar_update_event", {"event_id": "00000174", "field": "duration", "new_value": 90})], [], 1.0),
        ([(WON[0], {**WON[1], "new_value": ["Won"]})], [(WON[0], {**WON[1], "new_value": "Won"})], 0.0),
        ([(TASK[0], {**TASK[1], "new_value": 7.5})], [(TASK[0], {**TASK[1], "new_value": "7.5"})], 1.0),
        ([(TASK[0], {**TASK[1], "new_value": ["a"]})], [(TASK[0], {**TASK[1], "new_value": "a"})], 0.0),
        ([], "send it", 1.0),
        ([SEND], "send it", 0.0),
    ],
)
def test_the_reward_says_whether_the_offices_are_alike(
    client: TestClient, made: list[tuple[str, Any]], wanted: Any, reward: float
) -> None:
    assert verdict(client, made, wanted)["reward"] == reward


def test_a_row_deleted_and_made_again_differs_from_one_left_alone(client: TestClient) -> None:
    """The ids differ not, the place does."""
    task = {
        "task_name": "T",
        "assigned_to_email": "tove.berg@atlas.com",
        "list_name": "Backlog",
        "due_date": "2023-12-01",
        "board": "Design",
    }
    create, delete = (
        ("project_management_create_task", task),
        ("project_management_delete_task", {"task_id": "00000005"}),
    )
    assert verdict(client, [delete, create], [create, delete])["reward"] == 0.0


def test_the_session_is_gone_after_the_verdict(client: TestClient) -> None:
    used(seeded(client), *SEND[:1], **SEND[1])
    verdict(client, [SEND], [SEND])
    assert client.post("/email_search_emails", json={}).status_code == 410


def test_the_fields_may_be_in_the_metadata() -> None:
    body = verify_request({"verifier_metadata": {"ground_truth": [], "category": "c"}})
    request = WorkbenchVerifyRequest.model_validate(body)
    assert (request.ground_truth, request.category) == ([], "c")


async def test_sessions_share_what_they_leave_alone() -> None:
    """Seeding reads no file and copies no table: a thousand offices cost what their changes cost."""
    one, other = ToolEnvironment(), ToolEnvironment()
    await one.call("email_delete_email", {"email_id": "00000001"})
    assert next(iter(one.office.tasks)) is next(iter(other.office.tasks))
    assert next(iter(one.office.emails)) is next(iter(other.office.emails))
    assert (len(one.office.emails), len(other.office.emails)) == (499, 500)


# --- data -------------------------------------------------------------------------------------------------------------


def test_the_tables_are_what_the_generator_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resources_servers.workplace_assistant.generate_data.FOLDER", tmp_path)
    main()
    written = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.csv"))
    assert len(written) == 6
    assert all((tmp_path / name).read_bytes() == (FOLDER / name).read_bytes() for name in written)


@pytest.mark.parametrize("row", ROWS, ids=[row["category"] for row in ROWS])
def test_an_example_row_can_be_solved(client: TestClient, row: dict[str, Any]) -> None:
    assert row["responses_create_params"]["tools"] == list(SCHEMAS.values())
    truth = [(call["name"], call["arguments"]) for call in row["ground_truth"]]
    solved = client.post("/verify", json={**row, "response": response(*calls(*truth))}).json()
    idle = client.post("/verify", json={**row, "response": response()}).json()
    assert (solved["reward"], idle["reward"]) == (1.0, 0.0)


def test_example_rows() -> None:
    check_example_rows(HERE)


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    await check_example_rollouts(new_server(WorkbenchResourcesServer), HERE, rewards=[1.0, 1.0, 1.0, 0.0, 1.0])


def test_an_episode_that_is_seeded_again_keeps_its_office(client: TestClient) -> None:
    seed = {
        "resources_session_id": "s1",
        "episode_id": {"rollout_id": "e1"},
        "task_id": {"taskset": "office", "task_id": "t1"},
        "task_data": {"ground_truth": []},
    }
    told = []
    for _ in range(2):
        assert client.post("/seed_session", json=seed).json()["resources_session_id"] == "s1"
        told.append(used(client, "email_delete_email", email_id="00000001"))
    assert told[0] != told[1] and "not found" in told[1]
