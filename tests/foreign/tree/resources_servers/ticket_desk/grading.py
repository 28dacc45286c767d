from typing import List


def grade(opened: List[str], expected: List[str]) -> float:
    """Share of the expected titles that were opened."""
    if not expected:
        return 1.0
    return len(set(opened) & set(expected)) / len(set(expected))
