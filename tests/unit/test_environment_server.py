"""The server of an environment in one file, over its routes."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.environment_server import Environment, EnvironmentResourcesServer, EnvironmentResourcesServerConfig
from nemo_gym.onefile.errors import EnvironmentFileError
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing.responses import call, message, response

ADDRESS = {"name": "shop", "host": "127.0.0.1", "port": 1, "entrypoint": "app.py"}


def shop(*, state: Any = dict) -> Environment:
    env = Environment("shop", state=state, tasks=[{"question": "Buy.", "wanted": {"bread": 2}}])

    @env.tool
    def put(item: str, count: int, state: dict[str, int] | None = None) -> str:
        """Put something into the basket."""
        if count < 0:
            raise ValueError("no such thing")
        if state is not None:
            state[item] = state.get(item, 0) + count
        return f"{item}: {count}"

    @env.tool
    async def prices(task: dict[str, Any]) -> list[str]:
        """What there is."""
        return sorted(task["wanted"])

    @env.verify
    def basket(response: Any, task: dict[str, Any], state: Any) -> dict[str, Any]:
        if response.text == "break":
            return {"reward": float("nan")}
        bought = state == task["wanted"] if state is not None else bool(response.calls)
        return {"bought": float(bought), "said": float(bool(response.text)), "reason": f"it held {state}"}

    return env


def client_of(env: Environment) -> TestClient:
    class ShopServer(EnvironmentResourcesServer):
        environment = env

    config = EnvironmentResourcesServerConfig.model_validate(ADDRESS)
    server = ShopServer(config=config, server_client=MagicMock(spec=ServerClient))
    return TestClient(server.setup_webserver(), raise_server_exceptions=False)


def verified(client: TestClient, env: Environment, *output: Any) -> Any:
    row = env.rows()[0]
    return client.post("/verify", json={**row, "response": response(*output)})


def test_an_episode_over_the_wire() -> None:
    env = shop()
    client = client_of(env)
    assert client.post("/seed_session", json=env.rows()[0] | {"agent_ref": {"name": "a"}}).status_code == 200
    assert client.post("/put", json={"item": "bread", "count": 2}).text == "bread: 2"
    assert client.post("/prices", json={}).json() == ["bread"]
    verdict = verified(client, env, "done").json()
    assert (verdict["reward"], verdict["reward_components"]) == (2.0, {"bought": 1.0, "said": 1.0})
    assert (verdict["reward_reason"], verdict["wanted"]) == ("it held {'bread': 2}", {"bread": 2})


def test_sessions_have_states_of_their_own() -> None:
    env = shop()
    first, second = client_of(env), client_of(env)
    for client in (first, second):
        client.post("/seed_session", json=env.rows()[0])
    first.post("/put", json={"item": "bread", "count": 2})
    assert verified(second, env, "done").json()["reward_components"]["bought"] == 0.0


def test_errors_of_tools_and_wrong_arguments_are_for_the_model() -> None:
    client = client_of(shop())
    client.post("/seed_session", json=shop().rows()[0])
    refused = client.post("/put", json={"item": "bread", "count": -1})
    assert (refused.status_code, refused.json()) == (400, {"error": "ValueError: no such thing"})
    wrong = client.post("/put", json={"item": "bread", "count": "many", "extra": 1})
    assert wrong.status_code == 422
    assert {error["loc"][-1] for error in wrong.json()["detail"]} == {"count", "extra"}


def test_text_that_is_no_unicode_is_told_as_it_can_be() -> None:
    """As `os.fsdecode` gives it of a file's name."""
    env = Environment("shop", tasks=[{"question": "Buy."}])

    @env.tool
    def name(is_wrong: bool) -> str:
        """What it is called."""
        if is_wrong:
            raise ValueError("no \udcff")
        return "z\udcff"

    @env.tool
    def names() -> list[str]:
        """What all are called."""
        return ["z\udcff"]

    @env.verify
    def verdict(response: Any) -> dict[str, Any] | tuple[float, str]:
        return {"reward": 1.0, "reason": "it was z\udcff"} if response.text == "map" else (1.0, "it was z\udcff")

    client = client_of(env)
    client.post("/seed_session", json=env.rows()[0])
    assert client.post("/name", json={"is_wrong": False}).text == "z\\udcff"
    assert client.post("/name", json={"is_wrong": True}).json() == {"error": "ValueError: no \\udcff"}
    assert client.post("/names", json={}).text == '["z\\udcff"]'
    for said in ("map", "pair"):
        client.post("/seed_session", json=env.rows()[0])
        told = verified(client, env, said).json()
        assert (told["reward"], told["reward_reason"]) == (1.0, "it was z\\udcff")


def test_the_parts_of_a_reward_have_metrics() -> None:
    records = [{"reward": 1.0, "reward_components": parts} for parts in ({"a": 1.0, "b": 0.5}, {"a": 0.0}, {}, None)]
    body = {"verify_responses": [{**record, "_ng_task_index": n} for n, record in enumerate(records)]}
    told = client_of(shop()).post("/aggregate_metrics", json=body).json()
    parts = {"mean/reward_components/a": 0.5, "mean/reward_components/b": 0.5}
    assert parts.items() <= told["agent_metrics"].items() and parts.items() <= told["key_metrics"].items()


def test_without_a_session_what_needs_one_is_refused() -> None:
    env = shop()
    client = client_of(env)
    assert client.post("/put", json={"item": "a", "count": 1}).status_code == 400
    assert verified(client, env, "done").status_code == 400


def test_what_is_no_reward_is_an_error_and_no_score() -> None:
    """B90."""
    env = shop()
    client = client_of(env)
    client.post("/seed_session", json=env.rows()[0])
    answer = verified(client, env, "break")
    assert answer.status_code == 500 and "reward" not in answer.json()


def test_what_the_verifier_raises_is_the_verifiers_failure_and_names_its_line() -> None:
    env = Environment("shop", tasks=[{"question": "Buy."}])

    @env.verify
    def divides(response: Any) -> float:
        return 1 / 0

    answer = verified(client_of(env), env, "done")
    cause = json.loads(answer.headers["X-NeMo-Gym-Cause"])
    assert (answer.status_code, cause["kind"]) == (500, "verifier_error")
    line = divides.__code__.co_firstlineno + 2
    assert cause["message"] == f"{__file__}:{line}: `divides` raised ZeroDivisionError: division by zero"


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, BaseException])
@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_so_is_what_is_no_exception_to_python(kind: type[BaseException], is_async: bool) -> None:
    env = Environment("shop", tasks=[{"question": "Buy."}])

    def ends(response: Any) -> float:
        raise kind("enough")

    async def ends_later(response: Any) -> float:
        raise kind("enough")

    env.verify(ends_later if is_async else ends)
    answer = verified(client_of(env), env, "done")
    cause = json.loads(answer.headers["X-NeMo-Gym-Cause"])
    assert (answer.status_code, cause["kind"]) == (500, "verifier_error")
    assert f"raised {kind.__name__}: enough" in cause["message"]


def test_of_long_errors_the_log_keeps_the_beginning(caplog: pytest.LogCaptureFixture) -> None:
    env = Environment(tasks=[{"question": "?", "what": "raise"}])

    @env.tool
    def shout(text: str) -> str:
        """Fail."""
        raise ValueError(text)

    @env.verify
    def judge(response: Any, task: dict[str, Any]) -> Any:
        if response.text:
            raise ValueError(response.text)
        return "x" * 100_000

    client = client_of(env)
    told = client.post("/shout", json={"text": "x" * 100_000})
    assert told.status_code == 400 and len(told.json()["error"]) > 100_000
    for answer in (verified(client, env, message("x" * 100_000)), verified(client, env)):
        assert answer.status_code == 500 and len(answer.text) < 5_000
    assert len(caplog.messages) == 3
    for line in caplog.messages:
        assert "xxxxx" in line and "x" * 3_000 not in line


def test_a_state_that_cannot_be_made_names_its_line() -> None:
    env = Environment("shop", tasks=[{"question": "Buy."}], state=lambda task: task["nowhere"])
    env.verify(lambda response: 0)
    answer = client_of(env).post("/seed_session", json=env.rows()[0])
    assert answer.status_code == 500 and "raised KeyError: 'nowhere'" in answer.json()["detail"]
    assert answer.json()["detail"].startswith(f"{__file__}:")


@pytest.mark.parametrize(("state", "mode"), [(dict, "unsupported"), (None, "stateless")])
def test_only_what_has_no_state_is_verified_again_without_a_session(state: Any, mode: str) -> None:
    env = shop(state=state)
    client = client_of(env)
    assert client.get("/reverify_mode").json() == mode
    if state is None:
        assert verified(client, env, call("put", {"item": "bread", "count": 2})).json()["reward"] == 1.0


def test_the_tools_are_described_as_in_the_rows() -> None:
    env = shop()
    offered = env.rows()[0]["responses_create_params"]["tools"]
    paths = client_of(env).app.openapi()["paths"]  # type: ignore[attr-defined]
    assert {tool["name"]: tool["description"] for tool in offered} == {
        name: paths[f"/{name}"]["post"]["description"] for name in ("put", "prices")
    }


def test_a_server_reads_the_file_beside_it_and_speaks_of_its_source(tmp_path: Path) -> None:
    app = "from nemo_gym.environment_server import EnvironmentResourcesServer as Server\nclass S(Server): pass\n"
    (tmp_path / "one_file_app.py").write_text(app)
    (tmp_path / "environment.py").write_text("1/0\n")
    namespace = _module(tmp_path / "one_file_app.py")
    config = EnvironmentResourcesServerConfig.model_validate(ADDRESS | {"source_file": "/home/me/mine.py"})
    with pytest.raises(EnvironmentFileError, match=r"^/home/me/mine\.py:1: ZeroDivisionError"):
        namespace.S(config=config, server_client=MagicMock(spec=ServerClient))


def test_a_server_whose_example_rows_are_not_its_tasks_any_more_does_not_start(tmp_path: Path) -> None:
    app = "from nemo_gym.environment_server import EnvironmentResourcesServer as Server\nclass S(Server): pass\n"
    (tmp_path / "grown_app.py").write_text(app)
    (tmp_path / "environment.py").write_text("")
    (tmp_path / "data").mkdir()
    kind = _module(tmp_path / "grown_app.py").S
    kind.environment = shop()
    (tmp_path / "data" / "example.jsonl").write_text(json.dumps(shop().rows()[0]) + "\n")
    client = MagicMock(spec=ServerClient)
    kind(config=EnvironmentResourcesServerConfig.model_validate(ADDRESS), server_client=client)
    (tmp_path / "data" / "example.jsonl").write_text('{"old": 1}\n')
    with pytest.raises(EnvironmentFileError, match=r"`gym env init --from .*environment\.py` writes it anew"):
        kind(config=EnvironmentResourcesServerConfig.model_validate(ADDRESS), server_client=client)
    lenient = ADDRESS | {"checks_example_rows": False}
    kind(config=EnvironmentResourcesServerConfig.model_validate(lenient), server_client=client)


def _module(path: Path) -> Any:
    import importlib.util
    import sys

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
