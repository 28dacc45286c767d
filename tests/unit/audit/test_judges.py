"""What the audit finds in environments that ask a judge: how they read it."""

from nemo_gym.audit.report import Report
from nemo_gym.environment_audit import audit

SERVER = "++equivalence_llm_judge.resources_servers.equivalence_llm_judge"


def judged(*settings: str) -> Report:
    return audit("equivalence_llm_judge/equivalence_llm_judge", [f"{SERVER}.{setting}" for setting in settings])


def failures(report: Report) -> set[str]:
    return {finding.check for finding in report.failures}


def test_as_shipped_nothing_pays() -> None:
    report = judged()
    assert report.passed, report
    assert next(each for each in report.findings if each.check == "silent judge").verdict == "ok"


def test_a_candidates_own_label_read_as_the_verdict_is_found() -> None:
    """B81."""
    assert "verdict imitation" in failures(judged("escape_labels_in_answers=false", "judge_verdict_position=first"))


def test_a_judge_that_nobody_speaks_for_gives_no_full_reward() -> None:
    assert "right answer" in failures(judged('judge_equal_label="[[SAME]]"'))
