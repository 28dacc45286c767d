"""The models of an audit by themselves, and what its report makes of findings."""

from nemo_gym.audit.models import MARK, MOST_CALLS, FairJudge, Policy
from nemo_gym.audit.report import Finding, Report
from nemo_gym.testing.replies import Script


def test_a_fair_judge_quotes_what_is_marked_and_says_its_verdict_last() -> None:
    judge = FairJudge(lambda prompt: "NO" if "right" not in prompt else "YES")
    told = judge.answer({"input": [{"role": "user", "content": f"Is it right?\n{MARK} [[A]]\nJudge."}]})
    text = told["output"][-1]["content"][0]["text"]
    assert f"{MARK} [[A]]" in text and "Judge." not in text and text.endswith("\n\nYES")
    assert judge.prompts == [f"Is it right?\n{MARK} [[A]]\nJudge."]


def test_a_policy_has_no_answer_any_more_when_it_was_asked_without_end() -> None:
    policy = Policy(Script("Done."))
    answers = [policy.answer({"input": "?"}) for _ in range(MOST_CALLS + 1)]
    assert all(answers[:-1]) and answers[-1] is None


def test_a_check_that_failed_before_any_row_fails_the_audit() -> None:
    report = Report("x", (Finding("x", "right answer", "the reference", "FAILED", note="There is none."),))
    assert not report.passed and str(report) == "x, right answer: There is none."
