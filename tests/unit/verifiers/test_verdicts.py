from __future__ import annotations

from typing import Any

import pytest

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.testing.responses import verify_request
from nemo_gym.verifiers.patterns import PatternTimeoutError
from nemo_gym.verifiers.verdicts import RowError, unmeasured, verdict
from nemo_gym.verifiers.worker_pool import WorkerTimeoutError


class Request(BaseVerifyRequest):
    model_config = {"extra": "allow"}

    expected: str
    secret: str = "s"


class Response(BaseVerifyResponse):
    expected: str
    found: str | None = None


BODY: dict[str, Any] = verify_request({"expected": "a", "reward": 7, "mask_sample": True, "failure_kind": "old"}, "b")


def test_a_verdict_has_what_its_response_declares_and_nothing_of_an_earlier_one() -> None:
    request = Request.model_validate(BODY)
    answer = verdict(Response, request, reward=0.5, found="b")
    assert answer.response is request.response
    fields = answer.model_dump(exclude={"responses_create_params", "response"})
    measured = {"mask_sample": False, "failure_kind": None, "failure_reason": None}
    assert fields == {"reward": 0.5, **measured, "expected": "a", "found": "b"}


def test_fields_go_before_own_ones_and_both_before_the_request_s() -> None:
    answer = verdict(Response, Request.model_validate(BODY), {"reward": 1.0, "expected": "x", "found": "y"}, found="z")
    assert (answer.reward, answer.expected, answer.found) == (1.0, "x", "z")


@pytest.mark.parametrize("error", [RowError("why"), PatternTimeoutError("why"), WorkerTimeoutError("why"), "why"])
def test_what_says_nothing_about_the_model_is_masked(error: Exception | str) -> None:
    answer = verdict(Response, Request.model_validate(BODY), unmeasured(error))
    assert (answer.reward, answer.mask_sample, answer.found) == (0.0, True, None)
    assert (answer.failure_kind, answer.failure_reason) == ("verifier_error", "why")


def test_an_error_may_name_its_kind() -> None:
    class LostError(RowError):
        failure_kind = "session_lost"

    assert unmeasured(LostError("x"))["failure_kind"] == "session_lost"
    assert unmeasured("x", "judge_failed")["failure_kind"] == "judge_failed"
