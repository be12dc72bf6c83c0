"""A ledger beside the store: what each process did, in its own words, readable after any death.

One file a process, only ever appended to. A line is in the file when `note` returns, whatever becomes of
the process a moment later. The clock is the machine's monotonic one, which is the same for all processes.

A producer writes:
    intend id batch due key before the put; `due`: the earliest moment at which it may be worked on; key or -
    accepted id span        the put returned, after so many seconds, and made this message
    merged id holder        the put returned: another message holds its unique_key
    refused id              the put said that nothing was put
    busy id                 the store was held by somebody for too long; the same put is tried again
    unsure id               no answer came, so it may have been put; the same put is tried again
    repeated id             the put found a message of this id: an earlier call without an answer had made it
A worker writes:
    claimed id token number asked   the engine gave it out; `asked`: the moment before the call
    begin id token          its handler runs
    end id token            its handler is done; the ack is sent after this line
    failed id token         its handler asked for another attempt
    acked id token asked    the engine took the ack; `asked`: the moment before the call
    late id token outcome   the engine refused the ack: lost or gone
    unheard id token word   no answer came, so it may have been acked, retried or returned; asked again later
    lost id token           the engine refused a heartbeat: somebody else has it, or will
    retried id token how    the engine took it back for another attempt, if `how` is ok
    returned id token how   the engine took it back unworked (a release), if `how` is ok
    unstarted id token      the engine refused the start of the work: it is, or will be, somebody else's
    wrong id                the body is not what was put
    slow - since            a call to the store, or a moment's sleep, has taken a good part of a lease
    poison id token         this message kills its worker now
Who looks on writes, beside what it puts itself:
    killed - name           this process is no more; or stopped, and goes-on
    outage - began forgets  the store was away since then, and may have forgotten so many seconds before
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

Note = tuple[object, ...]


class Line(NamedTuple):
    """One line: who wrote it, when, which word about which message, and the rest."""

    by: str
    at: float
    word: str
    id: str = ""
    rest: tuple[str, ...] = ()


class Ledger:
    """The file of one process; threads may share it, because each note is one write."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, *words: object) -> None:
        self.note_all([words])

    def note_all(self, notes: Iterable[Note]) -> None:
        at = f"{time.monotonic():.6f}"
        if text := "".join(" ".join((at, *map(str, note))) + "\n" for note in notes):
            os.write(self._file, text.encode())


def read(path: Path) -> Iterator[Line]:
    """All lines but one that was broken off: a kill may come in the middle of a long write."""
    for text in path.read_text().splitlines(keepends=True):
        if text.endswith("\n"):
            yield parse(path.stem, text)


def parse(by: str, text: str) -> Line:
    at, word, *rest = text.split()
    return Line(by, float(at), word, rest[0] if rest else "", tuple(rest[1:]))
