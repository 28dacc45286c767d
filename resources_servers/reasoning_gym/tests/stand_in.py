"""A small package with the functions of reasoning-gym that are used here, for tests without it."""

from pathlib import Path

FRONT = """
from . import exact, formulas

SCORERS = {**exact.SCORERS, **formulas.SCORERS}


def get_score_answer_fn(name):
    if name not in SCORERS:
        raise ValueError(f"Dataset {name!r} is not registered")
    return SCORERS[name]


def create_dataset(name, size, seed):
    if name not in SCORERS:
        raise ValueError(f"Dataset {name!r} is not registered")
    return [
        {"question": f"{seed} + {n}?\\n", "answer": str(seed + n),
         "metadata": {"source_dataset": name, "path": __import__("pathlib").Path("x"), "pair": (1, n)}}
        for n in range(size)
    ]
"""

EXACT = """
def exact(answer, entry):
    return 1.0 if answer == entry["answer"] else 0.01


def touchy(answer, entry):
    if "boom" in answer:
        raise KeyError("boom")
    while "slow" in answer:
        pass
    return exact(answer, entry)


def broken(answer, entry):
    raise KeyError("broken")


def endless(answer, entry):
    while True:
        pass


def grid(answer, entry):
    return float(tuple(tuple(map(int, row.split())) for row in answer.split("\\n")) == entry["metadata"]["output"])


SCORERS = {
    "exact": exact, "touchy": touchy, "broken": broken, "endless": endless, "arc_agi": grid, "rearc": grid,
    "nan": lambda answer, entry: float("nan"), "text": lambda answer, entry: "high",
}
"""

FORMULAS = """
import os


def countdown(answer, entry):
    try:
        value = eval(answer)
        return 1.0 if value == entry["metadata"]["target"] else 0.05
    except Exception:
        return 0.01


SCORERS = {"countdown": countdown, "puzzle24": countdown}
"""


def write(folder: Path) -> None:
    """Write the package into a folder."""
    package = folder / "reasoning_gym"
    package.mkdir()
    for name, text in {"__init__": FRONT, "exact": EXACT, "formulas": FORMULAS}.items():
        (package / f"{name}.py").write_text(text)
