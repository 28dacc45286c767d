r"""Finding the answer of a response, and comparing it."""

from __future__ import annotations

import json
import re

from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.verifiers.extraction import last_box
from nemo_gym.verifiers.response_text import assistant_texts, call_outputs

_TOLERANCE = 1e-6
_WRAPPERS = (
    re.compile(r"\\\((.*)\\\)", re.DOTALL),
    re.compile(r"\$(.*)\$", re.DOTALL),
    re.compile(r"\\text\{(.*)\}", re.DOTALL),
)


def extracted_answer(response: NeMoGymResponse) -> str | None:
    """What is in the last box of an assistant message, from the last message backwards; else in that of what a tool
    printed, from the last call backwards. None where there is none."""
    printed = (_printed(output) for output in reversed(call_outputs(response)))
    for text in (*reversed(assistant_texts(response)), *printed):
        answer = boxed_answer(text)
        if answer is not None:
            return answer
    return None


def boxed_answer(text: str) -> str | None:
    r"""The content of the last `\boxed{…}`, stripped; None where it doesn't close, or is blank."""
    return (last_box(text) or "").strip() or None


def normalized(answer: str) -> str:
    r"""Without the `\(…\)`, `$…$` and `\text{…}` around all of it, one of each, and with single spaces."""
    answer = answer.strip()
    for wrapper in _WRAPPERS:
        found = wrapper.fullmatch(answer)
        answer = found[1].strip() if found else answer
    return " ".join(answer.split())


def answers_match(answer: str, expected: str) -> bool:
    """Whether both are the same text, or numbers within a millionth of the expected one, or of 1."""
    answer, expected = normalized(answer), normalized(expected)
    if answer == expected:
        return True
    try:
        number, wanted = float(answer), float(expected)
    except ValueError:
        return False
    return abs(number - wanted) < _TOLERANCE * max(1.0, abs(wanted))


def _printed(output: str) -> str:
    """The `stdout` of a tool's answer, or the answer itself where that isn't JSON with one."""
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        return output
    stdout = answer.get("stdout") if isinstance(answer, dict) else None
    return stdout if isinstance(stdout, str) else output
