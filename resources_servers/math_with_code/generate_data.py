"""Writes problems with answers, for a split always the same ones: `python generate_data.py --split train`."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import run_preparation, write_rows

DATA = Path(__file__).parent / "data"
COUNT = 1000
TOOL = {
    "type": "function",
    "name": "execute_python",
    "description": "Runs Python and gives back what it prints and the value of its last line. Variables stay.",
    "parameters": {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The code to run"}},
        "required": ["code"],
        "additionalProperties": False,
    },
    "strict": True,
}
INSTRUCTIONS = (
    "Solve the problem; you may run Python with the tool execute_python. Put the answer, a number, in \\boxed{}."
)


def prepare(split: str = "train", output: Path | None = None, limit: int | None = None) -> Path:
    """Write one split and return the file."""
    path = output or DATA / f"{split}.jsonl"
    write_rows(path, rows(split, COUNT if limit is None else limit))
    return path


def rows(split: str, count: int) -> Iterator[dict[str, Any]]:
    """So many problems; those of one split are in no other, as far as chance allows."""
    chance = random.Random(f"math_with_code {split}")
    for number in range(count):
        problem, answer = chance.choice(KINDS)(chance)
        yield row(problem, answer, number)


def row(problem: str, answer: int, number: int) -> dict[str, Any]:
    messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": problem}]
    return {
        "responses_create_params": {"input": messages, "tools": [TOOL], "parallel_tool_calls": False},
        "expected_result": str(answer),
        "id": number,
    }


def multiples(chance: random.Random) -> tuple[str, int]:
    a, b, below = chance.randint(3, 19), chance.randint(20, 40), chance.randint(500, 20_000)
    answer = sum(n for n in range(1, below) if n % a == 0 or n % b == 0)
    return f"What is the sum of all positive whole numbers below {below} that are divisible by {a} or {b}?", answer


def remainder(chance: random.Random) -> tuple[str, int]:
    base, power, modulus = chance.randint(3, 99), chance.randint(100, 9999), chance.randint(101, 9973)
    return f"What is the remainder of {base}^{power} divided by {modulus}?", pow(base, power, modulus)


def digits(chance: random.Random) -> tuple[str, int]:
    number = chance.randint(20, 150)
    return f"What is the sum of the digits of {number}! (factorial)?", sum(map(int, str(math.factorial(number))))


def divisors(chance: random.Random) -> tuple[str, int]:
    number = chance.randint(2, 60) * chance.randint(2, 60) * chance.randint(2, 60)
    answer = sum(1 for n in range(1, number + 1) if number % n == 0)
    return f"How many positive divisors does {number} have?", answer


def paths(chance: random.Random) -> tuple[str, int]:
    right, up = chance.randint(4, 14), chance.randint(4, 14)
    problem = f"On a grid, how many shortest paths lead from (0, 0) to ({right}, {up}), one step right or up at a time?"
    return problem, math.comb(right + up, up)


KINDS: tuple[Callable[[random.Random], tuple[str, int]], ...] = (multiples, remainder, digits, divisors, paths)

if __name__ == "__main__":
    run_preparation(prepare, description="Write problems with answers.", splits=("train", "validation"))
