"""What was found: a table that is plain text and Markdown at once, the machine, and JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.measure import Figure, Result, Target

_HEADINGS = ("what", "median", "min..max", "target", "met")


def table(results: Sequence[Result]) -> str:
    rows = [_HEADINGS, *_rows(results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths) for row in rows]
    # Figures to the right: the colons tell Markdown, the padding everybody else.
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:3])]
    lines.insert(1, _line([*rule, *("-" * width for width in widths[3:])], widths))
    return "\n".join(lines)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if column in (1, 2) else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return f"| {' | '.join(cells)} |"


def _rows(results: Sequence[Result]) -> Iterator[tuple[str, str, str, str, str]]:
    for result in results:
        for index, figure in enumerate(result.case.figures):
            values = result.of(index)
            target = _target(figure.target, figure.unit) if figure.target else ""
            if not values:
                yield figure.name, "crashed" if result.crash else "no time", "", target, ""
                continue
            low, high = _number(min(values), figure.unit), _number(max(values), figure.unit)
            middle = _quantity(figure.summary(values), figure.unit)
            yield figure.name, middle, f"[{low}..{high}]", target, _met(figure, values)


def _met(figure: Figure, values: Sequence[float]) -> str:
    if figure.target is None:
        return ""
    return "yes" if figure.target.met(figure.summary(values)) else "no"


def _target(target: Target, unit: str) -> str:
    sign = "≥" if target.at_least else "≤"
    limit = f"{target.limit:,g}" if target.limit < 1_000 else f"{target.limit:,.0f}"
    return f"{sign} {limit}{_suffix(unit)}"


def _quantity(value: float, unit: str) -> str:
    return _number(value, unit) + _suffix(unit)


def _suffix(unit: str) -> str:
    return f" {unit}" if unit in ("ms", "µs", "×", "bytes", "KB", "MB") else unit


def _number(value: float, unit: str) -> str:
    if not unit:  # so many, or so many for each of something: then with its fraction, if there is one
        return f"{value:,.2f}".removesuffix(".00")
    return f"{value:,.2f}" if unit in ("ms", "×", "MB") else f"{value:,.0f}"


def machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def machine_line(found: dict[str, Any]) -> str:
    return "{cores} cores ({processor}), {python}, {system}, load {load} at the start".format(**found)


def file_system(folder: Path) -> str:
    """Its kind, such as ext4; empty where the system does not tell."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    kinds = {Path(mount.split()[1]): mount.split()[2] for mount in mounts}  # a later mount hides an earlier
    return next((kinds[place] for place in (folder, *folder.parents) if place in kinds), "")


def between(text: str, begin: str, end: str, new: str) -> str:
    """The page with this between its two marks, which it must have."""
    before, first, rest = text.partition(begin)
    _, second, after = rest.partition(end)
    assert first and second, f"the page has no {begin} and {end}"
    return f"{before}{begin}\n\n{new}\n\n{end}{after}"


def as_json(results: Sequence[Result], **context: Any) -> dict[str, Any]:
    """Everything of one engine, every value of every round included."""
    figures = [
        {
            "name": figure.name,
            "unit": figure.unit,
            "value": figure.summary(values) if (values := result.of(index)) else None,
            "values": values,
            "target": _target(figure.target, figure.unit) if figure.target else None,
            "met": figure.target.met(figure.summary(values)) if figure.target and values else None,
            "crash": result.crash or None,
        }
        for result in results
        for index, figure in enumerate(result.case.figures)
    ]
    return {**context, "figures": figures}
