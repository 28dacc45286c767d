"""Paths of environments' files on the command line."""

import json
import re
import sys
from pathlib import Path

import pytest

from nemo_gym.audit import running
from nemo_gym.cli.audit import _Progress
from nemo_gym.cli.main import main

GOOD = """
from nemo_gym import Environment

env = Environment("tiny", tasks=[{"question": "Say yes.", "word": "yes"}])


@env.verify
def verify(response, task):
    return response.text == task["word"]


@env.reference
def right(task):
    return task["word"]
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nemo_gym.onefile.component.CACHE_DIR", tmp_path / "cache")
    for name in ("ROLLOUT_SECONDS", "GRACE_SECONDS"):  # files below change them in every process that reads them
        monkeypatch.setattr(running, name, getattr(running, name))
    (tmp_path / "tiny.py").write_text(GOOD)
    return tmp_path


def gym(*argv: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("nemo_gym.global_config._GLOBAL_CONFIG_DICT", None)
    monkeypatch.setattr(sys, "argv", ["gym", *argv])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_a_path_stands_for_its_config(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    model = (
        "--model-type",
        "openai_model",
        "--model-url",
        "http://127.0.0.1:9",
        "--model",
        "m",
        "--model-api-key",
        "k",
    )
    assert gym("env", "resolve", "tiny.py", *model, monkeypatch=monkeypatch) == 0
    shown = capfd.readouterr().out
    assert "tiny_simple_agent:" in shown and "jsonl_fpath: resources_servers/tiny/data/example.jsonl" in shown


@pytest.mark.parametrize(
    ("word", "said", "code"),
    [
        ("mcqa", "'mcqa' is no environment's file, which ends in .py: a component is named by --environment", 2),
        ("nowhere.py", "nowhere.py: it can't be read: No such file or directory.", 1),
        ("bad.py", "bad.py:1: invalid syntax.", 1),
    ],
)
@pytest.mark.parametrize("command", [("eval", "run"), ("env", "start")])
def test_words_that_mean_no_file_end_in_one_sentence(
    command: tuple[str, str],
    word: str,
    said: str,
    code: int,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (place / "bad.py").write_text("def (:\n")
    assert gym(*command, word, monkeypatch=monkeypatch) == code
    error = capfd.readouterr().err
    assert said in error and "Traceback" not in error


def test_testing_a_file_runs_its_tests(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert gym("env", "test", "tiny.py", monkeypatch=monkeypatch) == 0
    out = capfd.readouterr().out
    assert "tiny: 1 task, 0 tools." in out and "There are no tests" in out
    (place / "tiny.py").write_text(GOOD + "\n\ndef test_in_the_file():\n    assert False\n")
    assert gym("env", "test", "tiny.py", monkeypatch=monkeypatch) == 1
    (place / "tiny.py").write_text(GOOD)
    (place / "test_tiny.py").write_text("import tiny\n\n\ndef test_beside_it():\n    assert not tiny.env.tools\n")
    assert gym("env", "test", "tiny.py", monkeypatch=monkeypatch) == 0
    assert "1 passed" in capfd.readouterr().out


def test_testing_a_file_says_when_the_right_answer_does_not_pay(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (place / "tiny.py").write_text(GOOD.replace('return task["word"]', 'return "no"'))
    assert gym("env", "test", "tiny.py", monkeypatch=monkeypatch) == 1
    assert "Task 1 of tiny: the reference gets 0, saying nothing 0." in capfd.readouterr().err


@pytest.mark.parametrize(
    ("verifier", "said"),
    [
        (
            "    while True: pass",
            r"tiny\.py, task 1, saying nothing: no verdict within 0\.5 s: it is at .*tiny\.py:9\.",
        ),
        ("    import os; os._exit(3)", r"tiny\.py, task 1, saying nothing: the program ended with 3"),
        ("    return 1 / 0", r"tiny\.py:9: `verify` raised ZeroDivisionError: division by zero \(Task 1\.\)"),
        ("    return None", r"tiny\.py:7: `verify` returned None, which is no reward .* \(Task 1\.\)"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_testing_a_file_ends_in_one_sentence_whatever_the_verifier_does(
    verifier: str,
    said: str,
    is_async: bool,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("nemo_gym.cli.one_file.CHECK_SECONDS", 0.5)
    monkeypatch.setattr("nemo_gym.cli.one_file._SAY_EVERY_SECONDS", 0.0)
    source = GOOD.replace('    return response.text == task["word"]', verifier)
    (place / "tiny.py").write_text(source.replace("def verify", "async def verify") if is_async else source)
    assert gym("env", "test", "tiny.py", monkeypatch=monkeypatch) == 1
    error = capfd.readouterr().err
    assert re.search(said, error) and "Traceback" not in error
    assert re.search(r"^tiny\.py, .*: \d+ s …$", error, re.MULTILINE), "not in silence"


@pytest.mark.parametrize("name", ["json", "random", "types", "typing", "inspect"])
def test_files_called_like_modules_of_python_do_no_harm_beside_it_or_as_it(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own = "\n\ndef test_in_the_file():\n    assert env.play(env.tasks[0], 'yes').reward == 1\n"
    (place / "tiny.py").write_text(GOOD + own)
    (place / f"{name}.py").write_text(GOOD.replace('"tiny", ', "") + own)
    for path in ("tiny.py", f"{name}.py"):
        assert gym("env", "test", path, monkeypatch=monkeypatch) == 0, path
        assert "1 passed" in capfd.readouterr().out
    assert gym("env", "init", "--from", f"{name}.py", monkeypatch=monkeypatch) == 1
    assert f"can't be called '{name}'" in capfd.readouterr().err


def test_a_reference_that_calls_what_is_not_there_is_told_so(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    unknown = 'return {"type": "function_call", "call_id": "c", "name": "nope", "arguments": "{}"}'
    (place / "tiny.py").write_text(GOOD.replace('return task["word"]', unknown))
    assert gym("env", "test", "tiny.py", monkeypatch=monkeypatch) == 1
    assert "There is no tool 'nope'" in capfd.readouterr().err


def test_a_folder_is_made_from_a_file(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert gym("env", "init", "--from", "tiny.py", monkeypatch=monkeypatch) == 0
    assert "✓ Created" in capfd.readouterr().out
    assert (place / "resources_servers" / "tiny" / "environment.py").read_text() == GOOD
    assert gym("env", "init", "--from", "tiny.py", monkeypatch=monkeypatch) == 0
    assert "already up to date" in capfd.readouterr().out
    assert gym("env", "init", "--from", "tiny.py", "--environment", "x", monkeypatch=monkeypatch) == 2
    (place / "tiny.py").write_text(GOOD + "# more\n")
    assert gym("env", "init", "--from", "tiny.py", monkeypatch=monkeypatch) == 1
    assert "environment.py exists and is different" in capfd.readouterr().err


def test_an_audit_of_a_file_is_a_table_or_json_and_a_code(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(place / "nowhere"))
    assert gym("env", "audit", "tiny.py", monkeypatch=monkeypatch) == 0
    out = capfd.readouterr().out
    assert out.startswith("CONFIG") and out.endswith("checks.\n") and "tiny passed" in out
    (place / "tiny.py").write_text(GOOD.replace('== task["word"]', '!= "no"'))
    assert gym("env", "audit", "tiny.py", "--json", monkeypatch=monkeypatch) == 1
    report = json.loads(capfd.readouterr().out)
    assert not report["passed"]
    failed = {finding["check"] for finding in report["findings"] if finding["verdict"] == "FAILED"}
    assert failed >= {"refusal", "long junk"} and "right answer" not in failed


@pytest.mark.parametrize(
    ("verifier", "said"),
    [
        ("def verify(response): import os; os._exit(3)", "right answer: The program that audits it ended with 3"),
        ("async def verify(response):\n    while True: pass", r"right answer: It gets no verdict within .*tiny.py:\d+"),
        ("def verify(response):\n    while True: pass", r"nothing: It gets no verdict within .*tiny.py:\d+"),
    ],
)
def test_an_audit_ends_whatever_the_verifier_does(
    verifier: str, said: str, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(place / "nowhere"))
    source = GOOD.replace('def verify(response, task):\n    return response.text == task["word"]', verifier)
    short = "import nemo_gym.audit.running as running\nrunning.ROLLOUT_SECONDS = running.GRACE_SECONDS = 0.5\n"
    (place / "tiny.py").write_text(short + source)
    assert gym("env", "audit", "tiny.py", monkeypatch=monkeypatch) == 1
    shown = capfd.readouterr()
    assert re.search(said, shown.out) and "Traceback" not in shown.err


def test_an_audit_says_what_it_is_at_while_nothing_ends(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(place / "nowhere"))
    monkeypatch.setattr("nemo_gym.cli.audit._SAY_EVERY_S", 0.4)
    hanging = GOOD.replace('return response.text == task["word"]', "import time\n    time.sleep(1e9)")
    short = "import nemo_gym.audit.running as running\nrunning.ROLLOUT_SECONDS, running.GRACE_SECONDS = 1.5, 30.0\n"
    (place / "tiny.py").write_text(short + hanging)
    assert gym("env", "audit", "tiny.py", monkeypatch=monkeypatch) == 1
    assert re.search(r"^tiny: tiny, right answer, \d+ s \(0 checks done\) …$", capfd.readouterr().err, re.MULTILINE)


def test_in_a_terminal_an_audit_tells_each_check_as_it_begins(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    progress = _Progress("tiny", clock=lambda: 0.0)
    for check in ("right answer", "right answer", "refusal"):
        progress.heard({"check": check, "config": "tiny"})
        progress.meanwhile()
    told = capfd.readouterr().err.splitlines()
    assert told == ["tiny: tiny, right answer (0 checks done) …", "tiny: tiny, refusal (0 checks done) …"]


def test_an_audit_of_a_file_without_tasks_or_reference_speaks_of_the_file(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(place / "nowhere"))
    (place / "tiny.py").write_text(re.sub(r"tasks=\[.*\]", "tasks=[]", GOOD))
    assert gym("env", "audit", "tiny.py", monkeypatch=monkeypatch) == 1
    assert f"{place / 'tiny.py'} has no tasks" in capfd.readouterr().err
    (place / "tiny.py").write_text(GOOD[: GOOD.index("@env.reference")])
    assert gym("env", "audit", "tiny.py", monkeypatch=monkeypatch) == 1
    assert f"{place / 'tiny.py'} has no reference: decorate" in capfd.readouterr().out


def test_an_audit_needs_a_name(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert gym("env", "audit", monkeypatch=monkeypatch) == 2
    assert "missing NAME" in capfd.readouterr().err
