from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.record_examples import RecordingError, script_of


def test_replies_are_given_row_by_row_and_then_refused(tmp_path: Path) -> None:
    path = tmp_path / "replies.json"
    path.write_text(json.dumps(["one", [{"tool_calls": [{"name": "f", "arguments": {}}]}, "two"]]))
    script = script_of(path, 2)
    assert [reply.text or reply.tool_calls[0].name for reply in script.replies] == ["one", "f", "two"]
    [spent] = script.default
    assert spent.fault is not None
    assert (spent.fault.status, spent.fault.message) == (400, "replies.json has no more replies")


@pytest.mark.parametrize("content", [["one"], {"a": 1}, "one"])
def test_there_must_be_an_entry_for_each_row(content: Any, tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_text(json.dumps(content))
    with pytest.raises(RecordingError, match="an entry for each of the 2"):
        script_of(tmp_path / "replies.json", 2)


def test_replies_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="can't be read"):
        script_of(tmp_path / "replies.json", 2)
