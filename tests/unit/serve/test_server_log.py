"""What servers log and print: no secret, nothing that a file or a terminal can't take."""

from __future__ import annotations

import importlib
import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemo_gym.config.handover import CONFIG_FILE_ENV
from nemo_gym.serve import redaction
from nemo_gym.serve.log_prefix import MOST_CHARS, PrefixedStream
from nemo_gym.serve.redaction import beginning, encodable, printable, shown
from nemo_gym.serve.server_log import server_log


@pytest.fixture
def redacted() -> Iterator[None]:
    redaction.install(lambda text: text.replace("hunter22", "****"))
    yield
    redaction.install(None)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain\ttext\nof two lines", "plain\ttext\nof two lines"),
        ("half \ud800", "half \\ud800"),
        ("\x1b[31mred\x07\r\x00\x7f\x9b", "\\x1b[31mred\\x07\\r\\x00\\x7f\\x9b"),
        ("\U0001f600 ü", "\U0001f600 ü"),
    ],
)
def test_text_becomes_printable(text: str, safe: str) -> None:
    assert printable(text) == safe
    printable(text).encode()


def test_only_what_no_encoding_takes_is_escaped_in_output_of_others() -> None:
    assert encodable("\x1b[31m \udc80 ü") == "\x1b[31m \\udc80 ü"


def test_shown_text_is_cut_to_its_limit() -> None:
    assert (shown("abcdef", 4), shown("abcd", 4)) == ("abc…", "abcd")
    assert shown("a" * 90_000 + "b", 4) == "aaa…"
    assert shown("\x00" * 90_000, 9) == "\\x00\\x00…"


def test_of_a_long_text_little_more_is_read_than_is_shown() -> None:
    lengths: list[int] = []
    redaction.install(lambda text: lengths.append(len(text)) or text)  # type: ignore[func-returns-value]
    try:
        shown("a" * 3_000_000, 100)
        beginning("a" * 3_000_000, 100)
    finally:
        redaction.install(None)
    assert max(lengths) < 20_000


@pytest.mark.usefixtures("redacted")
def test_no_secret_is_shown_for_being_cut() -> None:
    for length in (*range(40, 50), *range(10_030, 10_060)):
        text = "a" * length + "hunter22" + "b" * 50_000
        for limit in (50, 46, length + 3):
            assert "h" not in beginning(text, limit) + shown(text, limit), (length, limit)


@pytest.mark.usefixtures("redacted")
def test_records_are_safe_before_a_handler_sees_them(caplog: pytest.LogCaptureFixture) -> None:
    """Handlers of others, pytest's among them, send records to other processes."""
    try:
        raise ValueError("hunter22 \ud800")
    except ValueError:
        server_log("nemo_gym.test").exception("failed: %s %d", "hunter22 \udfff", 7)
    (record,) = caplog.records
    assert (record.getMessage(), record.args) == ("failed: **** \\udfff 7", ())
    assert record.exc_text is not None and record.exc_text.endswith("ValueError: **** \\ud800")
    assert "hunter22" not in caplog.text
    caplog.text.encode()


def test_records_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("x" * 100_000)
    except ValueError:
        server_log("nemo_gym.test").exception("failed: %s", "y" * 100_000)
    (record,) = caplog.records
    assert record.exc_text is not None
    assert (len(record.getMessage()), len(record.exc_text)) == (20_000, 20_000)
    assert record.exc_text.startswith("Traceback")


@pytest.mark.parametrize(
    "name",
    [
        "nemo_gym.server_utils",
        "nemo_gym.base_environment_server",
        "nemo_gym.base_responses_api_model",
        "nemo_gym.mcp_auto_exposure",
        "nemo_gym.serve.agent_sessions",
    ],
)
@pytest.mark.usefixtures("redacted")
def test_the_loggers_of_servers_are_safe(name: str, caplog: pytest.LogCaptureFixture) -> None:
    importlib.import_module(name)
    logging.getLogger(name).warning("hunter22 \ud800")
    assert caplog.messages == ["**** \\ud800"]


@pytest.mark.usefixtures("redacted")
def test_whatever_a_process_prints_is_redacted_and_encodable() -> None:
    raw = io.BytesIO()
    stream = PrefixedStream(io.TextIOWrapper(raw, encoding="utf-8", write_through=True), "(toy) ")
    print("a hunter22", "\ud800", file=stream)
    stream.writelines(["x\n", "hunter22\n"])
    assert raw.getvalue().decode() == "(toy) a **** \\ud800\n(toy) x\n(toy) ****\n"


@pytest.mark.usefixtures("redacted")
def test_of_what_is_printed_at_once_a_million_characters_are_kept() -> None:
    inner = io.StringIO()
    stream = PrefixedStream(inner, "(toy) ")
    stream.write("a" * (MOST_CHARS - 1) + "\n")
    stream.write("\ud800" + "a" * (MOST_CHARS + 98) + "hunter22\n")
    first, second = inner.getvalue().splitlines()
    assert first == "(toy) " + "a" * (MOST_CHARS - 1)
    assert second == "(toy) \\ud800" + "a" * (MOST_CHARS - 1) + "… (107 more characters)"


SURVIVOR = """
import os, sys
from nemo_gym.serve.log_streams import print_to_log_if_launched
print_to_log_if_launched()
for _ in range(3):
    print("x" * 100)
    print("y" * 100, file=sys.stderr)
os.write(int(sys.argv[1]), b"survived")
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_costs_a_server_its_lines_only(unbuffered: str) -> None:
    """Also one with an interpreter of its own, which the fork server hands no streams to."""
    read_end, write_end = os.pipe()
    environment = {**os.environ, CONFIG_FILE_ENV: "config.json", "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", SURVIVOR, str(write_end)],
            env=environment,
            stdout=full,
            stderr=full,
            pass_fds=[write_end],
            check=False,
        )
    os.close(write_end)
    with os.fdopen(read_end, "rb") as told:
        assert (done.returncode, told.read()) == (0, b"survived")


def test_a_line_is_in_the_log_when_it_is_printed(tmp_path: Path) -> None:
    """Whoever follows a log, or reads that of a server that was killed, sees all of it."""
    program = (
        "import os, pathlib, sys\n"
        "from nemo_gym.serve.log_streams import print_to_log\n"
        "print_to_log()\n"
        "print('a line')\n"
        "print('another', file=sys.stderr)\n"
        "assert pathlib.Path('log').read_text() == 'a line\\nanother\\n'\n"
        "os._exit(7)\n"
    )
    with (tmp_path / "log").open("ab") as log:
        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, stdout=log, stderr=log, check=False)
    assert done.returncode == 7, (tmp_path / "log").read_text()
