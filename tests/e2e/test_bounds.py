"""A provider that has had enough, and one that never answers, by the real command line."""

from __future__ import annotations

import pytest

from tests.e2e.harness import Workplace, question
from tests.mock_provider import Fault, MockProvider, Reply, Script, ToolCall

RUN = ("eval", "run", "--resources-server", "mcqa", "--model-type", "openai_model", "-i", "rows.jsonl", "-o", "r.jsonl")
RIGHT = Reply(text="\\boxed{A}")


def workplace(folder: object, provider: MockProvider, rows: int) -> Workplace:
    place = Workplace(folder)  # type: ignore[arg-type]
    place.write_env(policy_base_url=provider.base_url, policy_api_key="k", policy_model_name="mock")
    place.write_rows("rows.jsonl", [question(number) for number in range(rows)])
    return place


@pytest.mark.parametrize("placement", ["process", "shared"])
def test_a_run_backs_off_when_the_provider_answers_429_and_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, placement: str
) -> None:
    """The word travels from the provider's answer through model server and agent to the collector."""
    busy = Reply(fault=Fault(status=429, retry_after=0))
    with MockProvider(Script(replies=(busy,) * 6, default=(RIGHT,))) as provider:
        place = workplace(tmp_path_factory.mktemp("busy"), provider, 24)
        ended = place.gym(*RUN, "--concurrency", "8", f"+placement={placement}")
    assert ended.code == 0, ended.err
    assert ended.err.count("The model's provider asks for fewer requests: at most ") == 1
    assert [record["reward"] for record in place.read_rows("r.jsonl")] == [1.0] * 24


def test_a_model_call_that_never_ends_is_a_failure_that_says_which(tmp_path_factory: pytest.TempPathFactory) -> None:
    """B32, B40: the run ends by itself, with the stage, the server and the limit in the record of the failure."""
    with MockProvider(Reply(fault=Fault(kind="hang"))) as provider:
        place = workplace(tmp_path_factory.mktemp("hang"), provider, 2)
        ended = place.gym(*RUN, "+model_call_timeout_s=0.5", "+placement=process")
    assert ended.code == 1 and "No rollout was measured" in ended.err
    failures = place.read_rows("r_failures.jsonl")
    assert [failure["_ng_failure_class"] for failure in failures] == ["transport_timeout"] * 2
    told = (
        "the model call: policy_model did not answer /v1/responses within 0.5 s (model_call_timeout_s sets the limit)"
    )
    assert all(told in str(failure["_ng_failure_cause"]) for failure in failures)
    assert "Retry 1 of rollout" in ended.err and "Retry 2" not in ended.err


SLOW = """\
import time

from nemo_gym import Environment

env = Environment(tasks=[{"question": "Look, please."}], prompt="{question}")


@env.tool
def look() -> str:
    "Look."
    time.sleep(LOOK)
    return "seen"


@env.verify
def verify(response):
    time.sleep(VERIFY)
    return 1.0
"""


@pytest.mark.parametrize("placement", ["process", "shared"])
@pytest.mark.parametrize(
    ("slow", "key", "kind", "where"),
    [
        ("LOOK", "tool_call_timeout_s", "transport_timeout", "tool"),
        ("VERIFY", "verify_timeout_s", "verifier_error", "verifier"),
    ],
)
def test_a_tool_or_verifier_that_takes_too_long_is_counted_as_that(
    tmp_path_factory: pytest.TempPathFactory, placement: str, slow: str, key: str, kind: str, where: str
) -> None:
    calls = Reply(text=None, tool_calls=(ToolCall("look", {}),))
    with MockProvider(Script(replies=(calls,) * 2 if slow == "LOOK" else (calls, RIGHT) * 2)) as provider:
        place = workplace(tmp_path_factory.mktemp("slow"), provider, 1)
        seconds = {"LOOK": "0", "VERIFY": "0", slow: "600"}
        source = SLOW.replace("LOOK", seconds["LOOK"]).replace("VERIFY", seconds["VERIFY"])
        (place.folder / "slow.py").write_text(source)
        run = ("eval", "run", "slow.py", "--model-type", "openai_model", "-o", "r.jsonl")
        ended = place.gym(*run, f"+{key}=1", f"+placement={placement}")
    assert f"1 asked: 0 measured, 1 failed ({where} 1), 0 unknown" in ended.out + ended.err, ended.err
    (failure,) = place.read_rows("r_failures.jsonl")
    assert failure["_ng_failure_class"] == kind
    assert f"within 1 s ({key} sets the limit)" in failure["_ng_failure_cause"]["message"]
    assert "Retry 1 of rollout" in ended.err and "Retry 2" not in ended.err


def test_a_limit_that_is_no_number_is_refused_in_one_sentence(place: Workplace) -> None:
    place.write_rows("rows.jsonl", [question(0)])
    ended = place.gym(*RUN, "+verify_timeout_s=soon")
    assert ended.code == 1 and "verify_timeout_s is 'soon'" in ended.error and "Traceback" not in ended.err
