"""The live view: a table that redraws in place, on a screen of its own, until q or Ctrl-C."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Any, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from postroom.cli.top.picture import Picture, QueueRow
from postroom.cli.top.screen import COLUMNS, cells, heading

#: Lines beside the rows of the table.
_FRAME = 7
#: How many workers are named, at most.
_WORKERS = 8
_COLOURS = {
    "ready": "cyan", "scheduled": "blue", "processing": "yellow", "overdue": "red", "dead": "red",
    "in/s": "green", "out/s": "green",
}  # fmt: skip
#: Columns that give way on a narrow terminal, and from which width on they are there.
_LESS = (("sla", 112), ("in/s", 104), ("scheduled", 98), ("overdue", 86), ("oldest", 76))


class LiveScreen:
    """Takes the terminal's other screen and single keys, and gives both back."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, screen=True)
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def show(self, picture: Picture) -> None:
        self._live.update(view(picture, self._console.width, self._console.height), refresh=True)

    def wait(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([sys.stdin], [], [], left)[0]:
                keys = os.read(sys.stdin.fileno(), 100)
                if not keys or b"q" in keys.lower():
                    return False
        return True


def view(picture: Picture, width: int, height: int) -> Group:
    """All of the screen."""
    style = "bold white on red" if picture.error else "bold" if picture.keeper else "bold yellow"
    head = Text(f" {heading(picture)}", style=style, no_wrap=True, overflow="ellipsis")
    workers = _workers(picture)
    rows = max(1, height - _FRAME - len(workers))
    foot = Text(" q ends", style="dim")
    if len(picture.queues) > rows:
        foot.append(f" · {len(picture.queues) - rows} more queues")
    return Group(head, _table(_first(picture.queues, rows), width), *workers, foot)


def _first(queues: list[QueueRow], rows: int) -> list[QueueRow]:
    """Those with something to see, if there is no place for all; in the order of their names."""
    busy = sorted(queues, key=lambda row: -(row.processing + row.ready + row.overdue + row.dead))
    kept = {row.queue for row in busy[:rows]}
    return [row for row in queues if row.queue in kept]


def _table(queues: list[QueueRow], width: int) -> Table:
    hidden = {name for name, least in _LESS if width < least}
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", expand=True, collapse_padding=True)
    for column in COLUMNS:
        if column not in hidden:
            side: Any = "left" if column == "queue" else "right"
            table.add_column(column, justify=side, no_wrap=True, overflow="ellipsis")
    for row in queues:
        named = zip(COLUMNS, cells(row), strict=True)
        table.add_row(*(_cell(name, text, row) for name, text in named if name not in hidden))
    return table


def _cell(name: str, text: str, row: QueueRow) -> Text:
    if name == "queue":
        return Text(text, style="yellow" if row.paused else "")
    if name == "p95" and row.p95 is not None and row.target is not None:
        return Text(text, style="green" if row.p95 <= row.target else "bold red")
    return Text(text, style="dim" if text in ("0", "-", "0.0") else _COLOURS.get(name, ""))


def _workers(picture: Picture) -> list[Text]:
    named = list(picture.workers.items())[:_WORKERS]
    lines = [Text.assemble("   ", (name, "cyan"), f"  holds {count:,}") for name, count in named]
    if len(picture.workers) > _WORKERS:
        lines.append(Text(f"   and {len(picture.workers) - _WORKERS} more", style="dim"))
    return [Text(" Busy workers", style="bold"), *lines] if lines else []
