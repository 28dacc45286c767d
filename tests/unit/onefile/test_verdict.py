from typing import Any

import pytest

from nemo_gym.onefile.verdict import Call, Response, Verdict, verdict_of
from nemo_gym.schema.response import NeMoGymResponse
from nemo_gym.testing.responses import call, call_output, message, response


@pytest.mark.parametrize(
    ("returned", "verdict"),
    [
        (1, Verdict(1.0)),
        (True, Verdict(1.0)),
        (0.25, Verdict(0.25)),
        ((0, "no box"), Verdict(0.0, "no box")),
        ({"format": 1, "correct": 0.5}, Verdict(1.5, "", {"format": 1.0, "correct": 0.5})),
        ({"reward": 0.5, "format": 1, "reason": "late"}, Verdict(0.5, "late", {"format": 1.0})),
        ({"reward": 1}, Verdict(1.0)),
    ],
)
def test_rewards(returned: Any, verdict: Verdict) -> None:
    assert verdict_of(returned) == verdict


@pytest.mark.parametrize(
    "returned",
    [None, "high", float("nan"), float("inf"), [1], {}, {"reason": "x"}, {"format": "1"}, (1, 2), (None, "x")],
)
def test_what_is_no_reward(returned: Any) -> None:
    """B90."""
    with pytest.raises(ValueError):
        verdict_of(returned)


def test_a_response_is_its_last_text_and_its_calls_with_what_they_were_answered() -> None:
    raw = NeMoGymResponse.model_validate(
        response(
            message("first"), call("a", {"x": 1}, "1"), call("b", "{", "2"), call_output("one", "1"), message("last")
        )
    )
    found = Response.of(raw)
    assert (found.text, found.raw) == ("last", raw)
    assert found.calls == [Call("a", {"x": 1}, "one"), Call("b", {}, "")]
