"""The demo on a terminal: a live table, the newest events below it, the verdicts at the end."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from postroom.cli.demo.checks import Check
from postroom.cli.demo.feed import Line
from postroom.cli.demo.screen import WHAT_NEXT, Picture, done, summary
from postroom.stats import QueueStats

_COLUMNS = ("ready", "scheduled", "processing", "overdue", "dead", "done", "oldest")
_COLOURS = {"ready": "cyan", "scheduled": "blue", "processing": "yellow", "overdue": "red", "dead": "red"}
_VERDICTS = {"PASS": "bold green", "FAIL": "bold red"}
#: From this width every promise fits into one line.
_WIDE = 98
#: Everything on the screen but the queues and the lines of the story.
_FRAME = 8


class LiveScreen:
    """Redraws in place; when it ends, the picture gives way to the result."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._lines: deque[Line] = deque(maxlen=100)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, picture: Picture) -> None:
        self._lines.extend(picture.news)
        room = max(4, self._console.height - _FRAME - len(picture.queues))
        lines = list(self._lines)[-room:]
        whole = Group(_heading(picture), _queues(picture.queues), _story(lines, room))
        self._live.update(whole, refresh=True)

    def end(self, picture: Picture, checks: list[Check], *, interrupted: bool) -> None:
        print_ = self._console.print
        print_(_queues(picture.queues))
        print_(_verdicts(checks, interrupted, wide=self._console.width >= _WIDE))
        verdicts = {check.verdict(interrupted) for check in checks}
        colour = "red" if "FAIL" in verdicts else "yellow" if "SKIP" in verdicts else "green"
        print_(Text(f" {summary(checks, interrupted)} ({picture.elapsed:.1f} s)", style=f"bold {colour}"))
        print_(Text("\n What next", style="bold"))
        for command, words in WHAT_NEXT:
            print_(Text.assemble(f"   {command:29}", (words, "dim")))


def _heading(picture: Picture) -> Group:
    words = f" {picture.elapsed:.0f} of about {picture.seconds:g} s · Ctrl-C stops"
    line = Text.assemble((" Postroom at work", "bold"), (f" ·{words}", "dim"))
    bar = ProgressBar(total=picture.seconds, completed=min(picture.elapsed, picture.seconds), width=None)
    return Group(line, bar)


def _queues(queues: list[QueueStats]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", expand=True, collapse_padding=True)
    table.add_column("queue", no_wrap=True, min_width=15)
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for queue in queues:
        table.add_row(_name(queue), *(_number(queue, column) for column in _COLUMNS))
    return table


def _name(queue: QueueStats) -> Text:
    return Text.assemble(queue.queue, ("  paused", "yellow") if queue.paused else "")


def _number(queue: QueueStats, column: str) -> Text:
    if column == "oldest":
        return Text(f"{queue.oldest / 1_000:.1f} s", "") if queue.oldest else Text("–", "dim")
    count = done(queue) if column == "done" else getattr(queue, column)
    return Text(str(count), _COLOURS.get(column, "green") if count else "dim")


def _story(lines: list[Line], height: int) -> Panel:
    text = Text(no_wrap=True, overflow="ellipsis")
    for line in lines:
        text.append(f"{line.at:5.1f} s  ", "dim")
        if line.queue:
            text.append(f"{line.queue:9} ", "cyan").append(f"{line.text}\n", "dim")
        else:
            text.append(f"{line.text}\n", "bold")
    text.rstrip()
    return Panel(text, title="what happens", title_align="left", border_style="dim", height=height + 2)


def _verdicts(checks: list[Check], interrupted: bool, wide: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    table.add_column("")
    table.add_column("what was promised", no_wrap=wide)
    table.add_column("what the ledger says")
    for check in checks:
        word = check.verdict(interrupted)
        table.add_row(Text(word, _VERDICTS.get(word, "dim")), check.promise, Text(check.evidence, "dim"))
    return table
