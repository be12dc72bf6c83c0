"""The tables of the race, and where they are published: both come from the values that were kept alone.

`python -m bench.race.page` writes the published pages again from the published values.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import report
from bench.race.disciplines import LEASE, PATIENCE
from bench.race.field import FIELD, SLUGS, Runner

REPO = Path(__file__).parents[2]
#: Every value of every round that the documentation shows.
VALUES = Path("bench/race/published.json")
PAGE = Path("docs/explanation/performance.md")
_MARKS = "<!-- race: written by `make race` -->", "<!-- race: end -->"
#: The ones on Redis are compared with us on Redis; those who wait for a disk with us on a file.
_OURS = {"redis": "postroom", "sqlite": "postroom-sqlite", "postgres": "postroom-sqlite"}
_GROUPS = {
    "Redis (`appendonly yes`, `appendfsync everysec`)": ("redis",),
    "A commit that waits for the disk": ("sqlite", "postgres"),
}
#: Who is compared with whom when places are given: ours first, then the others.
_RANKED = {
    **{title.partition(" (")[0]: [_OURS[stores[0]], *(one.slug for one in FIELD if one.store in stores)]
       for title, stores in _GROUPS.items()},
    "Celery": ["celery-postroom", "celery"],
}  # fmt: skip
_STORES = {"redis": "", "sqlite": ", SQLite", "postgres": ", PostgreSQL"}


class _Column:
    """A figure of a discipline, and how it is written."""

    def __init__(
        self, title: str, discipline: str, figure: str, form: str, best: Callable[..., float]
    ) -> None:
        self.title, self.discipline, self.figure, self._form, self.best = (
            title,
            discipline,
            figure,
            form,
            best,
        )

    def values(self, found: dict[str, Any], slug: str) -> list[float]:
        kept = found["disciplines"].get(self.discipline, {"runners": {}})["runners"]
        values: list[float] = kept.get(slug, {}).get(self.figure, [])
        return values

    def cell(self, values: Sequence[float]) -> str:
        least, middle, most = (
            self._form.format(one) for one in (min(values), statistics.median(values), max(values))
        )
        return middle if least == most else f"{middle} [{least}..{most}]"


_RATE, _MS, _WHOLE = "{:,.0f}", "{:,.1f}", "{:,.0f}"
_ENQUEUE = _Column("one by one, /s", "enqueue", "rate", _RATE, max)
_DRAIN = _Column("drain, /s", "drain", "rate", _RATE, max)
_SPEED = (_ENQUEUE, _Column("bulk, /s", "bulk", "rate", _RATE, max), _DRAIN)
_PROMPT = (
    _Column("idle worker p50, ms", "latency", "p50", _MS, min),
    _Column("p99, ms", "latency", "p99", _MS, min),
    _Column("delayed, late p50, ms", "delay", "p50", _MS, min),
    _Column("latest, ms", "delay", "most", _MS, min),
    _Column("early", "delay", "early", _WHOLE, min),
)
_SAFE = (
    _Column("bytes a waiting job", "memory", "bytes", _WHOLE, min),
    _Column("place of the urgent job", "priority", "position", _WHOLE, min),
    _Column("in hand at the kill", "crash", "held", _WHOLE, max),
    _Column(f"not back in {PATIENCE} s, of 12", "crash", "lost", _WHOLE, min),
    _Column("back after, s", "crash", "back", "{:,.1f}", min),
)


def tables(found: dict[str, Any]) -> str:
    """Everything that was measured, as Markdown."""
    notes = _Notes()
    parts = []
    for title, columns, times in (
        ("How fast", _SPEED, (_ENQUEUE, _DRAIN)),
        ("How prompt", _PROMPT, ()),
        ("What it takes, and what it keeps", _SAFE, ()),
    ):
        shown = [column for column in columns if column.discipline in found["disciplines"]]
        if shown:
            parts += [f"### {title}", _table(found, shown, times, notes), _ground(found, shown)]
    return "\n\n".join(
        [*parts, *notes.lines(), "### Who is first", _standings(found), "### The terms", _terms(found)]
    )


class _Notes:
    """Footnotes: one number for one reason."""

    def __init__(self) -> None:
        self._reasons: dict[str, int] = {}

    def mark(self, reason: str) -> str:
        return f"— ({self._reasons.setdefault(reason, len(self._reasons) + 1)})"

    def lines(self) -> Iterator[str]:
        if self._reasons:
            yield "  \n".join(f"({number}) {reason}." for reason, number in self._reasons.items())


def _table(found: dict[str, Any], columns: list[_Column], times: Sequence[_Column], notes: _Notes) -> str:
    headings: list[str] = []
    for column in columns:
        headings += [column.title, *(["Postroom is × as fast"] if column in times else [])]
    lines = [f"| | {' | '.join(headings)} |", f"|---|{'---:|' * len(headings)}"]
    for title, stores in _GROUPS.items():
        runners = [one for one in FIELD if one.store in stores and one.slug in found["versions"]]
        if runners:
            lines.append(f"| *{title}* |{' |' * len(headings)}")
        for runner in runners:
            cells = []
            for column in columns:
                cells.append(_cell(found, column, runner, notes))
                if column in times:
                    cells.append(_times(found, column, runner))
            lines.append(f"| {_name(runner)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _name(runner: Runner) -> str:
    shown = f"{runner.name}{_STORES[runner.store]}"
    return f"**{shown}**" if runner.is_ours else shown


def _cell(found: dict[str, Any], column: _Column, runner: Runner, notes: _Notes) -> str:
    if why := runner.unable.get(column.discipline):
        return notes.mark(why)
    if values := column.values(found, runner.slug):
        return column.cell(values)
    crashes = found["disciplines"][column.discipline]["crashes"]
    if runner.slug in crashes:
        return notes.mark("did not finish, which is not said to be its fault")
    return notes.mark(
        f"nothing that was in hand came back within {PATIENCE} s"
        if column.figure == "back"
        else "not measured"
    )


def _times(found: dict[str, Any], column: _Column, runner: Runner) -> str:
    """The median of the ratios within a round."""
    ours, theirs = (column.values(found, slug) for slug in (_OURS[runner.store], runner.slug))
    if runner.slug == _OURS[runner.store] or not theirs or len(ours) != len(theirs):
        return ""
    return f"{statistics.median(us / them for us, them in zip(ours, theirs, strict=True)):.2f}"


def _ground(found: dict[str, Any], columns: list[_Column]) -> str:
    disciplines = dict.fromkeys(column.discipline for column in columns)
    loads = {name: found["disciplines"][name]["load"] for name in disciplines}
    said = "; ".join(f"{name} {', '.join(map(str, load))}" for name, load in loads.items())
    return f"The load of the machine when each round began (1 minute average): {said}."


def _standings(found: dict[str, Any]) -> str:
    lines = ["| | group | first | Postroom |", "|---|---|---|---|"]
    for column in (*_SPEED, *_PROMPT[:4], *_SAFE[:2], *_SAFE[3:]):
        if column.discipline in found["disciplines"]:
            lines += [
                f"| {column.title} | {group} | {row} |"
                for group, slugs in _RANKED.items()
                if (row := _standing(found, column, slugs))
            ]
    return "\n".join(lines)


def _standing(found: dict[str, Any], column: _Column, slugs: Sequence[str]) -> str:
    """By medians; but who was ahead of us in one round and behind in another is level with us.

    Who begins delayed jobs early has no place among the punctual.
    """
    every = {
        slug: values
        for slug in slugs
        if (values := column.values(found, slug))
        and not (column.discipline == "delay" and _early(found, slug))
    }
    ours = every.pop(slugs[0], None)
    if ours is None:
        return ""
    best = column.best(map(statistics.median, [ours, *every.values()]))
    first = [slug for slug, values in every.items() if statistics.median(values) == best]
    first += [slugs[0]] if statistics.median(ours) == best else []
    ahead = [slug for slug, values in every.items() if _sides(column, ours, values) == {True}]
    level = [slug for slug, values in every.items() if len(_sides(column, ours, values)) > 1]
    place = [f"{len(ahead) + 1}. of {len(every) + 1}"] if ahead else []
    place += [f"level with {_names(level)}"] if level else []
    middle = column.cell([statistics.median(ours)])
    return f"{_names(first)} ({column.cell([best])}) | {', '.join(place) or 'first'} ({middle})"


def _early(found: dict[str, Any], slug: str) -> bool:
    return statistics.median(_PROMPT[4].values(found, slug) or [0]) > 0


def _sides(column: _Column, ours: Sequence[float], theirs: Sequence[float]) -> set[bool]:
    """Of each round whether they were ahead; an equal one is both. By medians, if not all ran all rounds."""
    if len(ours) != len(theirs):
        ours, theirs = [statistics.median(ours)], [statistics.median(theirs)]
    sides = set()
    for us, them in zip(ours, theirs, strict=True):
        sides |= {column.best(us, them) != us} if us != them else {True, False}
    return sides


def _names(slugs: Sequence[str]) -> str:
    return ", ".join(_name(SLUGS[slug]) for slug in slugs)


def _terms(found: dict[str, Any]) -> str:
    lines = ["| | version | settings |", "|---|---|---|"]
    for runner in FIELD:
        if runner.slug in found["versions"]:
            lines.append(f"| {_name(runner)} | {found['versions'][runner.slug]} | {runner.terms} |")
    told = (
        f"For the kill, whoever can be told trusts a silent worker for {LEASE} s instead of the time above."
    )
    return "\n".join([*lines, "", f"{told} {report.machine_line(found['machine'])}."])


def publish(found: dict[str, Any], root: Path) -> None:
    """Let these disciplines replace what was published of them, and write everything again."""
    path = root / VALUES
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = {
        "machine": found["machine"],
        "versions": before.get("versions", {}) | found["versions"],
        "disciplines": before.get("disciplines", {}) | _without_words(found["disciplines"]),
    }
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    write(kept, root)


def _without_words(disciplines: dict[str, Any]) -> dict[str, Any]:
    """What an exception says may name this machine: its kind is enough."""
    return {
        name: one | {"crashes": {slug: said.partition(":")[0] for slug, said in one["crashes"].items()}}
        for name, one in disciplines.items()
    }


def write(found: dict[str, Any], root: Path) -> None:
    from bench.race import plots

    path = root / PAGE
    path.write_text(written(path.read_text(encoding="utf-8"), found), encoding="utf-8")
    plots.draw(found, root / "docs" / "images")


def written(text: str, found: dict[str, Any]) -> str:
    """The page with these tables."""
    return report.between(text, *_MARKS, tables(found))


if __name__ == "__main__":
    write(json.loads((REPO / VALUES).read_text(encoding="utf-8")), REPO)
