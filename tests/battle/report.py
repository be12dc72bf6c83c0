"""What a leg came to, as a row; and all legs of a run as tables, one an engine."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.battle.fight import Leg
from tests.battle.verdict import Fault, Verdict

RESULTS = Path(__file__).parents[2] / "docs" / "explanation" / "battle-results.md"

TITLES = {
    "redis": "Redis, one server with an append-only file",
    "sentinel": "Redis with Sentinel",
    "cluster": "Redis Cluster",
    "sqlite": "SQLite",
    "rabbitmq": "RabbitMQ: events, each to two services",
    "stock": "For comparison: the same with kombu's own Redis transport",
}
COLUMNS = (
    "workers", "submitted", "lost", "duplicated", "attributed", "of these starved", "unattributed",
    "kills", "store faults",
    "wait p50", "p95", "p99", "max", "recovery p50", "max", "store back, max", "left behind",
    "why they ended twice",
)  # fmt: skip
_CREWS = {"native": "native", "prefork": "Celery, prefork", "threads": "Celery, threads"}
_BLOWS = ("hard", "cold", "warm", "grace")

#: A leg as it is kept: plain values.
Figures = dict[str, Any]


def figures(leg: Leg, verdict: Verdict, faults: Sequence[Fault]) -> Figures:
    kills = sum(verdict.faults[kind] for kind in _BLOWS)
    return {
        "leg": leg.name,
        "submitted": verdict.submitted,
        "lost": len(verdict.lost),
        "duplicated": len(verdict.duplicated),
        "attributed": verdict.attributed,
        "starved": verdict.starved,
        "unattributed": len(verdict.unattributed),
        "causes": dict(verdict.causes),
        "again": dict(verdict.again),
        "kills": kills,
        "faults": dict(verdict.faults),
        "hurts": sum(verdict.faults.values()) - kills,
        "waits": [percentile(verdict.waits, q) for q in (0.5, 0.95, 0.99, 1.0)],
        "recoveries": [percentile(verdict.recoveries, q) for q in (0.5, 1.0)],
        "back": max(verdict.returns, default=0.0),
        "left": verdict.left,
        "doubled": len(verdict.doubled) if leg.guarded else None,
        "complaints": verdict.complaints,
        "blows": [fault._asdict() for fault in faults],
        "details": [*verdict.unattributed[:20], *verdict.lost[:20]],
    }


def percentile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def row(leg: Leg, found: Figures) -> list[str]:
    counts = ("submitted", "lost", "duplicated", "attributed", "starved", "unattributed", "kills", "hurts")
    crew = _CREWS[leg.crew]
    if leg.guarded:
        crew += f", SQL guard: {found['doubled']} effects doubled"
    left = ", ".join(f"{count} {where}" for where, count in found["left"].items() if count)
    return [
        crew,
        *(f"{found[name]:,}" for name in counts),
        *(f"{wait * 1_000:,.0f} ms" for wait in found["waits"]),
        *(f"{span:.1f} s" for span in found["recoveries"]),
        f"{found['back']:.1f} s",
        left or "nothing",
        _told(found["causes"]),
    ]


def _told(causes: Mapping[str, int]) -> str:
    """The most frequent first."""
    ordered = sorted(causes.items(), key=lambda each: (-each[1], each[0]))
    return "; ".join(f"{count} {cause}" for cause, count in ordered) or "–"


def tables(legs: Sequence[Leg], results: Mapping[str, Figures]) -> str:
    """Those legs that are done, one table an engine."""
    parts = []
    for store, title in TITLES.items():
        rows = [row(leg, results[leg.name]) for leg in legs if leg.store == store and leg.name in results]
        if rows:
            lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
            parts.append(f"#### {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(parts)


def summary(legs: Sequence[Leg], results: Mapping[str, Figures]) -> str:
    ours = [results[leg.name] for leg in legs if leg.store != "stock" and leg.name in results]
    total = {name: sum(found[name] for found in ours) for name in ("submitted", "lost", "kills", "hurts")}
    doubles = {name: sum(found[name] for found in ours) for name in ("duplicated", "unattributed")}
    mean = doubles["duplicated"] / max(1, total["kills"])
    kinds: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for found in ours:
        kinds.update(found["faults"])
        causes.update(found["causes"])
    ends = ", ".join(f"{kinds[kind]} {kind}" for kind in _BLOWS)
    hurts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()) if kind not in _BLOWS)
    return (
        f"Together, without the comparison: {total['submitted']:,} tasks, {total['lost']} lost; "
        f"{total['kills']} workers ended ({ends}), {total['hurts']} faults of stores ({hurts}); "
        f"{doubles['duplicated']} ended twice ({mean:.2f} for each worker that was ended), "
        f"{doubles['unattributed']} without a reason. Why: {_told(causes)}."
    )


def machine() -> str:
    redis = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False).stdout
    rabbit = next((folder.name.partition("-")[2] for folder in rabbit_folders()), "none")
    return (
        f"{datetime.now(UTC).date()}; {len(os.sched_getaffinity(0))} cores, "
        f"Python {platform.python_version()}, "
        f"Celery {version('celery')}, kombu {version('kombu')}, redis-py {version('redis')}, "
        f"Redis {redis.partition('v=')[2].split(' ')[0]}, SQLite {sqlite3.sqlite_version}, RabbitMQ {rabbit}"
    )


def tree() -> str:
    """Which commit of this repository is at work here, and whether something was changed since."""
    asked = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    told = subprocess.run(asked, cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "no-commit"


def rabbit_folders() -> list[Path]:
    """Where Debian has it; its version is in the name."""
    return sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))


def record(text: str) -> None:
    """Append it to the documentation."""
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(f"\n{text}")
