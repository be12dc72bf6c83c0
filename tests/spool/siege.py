"""A battle about a Redis whose clients share a spool: processes, ledgers and judge as in tests/redis."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import postroom
from postroom.room import Room
from tests.chaos.battle import _is_drained
from tests.chaos.load import QUEUES
from tests.chaos.verdict import Outage, Verdict, judge
from tests.redis.fault_siege import Siege

#: Longer than any outage here, so that nobody loses a message because Redis was away (seconds).
LEASE = 6.0
#: So long after Redis is there again a process may still answer for it, on a very busy machine (seconds).
_RETURN = 20.0


class SpoolSiege(Siege):
    """Two producers and three workers of one machine."""

    def __init__(self, folder: Path, url: str) -> None:
        self._spool = f"sqlite:///{folder / 'spool.db'}"
        # A unique key is what a spool cannot promise; what is remembered it may not work on.
        # Who is killed refuses at once; who is slow, on a busy machine, is not away.
        patience = {"POSTROOM_HEALTH_CHECK_TIMEOUT": "30s"}
        environ = {"POSTROOM_SPOOL": self._spool, "BATTLE_KEYED": "0", **patience}
        # While Redis is full, what is in the spool has to wait: here it is seldom.
        super().__init__(folder, url, lease=LEASE, remember="0s", capacity=1_000, environ=environ)
        #: How long after Redis was back all was moved over, at most (seconds).
        self.moved = 0.0

    @contextlib.contextmanager
    def away(self, forgets: float = 0.0) -> Iterator[None]:
        """Redis is away, and is back when the block ends; then until the spool is empty.

        It begins when Redis is gone already: whatever is accepted from then on is the spool's to keep.
        """
        began = time.monotonic()
        yield
        over = time.monotonic()
        self.outages.append(Outage(began, over, forgets, owes=_RETURN))
        self._ledger.note("outage", "-", began, forgets)
        with postroom.open(self._spool) as spool:
            self._wait_slowly(lambda: _is_empty(spool))
        self.moved = max(self.moved, time.monotonic() - over)

    def until_worked_here(self, count: int) -> None:
        """Let them work until so many more messages of the spool are done."""
        enough = self._acked_here() + count
        self._wait_slowly(lambda: self._acked_here() >= enough)

    def _acked_here(self) -> int:
        return sum(line.word == "acked" and line.rest[0].startswith("spool:") for line in self.lines())

    def drain(self) -> None:
        """What is in the spool goes to Redis, and never the other way: so the spool is looked at first."""
        self.wait_for(self._all_at_work)
        self._end("producer")
        with postroom.open(self.url) as room, postroom.open(self._spool) as spool:
            self._wait_slowly(lambda: _is_empty(spool) and _is_empty(room))
        self._end("worker")

    def judged(self, name: str) -> Verdict:
        """What it has cost; nothing is wrong, and nobody complained loudly."""
        _, dead = self.remains()
        verdict = judge(self.lines(), self.fates(), dead, LEASE, self.outages, self.history())
        lost, again = verdict.counts["lost, forgotten"], {**verdict.causes}
        away = max(outage.over - outage.began for outage in self.outages)
        here = self._acked_here()
        print(f"\n{name}, with a spool: {len(verdict.begun)} messages, {here} of them done from the spool")
        print(f"  {lost} lost by Redis, begun again: {again}")
        print(f"  away {away:.1f} s, everything moved over {self.moved:.1f} s later")
        assert not verdict.wrong, "\n".join(verdict.wrong[:20])
        for fighter in self.fighters:
            said = fighter.log.read_text()
            assert "Traceback" not in said, f"{fighter.name}: {said[-3_000:]}"
        return verdict


def _is_empty(room: Room) -> bool:
    return all(_is_drained(room.queue(name).stats()) for name in QUEUES)
