"""What an answer is worth."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from nemo_gym.judge import JudgeError
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.verifiers.judges import is_complete
from nemo_gym.verifiers.judging import delimited, escape_ratings, read_rating
from nemo_gym.verifiers.response_text import closing_text, function_calls
from nemo_gym.verifiers.tool_calls import parse_arguments

SUBMIT = "submit_final_result"
TRIES = 3
PAUSES = (1.0, 2.0)
"""Seconds before each further try."""

REWARDS = {"binary": {0: 0.0, 1: 0.0, 2: 1.0}, "scaled": {0: 0.0, 1: 0.5, 2: 1.0}}
_PLACEHOLDER = re.compile(r"\{(question|expected_answer|generated_answer)\}")


@dataclass(frozen=True)
class Grade:
    """`rating` is None where the judge gave none; `text` is what the judge said, or why it wasn't asked."""

    reward: float
    rating: int | None
    text: str

    def as_fields(self) -> dict[str, Any]:
        """Those of the verify response."""
        return {"reward": self.reward, "judge_rating": self.rating, "judge_text": self.text}


def submitted_answer(response: NeMoGymResponse) -> str | None:
    """The result of the last call that submits one, empty for arguments without a text; None without such a call."""
    submissions = [call for call in function_calls(response) if call.name == SUBMIT]
    if not submissions:
        return None
    result = parse_arguments(submissions[-1].arguments).values.get("final_result")
    if result is None or isinstance(result, str):
        return (result or "").strip()
    return json.dumps(result)


def refusal(answer: str | None) -> Grade | None:
    """The grade of what isn't worth a judge's time."""
    if answer is None:
        return Grade(0.0, 0, f"No answer was submitted: there is no call of {SUBMIT}.")
    if not answer:
        return Grade(0.0, 0, f"The submitted answer is empty, or the arguments of {SUBMIT} can't be read.")
    return None


def unjudged(answer: str, expected: str) -> Grade:
    """The grade without a judge: whether the expected answer is in the submitted one, in any case."""
    is_there = bool(expected.strip()) and expected.lower() in answer.lower()
    return Grade(float(is_there), None, "No judge is configured: the expected answer was looked for in the answer.")


def judge_prompt(template: str, question: str, expected: str, answer: str, *, delimit: bool) -> str:
    """The template with its three names replaced in one pass; ratings in the answer are none any more."""
    safe = escape_ratings(answer)
    values = {
        "question": question,
        "expected_answer": delimited(expected, "expected") if delimit else expected,
        "generated_answer": delimited(safe, "answer") if delimit else safe,
    }
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


def rating_of(response: NeMoGymResponse) -> int | None:
    """The last `[[0]]`, `[[1]]` or `[[2]]` of a judge's reply; None without, and for a reply that was cut off."""
    return read_rating(closing_text(response), (0, 1, 2), is_complete=is_complete(response))


async def judged(
    ask: Callable[[], Awaitable[NeMoGymResponse]], mode: Literal["binary", "scaled"], *, need_rating: bool = False
) -> Grade:
    """The grade a judge gives in at most three tries. Raises JudgeError when the last try comes to nothing, and with
    `need_rating` when no try gave a rating."""
    text = ""
    for number in range(TRIES):
        if number:
            await asyncio.sleep(PAUSES[number - 1])
        try:
            reply = await ask()
        except JudgeError:
            if number == TRIES - 1:
                raise
            continue
        text = closing_text(reply)
        if (rating := rating_of(reply)) is not None:
            return Grade(REWARDS[mode][rating], rating, text)
    if need_rating:
        raise JudgeError(f"the judge gave no rating in {TRIES} tries")
    return Grade(0.0, None, text)
