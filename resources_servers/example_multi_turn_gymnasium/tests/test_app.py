from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nemo_gym.testing.episodes import Episode, Player, check_episode, check_recorded_episodes, player
from nemo_gym.testing.responses import call, reasoning
from nemo_gym.testing.verdicts import check_example_rows, new_server
from resources_servers.example_multi_turn_gymnasium.app import ExampleMultiTurnEnv
from resources_servers.example_multi_turn_gymnasium.audit import reference

FOLDER = Path(__file__).parents[1]
ONE = {"follow_ups": ["And now?"], "expected_answer": "Oslo"}
NONE = {**ONE, "follow_ups": []}

CASES = [
    Episode("right", ONE, ["Hm.", "It is Oslo."], 1.0),
    Episode("in another case", ONE, ["Hm.", "OSLO"], 1.0),
    Episode("within a word", ONE, ["Hm.", "Oslofjord"], 1.0),
    Episode("wrong", ONE, ["Hm.", "Bergen"], 0.0),
    Episode("too early", ONE, ["Oslo", "Bergen"], 0.0),
    Episode("still talking", ONE, ["Oslo"], 0.0, terminated=False),
    Episode("nothing", ONE, [(), ()], 0.0),
    Episode("at once", NONE, ["Oslo."], 1.0),
    Episode("at once and wrong", NONE, ["?"], 0.0),
    Episode("nothing expected", {**NONE, "expected_answer": ""}, ["Oslo"], 0.0),
    Episode("across messages", NONE, [("Os", "lo")], 1.0),
    Episode("in its thoughts only", NONE, [(reasoning("Oslo"),)], 0.0),
    Episode("as a call", NONE, [(call("answer", {"is": "Oslo"}),)], 0.0),
    Episode("in the metadata", {"verifier_metadata": NONE}, ["Oslo"], 1.0),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rewards(case: Episode) -> None:
    check_episode(ExampleMultiTurnEnv, case)


def test_the_user_says_what_the_row_says() -> None:
    played = player(ExampleMultiTurnEnv, {"follow_ups": ["one", "two"], "expected_answer": "x"})
    assert played.reset()["observation"] is None
    said = [(answer["observation"], answer["terminated"]) for answer in (played.step("x") for _ in range(3))]
    assert said == [("one", False), ("two", False), (None, True)]


def test_a_reset_begins_again_and_so_does_what_was_never_reset() -> None:
    played = player(ExampleMultiTurnEnv, ONE)
    assert played.step("x")["observation"] == "And now?"
    played.reset()
    assert played.step("x")["observation"] == "And now?"
    assert played.step("Oslo")["reward"] == 1.0


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"expected_answer": "x"}, "The row's follow_ups: Field required."),
        ({"follow_ups": []}, "The row's expected_answer: Field required."),
        ({"follow_ups": "And now?", "expected_answer": "x"}, "The row's follow_ups: "),
        ({"follow_ups": [1], "expected_answer": "x"}, "The row's follow_ups.0: "),
    ],
)
def test_a_row_that_can_t_be_played_is_a_sentence(row: dict[str, Any], told: str) -> None:
    played = player(ExampleMultiTurnEnv, row)
    assert played.step("x")["detail"].startswith(told) and played.status == 400


def test_a_conversation_that_is_over_is_not_kept() -> None:
    server = new_server(ExampleMultiTurnEnv)
    played = Player(server.setup_webserver(), ONE)
    played.reset()
    played.step("x")
    assert len(server.session_state) == 1
    played.step("x")
    assert len(server.session_state) == 0


def test_example_rows_can_be_answered_and_their_prompts_don_t_say_how() -> None:
    for row in check_example_rows(FOLDER):
        check_episode(ExampleMultiTurnEnv, Episode("reference", row, reference(row), 1.0))  # type: ignore[arg-type]
        echo = f"{row['responses_create_params']['input']} {row['follow_ups']}"
        check_episode(ExampleMultiTurnEnv, Episode("echo", row, [echo] * 5, 0.0))


def test_example_rollouts_end_as_they_did() -> None:
    check_recorded_episodes(ExampleMultiTurnEnv, FOLDER, rewards=[1.0, 1.0, 0.0, 1.0, 1.0])
