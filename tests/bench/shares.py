"""`shares`: where the time of the processes goes that several servers share, by samples of their stacks."""

import json
import tempfile
from collections import Counter
from pathlib import Path

from tests.bench.report import Figure
from tests.bench.servers import collect, started, write_prompts
from tests.mock_provider import MockProvider

SAMPLER = Path(__file__).parent / "sampler"
WIDTH = 32


def shares(root: Path, *, quick: bool) -> list[Figure]:
    """Of `single-shared` with 32 in flight. Counting takes time itself, so no times are told."""
    with tempfile.TemporaryDirectory() as folder, MockProvider("\\boxed{A}") as mock:
        scratch = Path(folder)
        prompts, samples = scratch / "prompts.jsonl", scratch / "samples"
        samples.mkdir()
        write_prompts(prompts, 2000 if quick else 8000)
        counting = {"PYTHONPATH": str(SAMPLER), "GYM_SAMPLES": str(samples)}
        with started(root, scratch, mock.base_url, "+placement=shared", variables=counting) as servers:
            shards = servers.processes()
            before = _counted(samples, shards)
            collect(root, prompts, scratch / "rollouts.jsonl", servers.head_port, WIDTH)
            counts = _counted(samples, shards) - before
    total = counts.total()
    ordered = counts.most_common()
    return [Figure("shares", part, 100 * count / total, "%") for part, count in ordered] + [
        Figure("shares", "samples", float(total), "")
    ]


def _counted(folder: Path, shards: dict[str, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for pid in shards.values():
        if (file := folder / f"{pid}.json").exists():
            counts.update(json.loads(file.read_text()))
    return counts
