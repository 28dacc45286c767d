"""`uv run --with matplotlib python -m examples.grpo_tiny.picture RESULT.json` draws the curves of a training."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

FILE = Path(__file__).parent / "reward.svg"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path)
    result = json.loads(parser.parse_args().result.read_text())

    import matplotlib  # type: ignore[import-not-found]

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = FILE.stem
    from matplotlib import pyplot

    canvas, axes = pyplot.subplots(figsize=(7, 4))
    curves = {seed: [point["reward"] for point in curve] for seed, curve in result["curves"].items()}
    for seed, rewards in curves.items():
        axes.plot(rewards, alpha=0.4, label=f"seed {seed}")
    axes.plot([sum(step) / len(step) for step in zip(*curves.values(), strict=True)], color="black", label="mean")
    rollouts = result["questions"] * result["group"]
    axes.set(title="GRPO on mcqa", xlabel=f"step ({rollouts} rollouts each)", ylabel="mean reward", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend()
    canvas.tight_layout()
    canvas.savefig(FILE, metadata={"Date": None})
    print(f"{FILE.name} written")


if __name__ == "__main__":
    main()
