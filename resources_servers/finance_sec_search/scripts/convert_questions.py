"""Make rows of questions.

python resources_servers/finance_sec_search/scripts/convert_questions.py --input questions.jsonl --output rows.jsonl

Lines of the input are objects with `question` and `expected_answer`; what else they have, rows keep.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from nemo_gym.data_preparation import write_rows
from nemo_gym.errors import GymError
from resources_servers.finance_sec_search.tool_arguments import (
    EdgarSearchRequest,
    FinanceAgentSearchRequest,
    ParseHtmlPageRequest,
    RetrieveInformationRequest,
    SubmitFinalResultRequest,
    WebSearchRequest,
)

PROMPT = """\
Answer the question below about companies, by research with your tools.

Find the filings that hold the answer, store their text with parse_html_page, and ask about it with \
retrieve_information; of a long document ask about parts. Go by what the documents say, give numbers with their unit, \
scale and period, and show how you came by those that you worked out. When you are sure, or can get no further, call \
submit_final_result with the whole answer: nothing else that you write counts.

Question:
{question}"""

_ITEMS = {"type": "array", "items": {"type": "string"}}
_SCHEMAS: dict[str, tuple[type[Any], str, dict[str, Any]]] = {
    "sec_filing_search": (
        FinanceAgentSearchRequest,
        "List a company's filings with the SEC, newest first, with the address of each.",
        {"form_types": _ITEMS},
    ),
    "edgar_search": (
        EdgarSearchRequest,
        "Search the full text of filings with the SEC.",
        {"form_types": _ITEMS, "ciks": _ITEMS, "page": {"type": "integer"}, "top_n_results": {"type": "integer"}},
    ),
    "parse_html_page": (ParseHtmlPageRequest, "Fetch a page and store its text under a key of your choice.", {}),
    "retrieve_information": (
        RetrieveInformationRequest,
        "Have a model answer a question. It sees your prompt alone, in which {{key}} stands for a stored document.",
        {
            "input_character_ranges": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "key": {"type": "string"},
                        "start": {"type": "integer"},
                        "end": {"type": "integer"},
                    },
                    "required": ["key", "start", "end"],
                },
            }
        },
    ),
    "web_search": (WebSearchRequest, "Search the web.", {"number_of_results": {"type": "integer"}}),
    "submit_final_result": (SubmitFinalResultRequest, "Submit your answer to the question. This ends the task.", {}),
}


def _tool(name: str) -> dict[str, Any]:
    model, description, given_types = _SCHEMAS[name]
    properties = {
        field: {**given_types.get(field, {"type": "string"}), "description": info.description}
        for field, info in model.model_fields.items()
    }
    required = [field for field, info in model.model_fields.items() if info.is_required()]
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": False}


SEC_FILING_SEARCH_TOOL = _tool("sec_filing_search")
EDGAR_SEARCH_TOOL = _tool("edgar_search")
WEB_SEARCH_TOOL = _tool("web_search")
READING_TOOLS = [_tool(name) for name in ("parse_html_page", "retrieve_information", "submit_final_result")]
SEARCH_TOOLS = {"sec_filing_search": SEC_FILING_SEARCH_TOOL, "edgar_search": EDGAR_SEARCH_TOOL}


class QuestionError(GymError):
    """A line that is no question; the message names it."""


def convert_entry(
    entry: dict[str, Any], include_web_search: bool = False, search_tool: str = "sec_filing_search"
) -> dict[str, Any]:
    """The row of a question. Raises QuestionError without `question` or `expected_answer`."""
    for name in ("question", "expected_answer"):
        if not isinstance(entry.get(name), str) or not entry[name].strip():
            raise QuestionError(f"a question needs a text as {name}")
    tools = [SEARCH_TOOLS[search_tool], *READING_TOOLS, *([WEB_SEARCH_TOOL] if include_web_search else [])]
    content = PROMPT.replace("{question}", entry["question"])
    params = {"input": [{"role": "user", "content": content}], "tools": tools}
    return {"responses_create_params": params, **entry}


def convert_lines(lines: Iterator[str], include_web_search: bool, search_tool: str) -> Iterator[dict[str, Any]]:
    """The rows of a file, blank lines left out. QuestionError names the line that isn't one."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise QuestionError("it is no object")
            yield convert_entry(entry, include_web_search, search_tool)
        except (ValueError, QuestionError) as error:
            raise QuestionError(f"line {number}: {error}") from error


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make rows of questions.")
    parser.add_argument("--input", "-i", type=Path, required=True)
    parser.add_argument("--output", "-o", type=Path, required=True)
    parser.add_argument("--include-web-search", "-w", action="store_true", help="offer web_search too")
    parser.add_argument("--search-tool", "-s", choices=sorted(SEARCH_TOOLS), default="sec_filing_search")
    arguments = parser.parse_args(argv)
    try:
        with arguments.input.open(encoding="utf-8") as lines:
            rows = convert_lines(iter(lines), arguments.include_web_search, arguments.search_tool)
            count = write_rows(arguments.output, rows)
    except (OSError, GymError) as error:
        print(f"Error: {arguments.input}: {error}", file=sys.stderr)
        return 1
    print(f"{count} rows: {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
