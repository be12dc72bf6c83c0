"""The tables and plots of docs/explanation/scaling.md, from the values that were kept alone.

`python -m bench.scaling.page` writes them again from the published values.
"""

from __future__ import annotations

import importlib
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import report

REPO = Path(__file__).parents[2]
VALUES = Path("bench/scaling/published.json")
PAGE = Path("docs/explanation/scaling.md")
_MARKS = "<!-- scaling: written by `make scaling` -->", "<!-- scaling: end -->"
#: Those with an axis.
PLOTTED = ("messages", "queues", "consumers")
_COLOURS = {"sqlite": "#8a5a2b", "redis": "#b03a2e"}

#: By curve: what its sizes count, and its figures with their names and how they are written.
_SHOWN: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "messages": (
        "messages waiting",
        {
            "put 1": ("put of 1, µs", "{:,.0f}"),
            "put 100": ("put of 100, µs a message", "{:,.1f}"),
            "claim+ack 1": ("claim+ack of 1, µs", "{:,.0f}"),
            "claim+ack 100": ("claim+ack of 100, µs a message", "{:,.1f}"),
            "stats": ("stats, µs", "{:,.0f}"),
            "bytes": ("bytes a message", "{:,.0f}"),
        },
    ),
    "queues": (
        "queues",
        {
            "drain": ("drain over all, /s", "{:,.0f}"),
            "stats": ("stats of the room, µs", "{:,.0f}"),
            "wake p50": ("put to begin p50, ms", "{:,.1f}"),
            "wake p99": ("p99, ms", "{:,.1f}"),
        },
    ),
    "consumers": (
        "consumers",
        {
            "drain": ("drain, one a claim, /s", "{:,.0f}"),
            "wake p50": ("put to claimed p50, ms", "{:,.1f}"),
            "wake p99": ("p99, ms", "{:,.1f}"),
            "idle": ("idle: % of a core", "{:,.1f}"),
            "refused": ("calls refused as busy", "{:,.0f}"),
        },
    ),
    "shapes": (
        "shape",
        {
            "put 1": ("put of 1, µs", "{:,.0f}"),
            "put 100": ("put of 100, µs a message", "{:,.1f}"),
            "claim+ack 1": ("claim+ack of 1, µs", "{:,.0f}"),
            "claim+ack 100": ("claim+ack of 100, µs a message", "{:,.1f}"),
            "stats": ("stats, µs", "{:,.0f}"),
        },
    ),
}


def tables(found: dict[str, Any]) -> str:
    parts = []
    for name, curve in found["curves"].items():
        unit, figures = _SHOWN[name]
        parts.append(f"### {unit[0].upper()}{unit[1:]}")
        if name in PLOTTED:
            parts.append(f"![{unit}](../images/scaling-{name}.png)")
        lines = [f"| engine | {unit} | {' | '.join(title for title, _ in figures.values())} |"]
        lines.append(f"|---|---:|{'---:|' * len(figures)}")
        for engine, sizes in curve["engines"].items():
            for size in sorted(sizes, key=lambda size: int(size) if size.isdigit() else 0):
                cells = (_cell(sizes[size][what], form) for what, (_, form) in figures.items())
                lines.append(f"| {engine} | {_counted(size)} | {' | '.join(cells)} |")
        loads = ", ".join(map(str, curve["load"]))
        parts += ["\n".join(lines), f"The load of the machine when each round began: {loads}."]
    return "\n\n".join([*parts, f"Measured on {report.machine_line(found['machine'])}."])


def _counted(size: str) -> str:
    return f"{int(size):,}" if size.isdigit() else size


def _cell(values: Sequence[float], form: str) -> str:
    least, middle, most = (form.format(one) for one in (min(values), statistics.median(values), max(values)))
    return middle if least == most else f"{middle} [{least}..{most}]"


def publish(found: dict[str, Any], root: Path) -> None:
    """Let these curves replace what was published of them, and write everything again."""
    path = root / VALUES
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"curves": {}}
    kept = {"machine": found["machine"], "curves": before["curves"] | found["curves"]}
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    write(kept, root)


def write(found: dict[str, Any], root: Path) -> None:
    path = root / PAGE
    path.write_text(written(path.read_text(encoding="utf-8"), found), encoding="utf-8")
    for name, curve in found["curves"].items():
        if name in PLOTTED:
            _draw(name, curve, root / "docs" / "images" / f"scaling-{name}.png")


def written(text: str, found: dict[str, Any]) -> str:
    """The page with these tables."""
    return report.between(text, *_MARKS, tables(found))


def _draw(name: str, curve: dict[str, Any], path: Path) -> None:
    importlib.import_module("matplotlib").use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    unit, figures = _SHOWN[name]
    figure, axes = pyplot.subplots(1, len(figures), figsize=(3.4 * len(figures), 3.2))
    for axis, (what, (title, _)) in zip(axes, figures.items(), strict=True):
        for engine, sizes in curve["engines"].items():
            places = sorted(map(int, sizes))
            every = [sizes[str(place)][what] for place in places]
            axis.plot(
                places, [statistics.median(one) for one in every], "o-", label=engine, color=_COLOURS[engine]
            )
            low, high = [min(one) for one in every], [max(one) for one in every]
            axis.fill_between(places, low, high, color=_COLOURS[engine], alpha=0.15)
        axis.set_xscale("log")
        axis.set_ylim(bottom=0)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(unit, fontsize=8)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(figure)


if __name__ == "__main__":
    write(json.loads((REPO / VALUES).read_text(encoding="utf-8")), REPO)
