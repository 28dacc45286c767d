"""The environment with the library itself, where it is installed: in the venv that `gym env test` makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_gym.testing.responses import response, verify_request
from nemo_gym.testing.verdicts import check_example_rollouts, new_server, verified
from resources_servers.reasoning_gym.app import ReasoningGymResourcesServer
from resources_servers.reasoning_gym.scripts import create_dataset

pytest.importorskip("reasoning_gym.factory", reason="reasoning-gym is not installed")

FOLDER = Path(__file__).parents[1]


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    server = new_server(ReasoningGymResourcesServer)
    await check_example_rollouts(
        server, FOLDER, own=["score", "extracted_answer"], rewards=[1.0, 0.05, 1.0, 1.0, 0.7142857142857142]
    )


MUTATED = ["mini_sudoku", "countdown", "gcd", "leg_counting", "polynomial_multiplication", "n_queens"]


@pytest.mark.parametrize("name", MUTATED)
async def test_right_answers_score_and_changed_ones_do_not(name: str) -> None:
    """B83: a correct answer that is changed never scores."""
    server = new_server(ReasoningGymResourcesServer)
    for row in create_dataset.rows(name, 3, 3):
        request = {**row, "response": response(f"<answer>{row['answer']}</answer>")}
        assert (await verified(server, request)).reward == 1.0
        changed = row["answer"].translate(str.maketrans("1234567890Q", "2345678901_"))
        request = {**row, "response": response(f"<answer>{changed}</answer>")}
        assert (await verified(server, request)).reward < 1.0


async def test_numbers_that_are_not_in_the_question_do_not_count() -> None:
    """B83: 3, 5 and 7 must make 15, not 10 and 5."""
    row = {
        "question": "Make 15.",
        "answer": "3 + 5 + 7",
        "metadata": {"source_dataset": "countdown", "numbers": [3, 5, 7], "target": 15},
    }
    server = new_server(ReasoningGymResourcesServer)
    for text, right in (("3 + 5 + 7", True), ("10 + 5", False), ("3 * 5", False), ("3 + 5 + 7 + 3 - 3", False)):
        answer = await verified(server, verify_request(row, f"<answer>{text}</answer>"))
        assert (answer.reward == 1.0) is right, text
