"""Pictures of the race: bars for the medians, and lines from the least to the most."""

from __future__ import annotations

import importlib
import statistics
from pathlib import Path
from typing import Any

from bench.race.field import FIELD

_SHOWN = {
    "race-speed.png": (
        ("enqueue", "rate", "put one by one (jobs/s)"),
        ("bulk", "rate", "put many in a call (jobs/s)"),
        ("drain", "rate", "drain of no-ops, one process (jobs/s)"),
    ),
    "race-prompt.png": (
        ("latency", "p50", "idle worker: put to begin, p50 (ms)"),
        ("delay", "p50", "delayed job: late by, p50 (ms)"),
    ),
    "race-keeps.png": (
        ("memory", "bytes", "a waiting job of 200 bytes takes (bytes)"),
        ("priority", "position", "place of an urgent job behind 1,000"),
        ("crash", "back", "back after its worker was killed (s)"),
    ),
}
_OURS, _OTHERS = "#2f6f4f", "#9aa5b1"


def draw(found: dict[str, Any], folder: Path) -> None:
    for name, panels in _SHOWN.items():
        shown = [panel for panel in panels if panel[0] in found["disciplines"]]
        if shown:
            _figure(found, shown, folder / name)


def _figure(found: dict[str, Any], panels: list[tuple[str, str, str]], path: Path) -> None:
    importlib.import_module("matplotlib").use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(1, len(panels), figsize=(6.5 * len(panels), 4.6), squeeze=False)
    for axis, (discipline, what, title) in zip(axes[0], panels, strict=True):
        _panel(axis, found["disciplines"][discipline]["runners"], what)
        axis.set_title(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def _panel(axis: Any, runners: dict[str, dict[str, list[float]]], what: str) -> None:
    """Who was early has no bar: the axis is logarithmic, and to be early is not to be punctual."""
    shown = [one for one in reversed(FIELD) if runners.get(one.slug, {}).get(what)]
    for place, runner in enumerate(shown):
        values = runners[runner.slug][what]
        if min(values) <= 0:
            axis.text(
                0.01,
                place,
                " begins some early",
                transform=axis.get_yaxis_transform(),
                va="center",
                fontsize=8,
            )
            continue
        axis.barh(place, statistics.median(values), color=_OURS if runner.is_ours else _OTHERS)
        axis.plot([min(values), max(values)], [place, place], color="black", linewidth=1.2)
    stores = {"redis": "", "sqlite": " (SQLite)", "postgres": " (PostgreSQL)"}
    axis.set_yticks(range(len(shown)), [one.name + stores[one.store] for one in shown], fontsize=9)
    axis.set_xscale("log")
    axis.grid(axis="x", alpha=0.3)
