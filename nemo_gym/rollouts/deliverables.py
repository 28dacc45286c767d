"""Files an agent hands in."""

from pathlib import Path

IGNORE_FILES = frozenset(
    {
        "finish_params.json",
        "history.json",
        "history.pkl",
        "inprogress_history.json",
        "metadata.json",
        "log.txt",
        "reference_files",
    }
)
"""What harnesses write beside the work itself."""


def is_deliverable(path: Path) -> bool:
    """Whether `path` is a regular file that isn't one of the harness's own."""
    return path.is_file() and path.name not in IGNORE_FILES
