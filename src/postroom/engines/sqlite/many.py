"""Statements about many messages at once: one call of SQLite instead of one for each of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TypeVar

from postroom.engines.sqlite.sql import SQL

#: How many messages one statement adds, looks up or changes.
MANY = 100

T = TypeVar("T")


def portions(items: list[T]) -> Iterator[list[T]]:
    """All of them, in lists of one or of `MANY`, some twice, for statements that are prepared once."""
    if len(items) == 1:
        yield items
        return
    for first in range(0, len(items), MANY):
        some = items[first : first + MANY]
        yield some + some[:1] * (MANY - len(some))


@functools.cache
def about(statement: str, count: int) -> str:
    """The statement about so many ids or keys, which come last in it."""
    return SQL[statement].replace("(many)", f"({','.join('?' * count)})")


@functools.cache
def adding(count: int) -> str:
    """The statement that adds so many plain messages, all or none."""
    return SQL["add_plain"] + f", {SQL['plain_values']}" * (count - 1)
