"""How every command shows things: a table to people, aligned text to a pipe, JSON to programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

Row = Sequence[str]


def table(columns: Row, rows: Sequence[Row]) -> None:
    """Print a table: drawn on a terminal, in a pipe plain and aligned, one line a row."""
    if sys.stdout.isatty():
        _draw(columns, rows)
    else:
        for row in _aligned([columns, *rows]):
            print(row)


def as_json(value: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2))


def say(text: str) -> None:
    """Talk to the person in front of the screen; never part of the data."""
    print(text, file=sys.stderr)


def _aligned(rows: Sequence[Row]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [line.rstrip() for line in padded]


def _draw(columns: Row, rows: Sequence[Row]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for number, column in enumerate(columns):
        drawn.add_column(column, style="" if number else "cyan", overflow="fold")
    for row in rows:
        drawn.add_row(*map(Text, row))  # Text: brackets in a cell are not markup
    Console().print(drawn)
