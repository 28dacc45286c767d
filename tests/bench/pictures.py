"""`uv run --with matplotlib python -m tests.bench.pictures RESULT.json …` draws docs/pictures/*.svg from results."""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"


@dataclass(frozen=True)
class Curve:
    """Points of one label: figures `what` of the cases `<prefix>/<x>`, or `<x> rows, <what>` of the case `<prefix>`."""

    label: str
    prefix: str
    what: str


@dataclass(frozen=True)
class Picture:
    name: str
    title: str
    x: str
    y: str
    curves: Sequence[Curve]


PICTURES = (
    Picture(
        "cpu-per-rollout",
        "CPU per single-turn rollout",
        "rollouts in flight",
        "ms of CPU, all processes of ours",
        (
            Curve("placement process", "curve-process", "CPU per rollout, all of ours"),
            Curve("placement shared", "curve-shared", "CPU per rollout, all of ours"),
        ),
    ),
    Picture(
        "added-latency",
        "Latency added to a provider that answers after 1 s",
        "rollouts in flight, all sent at once",
        "seconds",
        (
            Curve("process, median", "air-process", "added latency, p50"),
            Curve("process, p99", "air-process", "added latency, p99"),
            Curve("shared, median", "air-shared", "added latency, p50"),
            Curve("shared, p99", "air-shared", "added latency, p99"),
        ),
    ),
    Picture(
        "collector-memory",
        "Memory of the collector",
        "rows",
        "MB, peak resident",
        (Curve("collector", "collector", "peak resident memory"),),
    ),
)


def points(figures: Iterable[dict[str, Any]], curve: Curve) -> list[tuple[int, float]]:
    """`(x, value)` of each figure of the curve, in order of x."""
    found = []
    for figure in figures:
        case, _, in_case = figure["case"].partition("/")
        rows, _, what = figure["what"].strip().rpartition(" rows, ")
        x = in_case or rows.replace(",", "")
        if (case, what) == (curve.prefix, curve.what) and x.isdigit():
            found.append((int(x), figure["value"]))
    return sorted(found)


def draw(picture: Picture, figures: Sequence[dict[str, Any]], note: str) -> bool:
    """Write the picture; False when the results hold nothing for it."""
    import matplotlib  # type: ignore[import-not-found]

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = picture.name
    from matplotlib import pyplot

    drawn = {curve.label: found for curve in picture.curves if (found := points(figures, curve))}
    if not drawn:
        return False
    canvas, axes = pyplot.subplots(figsize=(7, 4))
    for label, found in drawn.items():
        axes.plot([x for x, _ in found], [y for _, y in found], marker="o", label=label)
    axes.set(title=picture.title, xlabel=picture.x, ylabel=picture.y, xscale="log")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    canvas.text(0.01, 0.01, note, fontsize=7, color="gray")
    canvas.tight_layout(rect=(0, 0.03, 1, 1))
    FOLDER.mkdir(parents=True, exist_ok=True)
    canvas.savefig(FOLDER / f"{picture.name}.svg", metadata={"Date": None})
    pyplot.close(canvas)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pictures", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    results = [json.loads(path.read_text()) for path in parser.parse_args().results]
    figures = [figure for result in results for figure in result["figures"]]
    note = " · ".join(f"{key} {value}" for key, value in results[0]["machine"].items())
    for picture in PICTURES:
        state = "written" if draw(picture, figures, note) else "no figures"
        print(f"{picture.name}: {state}")


if __name__ == "__main__":
    main()
