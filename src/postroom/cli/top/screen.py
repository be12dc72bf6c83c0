"""How a picture is shown: live on a terminal, plain lines or JSON in a pipe."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from postroom.cli import screen
from postroom.cli.top.picture import Picture, QueueRow

COLUMNS = (
    "queue", "ready", "scheduled", "processing", "overdue", "dead", "in/s", "out/s", "oldest", "p95", "sla",
)  # fmt: skip


class Screen(screen.Screen, Protocol):
    """What a picture is shown on."""

    def show(self, picture: Picture) -> None:
        """The next picture."""

    def wait(self, seconds: float) -> bool:
        """Until it is time for the next; False if the person has seen enough."""


def choose(*, once: bool, json: bool) -> Screen:
    if json:
        return JsonScreen()
    if sys.stdout.isatty() and sys.stdin.isatty() and not once:
        from postroom.cli.top.live import LiveScreen

        return LiveScreen()
    return PlainScreen()


class PlainScreen(screen.Lines):
    """A line about the room, and one for each queue."""

    def show(self, picture: Picture) -> None:
        from postroom.cli import output

        print(heading(picture))
        if picture.queues:
            output.table(COLUMNS, [cells(row) for row in picture.queues])
        for name, count in list(picture.workers.items())[:20]:
            print(f"worker  {name}  holds {count}")
        print(flush=True)

    def wait(self, seconds: float) -> bool:
        time.sleep(seconds)
        return True


class JsonScreen(PlainScreen):
    """One object a look."""

    def show(self, picture: Picture) -> None:
        print(msgspec.json.encode(picture).decode(), flush=True)


def heading(picture: Picture) -> str:
    at = datetime.fromtimestamp(picture.at, UTC).strftime("%H:%M:%S")
    if picture.error:
        return f"{at} UTC  {picture.url}  DOWN: {picture.error}"
    keeper = "keeper leads" if picture.keeper else "NO KEEPER"
    spool = f"  spooled {picture.spooled:,}" if picture.spooled else ""
    workers = f"{len(picture.workers)} busy worker{'' if len(picture.workers) == 1 else 's'}"
    return f"{at} UTC  {picture.url}  {picture.latency:g} ms  {keeper}  {workers}{spool}"


def cells(row: QueueRow) -> tuple[str, ...]:
    name = f"{row.queue} (paused)" if row.paused else row.queue
    counts = (row.ready, row.scheduled, row.processing, row.overdue, row.dead)
    rates = tuple("-" if rate is None else f"{rate:,.1f}" for rate in (row.put_rate, row.ack_rate))
    spans = (span(row.oldest or None), span(row.p95), span(row.target))
    return name, *(f"{count:,}" for count in counts), *rates, *spans


def span(span: int | None) -> str:
    """A span as short as a column wants it; - for none."""
    if span is None:
        return "-"
    if span < 1_000:
        return f"{span}ms"
    if span < 120_000:
        return f"{span / 1_000:.1f}s"
    return f"{span / 60_000:.0f}m" if span < 7_200_000 else f"{span / 3_600_000:.0f}h"
