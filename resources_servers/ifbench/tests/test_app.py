from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from nemo_gym.config.errors import ConfigError
from nemo_gym.testing.responses import call, message, reasoning, verify_request
from nemo_gym.testing.verdicts import Case, check_case, check_example_rollouts, check_example_rows, new_server, verified
from resources_servers.ifbench import app, setup_ifbench
from resources_servers.ifbench.app import IFBenchResourcesServer, _loose_response_variants
from resources_servers.ifbench.setup_ifbench import IFBenchSetupError, ensure_ifbench, is_installed

FOLDER = Path(__file__).parents[1]
SEVENS: tuple[str, Any] = ("custom:multiples", {})
SPACE: tuple[str, Any] = ("format:no_whitespace", {"N": None, "keyword": None})
TITLE: tuple[str, Any] = ("format:title_case", None)
NUMBERS: tuple[str, Any] = ("count:numbers", {"N": 6})
ANSWER = "14,21,28,35,42,49"


def asked(*output: Any, to: Any = (SEVENS, SPACE), **fields: Any) -> dict[str, Any]:
    task = {
        "id": 1,
        "instruction_id_list": [name for name, _ in to],
        "kwargs": [arguments for _, arguments in to],
        "prompt": "Count.",
    }
    return verify_request({**task, **fields}, *output)


def follows(*strict: bool, loose: list[bool] | None = None) -> dict[str, Any]:
    loose = list(strict) if loose is None else loose
    return {
        "follow_instruction_list": list(strict),
        "follow_all_instructions": all(strict),
        "follow_instruction_list_loose": loose,
        "follow_all_instructions_loose": all(loose),
    }


BINARY = {"grading_mode": "binary"}
MASKED = {"mask_sample": True, "failure_kind": "verifier_error", "reward_loose": 0.0}

CASES = [
    Case("all", asked(ANSWER), 1.0, own={**follows(True, True), "reward_loose": 1.0}),
    Case("a half", asked(ANSWER.replace(",", ", ")), 0.5, own={**follows(True, False), "reward_loose": 0.5}),
    Case("none", asked("7 14"), 0.0, own=follows(False, False)),
    Case("all of them needed", asked(ANSWER, **BINARY), 1.0),
    Case("not all", asked(ANSWER.replace(",", ", "), **BINARY), 0.0, own={"reward_loose": 0.0}),
    Case("null arguments", asked("All Is Well", to=[TITLE]), 1.0),
    Case("no instructions", asked("x", to=[]), 0.0, own=follows()),
    Case("an id without arguments", asked(ANSWER, to=[SEVENS], instruction_id_list=["custom:multiples", "x"]), 1.0),
    # loose
    Case("without the first line", asked(f"In all:\n{ANSWER}"), 0.5, own=follows(True, False, loose=[True, True])),
    Case("without the last", asked(f"{ANSWER}\nSo 6 in all."), 0.0, own=follows(False, False, loose=[True, True])),
    Case("without both", asked(f"1 to 50:\n{ANSWER}\nSo 6."), 0.0,
         own={**follows(False, False, loose=[True, True]), "reward_loose": 1.0}),
    Case("without stars", asked("*Is* it", to=[("format:title_case", {}), ("words:alphabet", {})]), 0.0,
         own=follows(False, False)),
    Case("without stars, in brackets", asked("*a b*", to=[("format:options", {"options": "a), b), c)"})]), 0.0),
    Case("stars in an option", asked("*a)*", to=[("format:options", {"options": "a), b), c)"})]), 0.0,
         own=follows(False, loose=[True])),
    Case("not all loose", asked(f"{ANSWER}\n1 2", to=[SEVENS, SPACE, TITLE], **BINARY), 0.0,
         own=follows(False, False, True, loose=[True, True, True])),
    # the text
    Case("no response", asked(), 0.0, own=follows(False, False)),
    Case("a blank one", asked("\n ", to=[TITLE]), 0.0, own=follows(False)),
    Case("a blank line and stars", asked("\n***\n", to=[TITLE]), 1.0, own=follows(True)),
    Case("the last message", asked("no", ANSWER), 1.0),
    Case("its first text", asked(message(ANSWER, "no")), 1.0),
    Case("cut while reasoning", asked(ANSWER, reasoning("hm")), 0.0, own=follows(False, False)),
    Case("a call at the end", asked(ANSWER, call("f")), 0.0),
    # the row is at fault
    Case("an unknown instruction", asked(ANSWER, to=[SEVENS, ("magic:spell", {})]), 0.0, own=MASKED),
    Case("an argument that lacks", asked("1 2", to=[("count:numbers", {"N": None})]), 0.0, own=MASKED),
    Case("an argument of another type", asked("1 2", to=[("words:repeats", {"small_n": "2"})]),
         0.0, own=MASKED),
    Case("another mode", asked(ANSWER, grading_mode="most"), 0.0, own=MASKED),
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> IFBenchResourcesServer:
    return new_server(IFBenchResourcesServer, num_processes=1, checkers="own")


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(server: IFBenchResourcesServer, case: Case) -> None:
    await check_case(server, case)


def test_the_variants_of_a_text() -> None:
    assert _loose_response_variants("*a*\nb\n\n*c*") == [
        "*a*\nb\n\n*c*",
        "a\nb\n\nc",
        "b\n\n*c*",
        "*a*\nb",
        "b",
        "b\n\nc",
        "a\nb",
        "b",
    ]
    assert _loose_response_variants("a") == ["a", "a", "", "", "", "", "", ""]


async def test_hostile_texts_are_answered(server: IFBenchResourcesServer) -> None:
    to = [NUMBERS, ("format:parentheses", {}), ("sentence:keyword", {"word": "x" * 9, "N": 2}), ("custom:csv_city", {})]
    for text in ("[" * 200_000, "." * 300_000, '"' * 300_000, "\n" * 300_000, "\x00\u202e\U0001f600", "a.*" * 50_000):
        answer = await verified(server, asked(text, to=to))
        assert (answer.reward, answer.mask_sample) == (0.0, False), (text[:9], answer.follow_instruction_list)


LONG = "a b. " * 1_500_000


@pytest.mark.parametrize(("other", "masks"), [("A short text.", False), (LONG, True)], ids=["short", "long"])
async def test_a_check_without_end(
    server: IFBenchResourcesServer, other: str, masks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It masks the rollout if another text takes too long as well, else it is the text's doing."""
    monkeypatch.setattr(app, "SECONDS", 0.5)
    monkeypatch.setattr(app, "ORDINARY", other)
    answer = await verified(server, asked(LONG, to=[("count:pronouns", {"N": 1})] * 9))
    assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, masks, "verifier_error" if masks else None)
    assert "took more than" in answer.failure_reason


def test_over_http(server: IFBenchResourcesServer) -> None:
    with TestClient(server.setup_webserver()) as client:
        answer = client.post("/verify", json=asked(ANSWER, unknown=1))
        assert answer.status_code == 200
        own = answer.json()
        assert (own["reward"], own["grading_mode"], own["prompt"], own["id"]) == (1.0, "fraction", "Count.", 1)
        assert own["kwargs"] == [{}, {"N": None, "keyword": None}] and "unknown" not in own
        assert own["instruction_id_list"] == ["custom:multiples", "format:no_whitespace"]
        assert client.get("/reverify_mode").json() == "stateless"
        for lacking in ("instruction_id_list", "kwargs", "prompt", "id"):
            request = asked(ANSWER)
            del request[lacking]
            assert client.post("/verify", json=request).status_code == 422, lacking


# --- the reference implementation -------------------------------------------------------------------------------------

REGISTRY = """
class Instruction:
    def __init__(self, name):
        pass

    def build_description(self, *, word=None, prompt=None):
        self.word = word or prompt

    def get_instruction_args_keys(self):
        return ["prompt"]

    def check_following(self, text):
        return text.startswith(self.word)


INSTRUCTION_DICT = {"x:word": Instruction}
"""


def git(folder: Path, *arguments: str) -> str:
    author = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    ended = subprocess.run(["git", *author, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return ended.stdout.strip()


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A repository to fetch from."""
    folder = tmp_path / "published"
    folder.mkdir()
    git(folder, "init", "--quiet")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    (folder / "instructions_registry.py").write_text(REGISTRY)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "One")
    return folder


def test_it_is_fetched_once_and_as_a_whole(published: Path, tmp_path: Path) -> None:
    """51: no clone when a server starts, and nothing but the commit that is named."""
    commit = git(published, "rev-parse", "HEAD")
    (published / "instructions_registry.py").write_text("raise SystemExit\n")
    git(published, "commit", "--quiet", "-am", "Two")
    target = tmp_path / "here" / ".ifbench"
    with pytest.raises(IFBenchSetupError, match="git fetch failed"):
        ensure_ifbench(target, str(tmp_path / "nowhere"), commit)
    with pytest.raises(IFBenchSetupError, match="git fetch failed"):
        ensure_ifbench(target, str(published), "0" * 40)
    assert not target.exists() and list(target.parent.iterdir()) == []
    assert ensure_ifbench(target, str(published), commit) == target
    assert is_installed(target) and (target / "instructions_registry.py").read_text() == REGISTRY
    assert ensure_ifbench(target, str(tmp_path / "nowhere"), commit) == target
    (target / setup_ifbench.MARKER).unlink()
    assert not is_installed(target)


def test_what_is_fetched_must_be_it(published: Path, tmp_path: Path) -> None:
    git(published, "rm", "--quiet", "instructions_registry.py")
    git(published, "commit", "--quiet", "-m", "Empty")
    with pytest.raises(IFBenchSetupError, match="no instructions_registry"):
        ensure_ifbench(tmp_path / ".ifbench", str(published), git(published, "rev-parse", "HEAD"))


def test_without_git_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IFBenchSetupError, match="can't be run"):
        ensure_ifbench(tmp_path / ".ifbench")


@pytest.mark.parametrize(("checkers", "reward"), [("auto", 1.0), ("package", 1.0), ("own", 0.0)])
async def test_it_goes_first_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkers: str, reward: float
) -> None:
    (tmp_path / "instructions_registry.py").write_text(REGISTRY)
    (tmp_path / setup_ifbench.MARKER).touch()
    monkeypatch.setattr(app, "FOLDER", tmp_path)
    monkeypatch.setattr(app, "is_installed", lambda: is_installed(tmp_path))
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    server = new_server(IFBenchResourcesServer, checkers=checkers)
    server.setup_webserver()
    answer = await verified(server, asked("Count. 1", to=[("x:word", {"word": "no"})]))
    assert (answer.reward, answer.mask_sample) == (reward, checkers == "own")


def test_a_server_that_needs_it_does_not_start_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "is_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"run setup_ifbench\.py"):
        new_server(IFBenchResourcesServer, checkers="package").setup_webserver()
    new_server(IFBenchResourcesServer, checkers="auto").setup_webserver()


# --- data -------------------------------------------------------------------------------------------------------------


def test_example_rows() -> None:
    assert [row["id"] for row in check_example_rows(FOLDER)] == [1, 2, 3, 4, 5]


async def test_example_rollouts_are_still_judged_as_they_were(server: IFBenchResourcesServer) -> None:
    own = ["follow_instruction_list", "follow_instruction_list_loose", "reward_loose"]
    await check_example_rollouts(server, FOLDER, own=own, rewards=[0.5, 1.0, 0.5, 0.0, 1.0])
