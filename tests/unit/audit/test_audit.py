"""Audits of small environments: each verifier falls for what it is said to, and for nothing else."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.audit.errors import AuditError
from nemo_gym.audit.report import Report
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.roots import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME
from nemo_gym.environment_audit import audit
from nemo_gym.onefile.component import cached_component

HEAD = """
import re
from nemo_gym import Environment, call
from nemo_gym.audit import Audit

env = Environment(tasks=[{"question": "What is 6 * 7? Answer: <number>", "answer": "42"}], state=list SETTINGS)


@env.tool
def look(at: str, state: list) -> str:
    "Look."
    state.append(at)
    return "It says 42."


@env.reference
def right(task):
    return REFERENCE


@env.verify
def verify(response, task, state):
"""

Audited = Callable[..., Report]


@pytest.fixture
def audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audited:
    def run(verifier: str, *, reference: str = '"Answer: 42"', settings: str = "", overrides: Any = ()) -> Report:
        source = HEAD.replace("REFERENCE", reference).replace("SETTINGS", settings)
        path = tmp_path / "tried.py"
        path.write_text(source + textwrap.indent(verifier, "    "))
        component = cached_component(path, tmp_path / "cache")
        monkeypatch.setenv(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, str(component.root))
        return audit("tried", overrides)

    return run


SOUND = "return response.text == 'Answer: 42'"


def failures(report: Report) -> set[str]:
    return {finding.check for finding in report.failures}


def test_a_sound_verifier_passes_every_check(audited: Audited) -> None:
    report = audited(SOUND)
    assert report.passed, report
    tried = {finding.check for finding in report.findings if finding.verdict == "ok"}
    assert tried >= {"right answer", "nothing", "verdict imitation", "patched checker", "reserved routes", "idle calls"}
    assert {finding.rows for finding in report.findings if finding.verdict == "ok"} == {1}


@pytest.mark.parametrize(
    ("verifier", "fallen_for"),
    [
        ("return response.text != 'no'", {"refusal", "reward file", "long junk", "verdict imitation", "nothing"}),
        ("return not response.text.strip()", {"nothing", "empty", "blank", "right answer"}),
        ("return 'Answer:' in response.text", {"echoed prompt", "echoed placeholder", "all options"}),
        ("return 'Reward: 1.0' in response.text or response.text == 'Answer: 42'", {"verdict imitation"}),
        ("return 'score' in response.text or response.text == 'Answer: 42'", {"verdict as data"}),
        ("return 'grader' in response.text or response.text == 'Answer: 42'", {"orders to the judge"}),
        ("return 'exit' in response.text or response.text == 'Answer: 42'", {"early exit"}),
        ("return 'class Same' in response.text or response.text == 'Answer: 42'", {"patched checker"}),
        ("return 'reward.json' in response.text or response.text == 'Answer: 42'", {"reward file"}),
        ("return 'get_objects' in response.text or response.text == 'Answer: 42'", {"stolen answers"}),
        ("return bool(response.calls) or response.text == 'Answer: 42'", {"idle calls", "reserved routes"}),
        ("return re.search(r'\\b42\\b', response.text) is not None", {"long guesses"}),
        ("return response.text.count('[') > 100 or response.text == 'Answer: 42'", {"long nesting"}),
        ("return 'junk' in response.text or response.text == 'Answer: 42'", {"long junk"}),
    ],
)
def test_what_a_verifier_falls_for_is_found(verifier: str, fallen_for: set[str], audited: Audited) -> None:
    report = audited(verifier)
    assert fallen_for <= failures(report)
    if "Answer: 42'" in verifier:
        assert failures(report) == fallen_for
    for finding in report.failures:
        assert finding.note.endswith((".", "audit.py.")) and "What is 6 * 7" in finding.note


def test_an_answer_that_is_right_by_luck_is_no_trick(audited: Audited) -> None:
    last_letter = "letters = re.findall(r'boxed.(.)', response.text)\nreturn letters[-1:] == ['D']"
    assert failures(audited(last_letter, reference="r'\\boxed{D}'")) == set()
    any_letter = "return bool(re.search(r'boxed.D', response.text))"
    assert failures(audited(any_letter, reference="r'\\boxed{D}'")) == {"all options"}


@pytest.mark.parametrize(
    ("verifier", "said"),
    [
        ("raise RuntimeError('no boxes')", "It gets an error instead of a verdict"),
        ("return None if response.text != 'Answer: 42' else 1", "an error instead of a verdict"),
    ],
)
def test_a_verifier_that_has_no_verdict_fails(verifier: str, said: str, audited: Audited) -> None:
    notes = {finding.check: finding.note for finding in audited(verifier).failures}
    assert said in notes["refusal"] and "the verifier must answer" in notes["refusal"]


def test_a_verifier_that_raises_is_told_by_its_line_without_tracebacks(
    audited: Audited, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report = audited("return 1 / 0")
    line = HEAD.count("\n") + 1
    told = f"{tmp_path / 'tried.py'}:{line}: `verify` raised ZeroDivisionError: division by zero"
    assert all(told in finding.note for finding in report.failures) and len(report.failures) > 15
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("source", ["", "raise RuntimeError('no boxes')"])
def test_so_is_one_of_a_folder(source: str, tmp_path: Path, audited: Audited) -> None:
    audited(SOUND)
    (folder,) = (tmp_path / "cache").glob("*/resources_servers/tried")
    app = folder / "app.py"
    line = source or "return None.nothing"
    own = f"    async def verify(self, request: Request, body: Body):\n        {line}\n\n\nif __name__"
    imports = "from fastapi import Request\nfrom nemo_gym.base_resources_server import BaseVerifyRequest as Body\n"
    app.write_text(imports + app.read_text().replace("if __name__", own))
    notes = {finding.check: finding.note for finding in audit("tried").failures}
    at = next(number for number, text in enumerate(app.read_text().splitlines(), 1) if "def verify" in text) + 1
    assert f"{app}:{at}: " in notes["refusal"]


def test_what_never_ends_is_tried_twice_and_no_more(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.audit.running.ROLLOUT_SECONDS", 0.3)
    loop = "import time\nwhile 'boxed' not in response.text: time.sleep(0.001)\nreturn 1"
    report = audited(loop)
    late = [finding for finding in report.failures if "no verdict within 0.3 s (it is at " in finding.note]
    assert [finding.check for finding in late] == ["right answer", "nothing"] and report.is_late
    untried = {finding.note for finding in report.findings if finding.verdict == "not tried"}
    assert untried == {"2 replies had no verdict in time"}


def test_the_reference_may_hear_what_tools_say(audited: Audited) -> None:
    talk = "(lambda: (yield f\"Heard: {(yield call('look', at='wall'))}\"))()"
    report = audited("return response.text == 'Heard: It says 42.' and state == ['wall']", reference=talk)
    assert report.passed, report


def test_a_reference_that_gets_too_little_is_said(audited: Audited) -> None:
    (finding,) = (each for each in audited("return 0.5 * " + SOUND[7:].join("()")).failures)
    assert (finding.check, finding.reward) == ("right answer", 0.5)
    assert "got the reward 0.5, not 1: mend the verifier, or `reference`" in finding.note


def test_full_and_low_are_the_environments(audited: Audited) -> None:
    settings = ", audit=Audit(full=0.9, low=0.25)"
    report = audited(f"return 0.9 if {SOUND[7:]} else 0.25", settings=settings)
    assert report.passed, report
    assert not audited(f"return 0.9 if {SOUND[7:]} else 0.26", settings=settings).passed


def test_own_tricks_are_tried_and_what_is_none_here_is_not(audited: Audited) -> None:
    own = ', audit=Audit(tricks={"magic word": lambda row: "please"}, not_tricks={"long junk": "junk is asked for"})'
    report = audited("return response.text in ('please', 'Answer: 42') or 'junk' in response.text", settings=own)
    assert failures(report) == {"magic word"}
    (junk,) = (finding for finding in report.findings if finding.check == "long junk")
    assert (junk.verdict, junk.note) == ("not tried", "not a trick here: junk is asked for")


@pytest.mark.parametrize(
    ("settings", "verdict", "note"),
    [
        ("", "FAILED", "gives no reply for any row"),
        (', audit=Audit(no_reference="nobody knows")', "not tried", "nobody knows"),
    ],
)
def test_without_a_reference_it_must_be_said_why(
    settings: str, verdict: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = HEAD.replace("SETTINGS", settings).replace("REFERENCE", "None")
    if verdict == "not tried":
        source = source.replace("@env.reference", "")
    (tmp_path / "tried.py").write_text(source + "    return 0\n")
    component = cached_component(tmp_path / "tried.py", tmp_path / "cache")
    monkeypatch.setenv(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, str(component.root))
    finding = audit("tried").findings[0]
    assert (finding.check, finding.verdict) == ("right answer", verdict)
    assert note in finding.note


def test_overrides_change_the_config(audited: Audited) -> None:
    talk = '[call("look", at="a"), call("look", at="b"), "Answer: 42"]'
    verifier = "return len(state) == 2"
    assert "right answer" not in failures(audited(verifier, reference=talk))
    steps = ["++tried_simple_agent.responses_api_agents.simple_agent.max_steps=1"]
    assert "right answer" in failures(audited(verifier, reference=talk, overrides=steps))
    with pytest.raises(ConfigError):
        audited(verifier, overrides=["+a=[1"])


def test_a_route_of_the_server_that_the_model_can_call_is_found(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B105."""
    import responses_api_agents.simple_agent.activation as activation

    monkeypatch.setattr(activation, "tool_path", lambda name, offered: f"/{name}")
    (finding,) = audited(SOUND).failures
    assert finding.check == "reserved routes"
    assert all(f"/{route}" in finding.note for route in ("seed_session", "verify", "aggregate_metrics"))


def test_an_unknown_name_is_said() -> None:
    with pytest.raises(AuditError, match=r"no resources server or environment `mqca` to audit\. Did you mean `mcqa`"):
        audit("mqca")


def test_a_server_without_an_agent_is_not_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `gym env init --benchmark` makes one: its agent is in the benchmark's config."""
    config = tmp_path / "resources_servers/part/configs/part.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("part:\n  resources_servers:\n    part:\n      entrypoint: app.py\n")
    monkeypatch.setenv(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, str(tmp_path))
    with pytest.raises(AuditError, match=r"No config of \S+/resources_servers/part has an agent .*`gym env test"):
        audit("part")


def test_a_statement_that_is_none_is_said(audited: Audited, tmp_path: Path) -> None:
    audited(SOUND)
    (folder,) = (tmp_path / "cache").glob("*/resources_servers/tried")
    for text, problem in (("AUDIT = 1\n", "needs `AUDIT = Audit"), ("import nowhere\n", "can't be imported: Module")):
        (folder / "audit.py").write_text(text)
        with pytest.raises(AuditError, match=problem):
            audit("tried")
    (folder / "audit.py").write_text("from nemo_gym.audit import Audit\nAUDIT = {'other': Audit()}\n")
    with pytest.raises(AuditError, match="AUDIT says nothing of tried; it has other"):
        audit("tried")
    (folder / "audit.py").unlink()
    assert "isn't there: write AUDIT" in audit("tried").findings[0].note


def test_a_report_survives_being_written() -> None:
    report = audit("format_verification/citation_format")
    assert Report.of_data(report.as_data()) == report
    assert {finding.config for finding in report.findings} == {"citation_format"}
