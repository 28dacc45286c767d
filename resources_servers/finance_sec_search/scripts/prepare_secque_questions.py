"""Download the questions of SecQue, for convert_questions.py.

python resources_servers/finance_sec_search/scripts/prepare_secque_questions.py --output secque_questions.jsonl
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from nemo_gym.data_preparation import hub_rows, write_rows
from nemo_gym.errors import GymError

REPO_ID = "nogabenyoash/SecQue"
QUESTION_FIELDS = ("question", "query")
ANSWER_FIELDS = ("expected_answer", "answer", "ground_truth", "gold_answer", "reference_answer")


def questions(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """`question` and `expected_answer` of rows that have both, under any of the names they go by, each once."""
    seen: set[str] = set()
    for row in rows:
        fields = {str(name).lower(): value for name, value in row.items()}
        question, answer = _first_text(fields, QUESTION_FIELDS), _first_text(fields, ANSWER_FIELDS)
        if question and answer and question not in seen:
            seen.add(question)
            yield {"question": question, "expected_answer": answer}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Download the questions of SecQue.")
    parser.add_argument("--output", "-o", type=Path, required=True)
    parser.add_argument("--split", default="train", help="which of its splits (default: %(default)s)")
    arguments = parser.parse_args(argv)
    try:
        count = write_rows(arguments.output, questions(hub_rows(REPO_ID, split=arguments.split)))
    except GymError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{count} questions: {arguments.output}")
    return 0


def _first_text(fields: Mapping[str, Any], names: Iterable[str]) -> str:
    texts = (str(fields[name]).strip() for name in names if fields.get(name) is not None)
    return next((text for text in texts if text), "")


if __name__ == "__main__":
    sys.exit(main())
