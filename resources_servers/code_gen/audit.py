"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Row

PROGRAMS = {
    "f076298c-5db5-569c-8b59-7f2003abe5aa": "print(sum(map(int, input().split())))",
    "5eebb841-a1dd-52ea-9726-5a31b179c4fc": (
        "input()\nnumbers = input().split()\nprint('YES' if numbers == numbers[::-1] else 'NO')"
    ),
    "bb0f8474-c4e6-5ec1-a0ba-15fbc5c678d3": (
        "import math\nfor _ in range(int(input())):\n    print(f'{math.pi * float(input()) ** 2:.9f}')"
    ),
    "40894471-c0ad-589a-9d06-f35dd4460c87": (
        "from itertools import groupby\n\n\ndef longest_run(text):\n"
        "    return max((len(list(run)) for _, run in groupby(text)), default=0)"
    ),
    "5d752c7e-8e51-5813-ba81-369c1cd9c309": (
        "class Solution:\n    def merge(self, intervals):\n        merged = []\n"
        "        for start, end in sorted(intervals):\n            if merged and start <= merged[-1][1]:\n"
        "                merged[-1][1] = max(merged[-1][1], end)\n            else:\n"
        "                merged.append([start, end])\n        return merged"
    ),
}


def reference(row: Row) -> str | None:
    program = PROGRAMS.get(row.get("hash_id", ""))
    return f"```python\n{program}\n```" if program else None


AUDIT = Audit(reference=reference)
