"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Row


def reference(row: Row) -> str:
    return rf"\boxed{{{row['expected_output']}}}"


def nearly(row: Row) -> str:
    """The right grid with one cell changed."""
    rows = [list(cells) for cells in row["expected_output"]]
    rows[-1][-1] = (rows[-1][-1] + 1) % 10
    return rf"\boxed{{{rows}}}"


def shown(row: Row) -> str:
    """The grids of the puzzle itself."""
    return "\n".join(rf"\boxed{{{grid}}}" for grid in [row["test_input"], *(pair["output"] for pair in row["train"])])


AUDIT = Audit(reference=reference, tricks={"one cell changed": nearly, "grids of the prompt": shown})
