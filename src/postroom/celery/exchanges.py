"""Exchanges and bindings, kept as records of the store: every process knows what any process declared.

A binding is one record under (exchange; routing key, queue), so a direct publish finds its queues with one
question, and the binding of a transient queue expires by itself unless its consumer keeps it alive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from postroom.limits import MAX_BATCH
from postroom.logs import Record
from postroom.records import Records

_EXCHANGES = "celery.exchange"
_BINDINGS = "celery.binding"
#: Bindings of one exchange that are looked at, at most.
_MOST_PAGES = 100
_SEP = "\n"


class Binding(NamedTuple):
    routing_key: str
    queue: str


class Exchanges:
    """What is declared in the store, by name."""

    def __init__(self, records: Records) -> None:
        self._records = records
        #: Types, which never change; an exchange that is deleted and made again is seen by its maker.
        self._types: dict[str, str] = {}
        #: What this process has bound for good: exchange → bindings.
        self._bound: dict[str, set[Binding]] = {}

    # --- exchanges --------------------------------------------------------------------------

    def declare(self, exchange: str, type_: str) -> None:
        if self._types.get(exchange) == type_:
            return
        found = self._records.get(_EXCHANGES, exchange)
        if found is None or found.value.decode() != type_:
            self._records.put(_EXCHANGES, exchange, type_.encode())
        self._types[exchange] = type_

    def type_of(self, exchange: str) -> str | None:
        """direct, topic or fanout; None for one that nobody declared."""
        known = self._types.get(exchange)
        if known is None and (found := self._records.get(_EXCHANGES, exchange)):
            known = self._types[exchange] = found.value.decode()
        return known

    def delete(self, exchange: str) -> None:
        self._types.pop(exchange, None)
        self._records.delete(_EXCHANGES, exchange)

    def names(self) -> list[str]:
        return [record.key for record in self._records.list(_EXCHANGES, limit=MAX_BATCH)]

    # --- bindings ---------------------------------------------------------------------------

    def bind(self, exchange: str, binding: Binding, ttl: int | None = None) -> None:
        """Bind, for `ttl` (ms) unless it is said again by then."""
        self._records.put(_kind(exchange), _key(binding), b"", ttl=ttl)
        if ttl is None:
            self._bound.setdefault(exchange, set()).add(binding)

    def unbind(self, exchange: str, binding: Binding) -> None:
        self._bound.get(exchange, set()).discard(binding)
        self._records.delete(_kind(exchange), _key(binding))

    def say_what_is_missing(self) -> None:
        """Say again what the store was told of and knows no more: one question while it knows all."""
        if not self._types:
            return
        known = {record.key for record in self._pages(_EXCHANGES, "")}
        for exchange in self._types.keys() - known:
            self._say(exchange)

    def heal(self, exchange: str) -> bool:
        """Say it again of one exchange, if the store knows it no more; whether we had bound anything to it.

        What others have unbound stays so: an exchange that is known has lost nothing.
        """
        if exchange not in self._types or self._records.get(_EXCHANGES, exchange):
            return False
        self._say(exchange)
        return bool(self._bound.get(exchange))

    def _say(self, exchange: str) -> None:
        self._records.put(_EXCHANGES, exchange, self._types[exchange].encode())
        for binding in list(self._bound.get(exchange, ())):
            self._records.put(_kind(exchange), _key(binding), b"")

    def bindings(self, exchange: str) -> list[Binding]:
        return [_binding(record) for record in self._pages(_kind(exchange), "")]

    def queues_of(self, exchange: str, routing_key: str) -> list[str]:
        """The queues that a direct exchange delivers to under this key: one question."""
        start = routing_key + _SEP
        found = self._records.list(_kind(exchange), after=start, limit=MAX_BATCH)
        return [record.key[len(start) :] for record in found if record.key.startswith(start)]

    def matching(self, exchange: str, routing_key: str) -> list[str]:
        """The queues that a topic exchange delivers to under this key, each once."""
        found = (b.queue for b in self.bindings(exchange) if matches(b.routing_key, routing_key))
        return list(dict.fromkeys(found))

    def _pages(self, kind: str, after: str) -> Iterator[Record]:
        for _ in range(_MOST_PAGES):
            page = self._records.list(kind, after=after, limit=MAX_BATCH)
            yield from page
            if len(page) < MAX_BATCH:
                return
            after = page[-1].key


def _kind(exchange: str) -> str:
    return f"{_BINDINGS}/{exchange}"


def _key(binding: Binding) -> str:
    return f"{binding.routing_key}{_SEP}{binding.queue}"


def _binding(record: Record) -> Binding:
    routing_key, _, queue = record.key.partition(_SEP)
    return Binding(routing_key, queue)


def matches(pattern: str, routing_key: str) -> bool:
    """As AMQP has it: words between dots, * is one of them, # any number."""
    return _compiled(pattern).fullmatch(f".{routing_key}") is not None


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    expression = ""
    for word in pattern.split("."):
        if word == "#":
            expression += r"(?:\.[^.]*)*"
        elif word == "*":
            expression += r"\.[^.]+"
        else:
            expression += r"\." + re.escape(word)
    return re.compile(expression)
