from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import BaseResourcesServerConfig, SessionExpiredError
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.handover import GENERATION_ENV
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseFunctionToolCall
from nemo_gym.rollout_correlation import current_rollout_id
from nemo_gym.serve.session_store import stores_of
from nemo_gym.testing.episodes import Player, player
from nemo_gym.testing.responses import call, message, reasoning, response
from nemo_gym.testing.verdicts import new_server
from resources_servers.gymnasium import (
    EnvResetRequest,
    EnvStepRequest,
    EpisodeStore,
    GymnasiumServer,
    StepResult,
    extract_text,
    tagged_actions,
    tool_output,
)
from resources_servers.gymnasium.app import NOT_RUNNABLE

FOLDER = Path(__file__).parents[1]


class CountingEnv(GymnasiumServer):
    """Ends with the step that the row's `last` says; what else it does is in class variables, for tests."""

    config: BaseResourcesServerConfig
    reward: ClassVar[Any] = 0.5
    truncates: ClassVar[bool] = False
    seen: ClassVar[list[Any]] = []

    async def reset(self, metadata: dict[str, Any], session_id: str | None = None) -> tuple[str | None, dict[str, Any]]:
        self.session_state[session_id] = 0
        return metadata.get("greeting"), {"session_id": session_id}

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str | None = None
    ) -> StepResult:
        self.session_state[session_id] = count = self.session_state.get(session_id, 0) + 1
        self.seen.append((extract_text(action), metadata, current_rollout_id()))
        is_over = count >= metadata.get("last", 2)
        ends = (False, is_over) if self.truncates else (is_over, False)
        return f"{count}", self.reward, *ends, {"count": count}


class ClosableEnv(CountingEnv):
    explicit_close: ClassVar[bool] = True


class TruncatingEnv(CountingEnv):
    truncates: ClassVar[bool] = True


class WatchedEnv(CountingEnv):
    closed: ClassVar[list[Any]] = []

    async def close_session(self, session_id: str | None) -> None:
        self.closed.append((session_id, session_id in self.session_state))
        await super().close_session(session_id)


# --- routes -----------------------------------------------------------------------------------------------------------


def test_there_are_these_routes_and_no_others() -> None:
    app = new_server(CountingEnv).setup_webserver()
    paths = {getattr(route, "path", "") for route in app.routes}
    assert {"/reset", "/step", "/aggregate_metrics"} <= paths
    assert not paths & {"/verify", "/seed_session", "/close_session", "/close", "/reverify_mode"}


def test_an_episode() -> None:
    played = player(CountingEnv, {"greeting": "Hello", "last": 2})
    begun = played.reset()
    assert begun["observation"] == "Hello" and list(begun) == ["observation", "info"]
    assert played.step("one") == {
        "observation": "1",
        "info": {"count": 1},
        "reward": 0.5,
        "terminated": False,
        "truncated": False,
    }
    assert played.step("two")["terminated"] is True


def test_metadata_are_the_other_fields_of_the_row() -> None:
    CountingEnv.seen.clear()
    player(CountingEnv, {"last": 1, "nested": {"a": [1]}}).play(["said"])
    assert CountingEnv.seen == [("said", {"last": 1, "nested": {"a": [1]}}, None)]


def test_paths_may_carry_the_rollout() -> None:
    CountingEnv.seen.clear()
    played = player(CountingEnv)
    played.post("/ng-rollout/3-1/reset", played.row)
    answer = played.post("/ng-rollout/3-1/step", {**played.row, "response": response("x")})
    assert played.status == 200 and answer["info"] == {"count": 1}
    assert CountingEnv.seen[0][2] == "3-1"


@pytest.mark.parametrize("body", [{}, {"response": {}}, [], "x", {"responses_create_params": 3}])
def test_what_is_no_row_is_a_422(body: Any) -> None:
    played = player(CountingEnv)
    for path in ("/reset", "/step"):
        played.post(path, body)
        assert played.status == 422


async def test_there_is_nothing_to_verify() -> None:
    with pytest.raises(NotImplementedError, match="CountingEnv has no verifier"):
        await new_server(CountingEnv).verify(None)  # type: ignore[arg-type]


def test_metrics_are_aggregated() -> None:
    records: list[dict[str, Any]] = [
        {"_ng_task_index": 0, "_ng_rollout_index": n, "reward": float(n), "response": {}} for n in (0, 1)
    ]
    metrics = player(CountingEnv).post("/aggregate_metrics", {"verify_responses": records})
    assert metrics["agent_metrics"]["mean/reward"] == 0.5


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), "1", True, None, [1]])
def test_a_reward_is_a_number(reward: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """B90"""
    monkeypatch.setattr(CountingEnv, "reward", reward)
    client = TestClient(new_server(CountingEnv).setup_webserver(), raise_server_exceptions=False)
    row = {"responses_create_params": {"input": "?"}}
    client.post("/reset", json=row)
    assert client.post("/step", json={**row, "response": response("x")}).status_code == 500


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CountingEnv, TruncatingEnv])
def test_an_episode_that_is_over_is_forgotten(kind: type[CountingEnv]) -> None:
    server = new_server(kind)
    played = Player(server.setup_webserver(), {"last": 2})
    session_id = played.reset()["info"]["session_id"]
    played.step("x")
    assert server.session_state[session_id] == 1 and session_id in server.session_state
    played.step("x")
    assert len(server.session_state) == 0 and session_id not in server.session_state
    assert played.step("x")["info"] == {"count": 1}, "unknown again, as in a dict"


def test_an_environment_may_close_in_its_own_way() -> None:
    WatchedEnv.closed.clear()
    server = new_server(WatchedEnv)
    played = Player(server.setup_webserver(), {"last": 1})
    session_id = played.reset()["info"]["session_id"]
    played.step("x")
    assert WatchedEnv.closed == [(session_id, True)] and len(server.session_state) == 0


async def test_closing_again_is_fine() -> None:
    server = new_server(CountingEnv)
    server.session_state["s"] = 1
    for session_id in ("s", "s", "never", None):
        await server.close_session(session_id)
    assert len(server.session_state) == 0


def test_agents_are_asked_to_close_where_that_is_wanted() -> None:
    server = new_server(ClosableEnv)
    played = Player(server.setup_webserver(), {"last": 9})
    assert played.reset()["info"]["supports_explicit_close"] is True
    played.step("x")
    assert played.post("/close", {}) == {} and len(server.session_state) == 0
    assert played.post("/close", {}) == {}, "twice is fine"
    assert "supports_explicit_close" not in player(CountingEnv).reset()["info"]


def test_sessions_are_apart() -> None:
    app = new_server(CountingEnv).setup_webserver()
    one, other = Player(app, {"last": 9}), Player(app, {"last": 9})
    assert one.reset()["info"]["session_id"] != other.reset()["info"]["session_id"]
    one.step("x")
    assert (one.step("x")["info"], other.step("x")["info"]) == ({"count": 2}, {"count": 1})


def test_lost_rollouts_don_t_fill_the_memory() -> None:
    now = [0.0]
    store: EpisodeStore[int] = EpisodeStore(idle_seconds=60, max_sessions=3, clock=lambda: now[0])
    server = new_server(CountingEnv)
    server.session_state = store
    app = server.setup_webserver()
    played = [Player(app, {"last": 9}) for _ in range(5)]
    for each in played:
        each.reset()
    assert len(store) == 3
    played[0].step("x")
    assert played[0].status == 410, "nobody goes on in an episode begun anew (B76)"
    now[0] = 61
    assert len(store) == 0 and played[4].step("x") and played[4].status == 410
    played[4].reset()
    assert played[4].status == 200 and len(store) == 1


def test_the_store_is_a_dict_that_forgets() -> None:
    store: EpisodeStore[str] = EpisodeStore(max_sessions=1)
    store["old"] = "a"
    store["new"] = "b"
    assert ("old" in store, "new" in store, "never" in store) == (False, True, False)
    with pytest.raises(SessionExpiredError):
        store.get("old")
    assert (store.pop("old", None), store.pop("never", 3), store.pop("new")) == (None, 3, "b")
    raising: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: store.pop("never"), KeyError),
        (lambda: store.pop("old"), SessionExpiredError),
        (lambda: store["new"], KeyError),
    ]
    for touch, error in raising:
        with pytest.raises(error):
            touch()


def test_each_server_has_a_store_of_its_own_that_is_counted() -> None:
    one, other = new_server(CountingEnv), new_server(CountingEnv)
    assert one.session_state is not other.session_state
    assert [type(store) for store in stores_of(one)] == [EpisodeStore]
    assert "session_state" not in one.model_dump(exclude={"server_client"})


def test_several_workers_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_workers to 1"):
        new_server(CountingEnv, num_workers=2).setup_webserver()


def test_a_session_of_an_earlier_process_can_be_reset_and_not_stepped(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = TestClient(new_server(CountingEnv).setup_webserver())
    row = {"responses_create_params": {"input": "?"}}
    earlier.post("/reset", json=row)
    monkeypatch.setenv(GENERATION_ENV, "1")
    later = TestClient(new_server(CountingEnv).setup_webserver(), cookies=earlier.cookies)
    assert later.post("/step", json={**row, "response": response("x")}).status_code == 410
    assert later.post("/reset", json=row).status_code == 200


# --- reading replies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([], ""),
        ([message("a", "b"), reasoning("no"), message("c")], "abc"),
        ([call("f", {"text": "no"}), message("yes")], "yes"),
        ([{"type": "message", "role": "assistant", "content": "plain"}, message("!")], "plain!"),
        ([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "no"}]}], ""),
    ],
)
def test_the_text_of_a_reply(items: list[Any], text: str) -> None:
    assert extract_text(NeMoGymResponse.model_validate(response(*items))) == text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("hit", []),
        ("<action>hit</action>", ["hit"]),
        ("<ACTION>\n Hit\t</Action> and <action>stand</action>", ["hit", "stand"]),
        ("<action>fold</action><action>stand</action>", ["stand"]),
        ("<action>hit me</action>", []),
        ("<action>hit", []),
        ("<action><action>hit</action></action>", ["hit"]),
        ("<action>{'do': 'hit'}</action>", []),
        ("<action>\u017ftand</action>", []),
        ("<action>\u00a0hit</action>", []),
        ("<action>" * 50_000 + " " * 50_000, []),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_actions_in_tags(text: str, found: list[str]) -> None:
    assert tagged_actions(text, ("hit", "stand")) == found


def test_longer_names_are_not_cut() -> None:
    assert tagged_actions("<action>up2</action><action>up</action>", ("up", "up2")) == ["up2", "up"]


def test_a_tool_s_output_is_json() -> None:
    item = NeMoGymResponseFunctionToolCall(call_id="c9", name="f", arguments="{}", type="function_call")
    assert tool_output(item, {"a": [1, None]}) == {"call_id": "c9", "output": '{"a": [1, null]}'}
    assert json.loads(tool_output(item, {"path": Path("x")})["output"]) == {"path": "x"}
    assert tool_output(item, "text")["output"] == '"text"'


# --- the folder -------------------------------------------------------------------------------------------------------


def test_requests_keep_what_they_don_t_declare() -> None:
    row = {"responses_create_params": {"input": "?"}, "extra": 1}
    assert EnvResetRequest.model_validate(row).model_extra == {"extra": 1}
    assert EnvStepRequest.model_validate({**row, "response": response("x")}).model_extra == {"extra": 1}


def test_the_base_can_t_be_started(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / "app.py"), run_name="__main__")
    assert (ended.value.code, capsys.readouterr().err.strip()) == (1, NOT_RUNNABLE)
