"""A model provider for tests and benchmarks: three dialects, scripted replies, scripted faults. See README.md."""

from tests.mock_provider.in_process import MockProvider
from tests.mock_provider.script import Fault, Reply, Rule, Script, ScriptError, ToolCall, load_script, parse_script
from tests.mock_provider.server import RecordedRequest

__all__ = [
    "Fault",
    "MockProvider",
    "RecordedRequest",
    "Reply",
    "Rule",
    "Script",
    "ScriptError",
    "ToolCall",
    "load_script",
    "parse_script",
]
