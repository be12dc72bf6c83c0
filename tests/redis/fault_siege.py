"""A battle about a Redis: producers and workers in processes of their own, while the store is hurt.

It is the battle of tests/chaos with another store: the same processes, the same ledgers, the same judge.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import postroom
from postroom.ids import new_id
from postroom.policy import Policy
from postroom.stats import QueueStats
from tests.chaos.battle import Battle, slipped_in
from tests.chaos.load import QUEUES, Work, body_with
from tests.chaos.verdict import History, Outage, Verdict, judge
from tests.redis.servers import PATIENT, Server

#: Longer than the battle's: whoever lives has a third of it to say so once the store is back (seconds).
LEASE = 4.0
#: What a process writes down when the store has answered it.
_ANSWERS = {"accepted", "merged", "refused", "repeated", "acked", "claimed"}
_POLL = 0.05


class Result(NamedTuple):
    """What a fault has cost."""

    verdict: Verdict
    stats: list[QueueStats]
    #: How long the store was away, and how long after that until everybody had an answer, at most (seconds).
    away: float
    back: float
    #: How long after the kill of its worker a message was ready again, at most (seconds).
    orphaned: float = 0.0

    @property
    def again(self) -> dict[str, int]:
        """How many were begun again, by cause; a handler that asked for it is none."""
        return {cause: count for cause, count in self.verdict.causes.items() if cause != "failed" and count}


class Killer:
    """Kills a server, and knows since when that answers nobody: on a busy machine it takes a moment."""

    def __init__(self) -> None:
        self.gone: float | None = None

    def kill(self, server: Server) -> None:
        server.kill()
        self.gone = time.monotonic()


def _patient(url: str) -> str:
    """The same for who looks on, to whom a server on a busy machine is not away."""
    parts = urlsplit(url)
    return parts._replace(query=urlencode({**dict(parse_qsl(parts.query)), **PATIENT})).geturl()


class Siege(Battle):
    """Two producers and three workers on the store at this URL."""

    def __init__(
        self,
        folder: Path,
        url: str,
        *,
        lease: float = LEASE,
        remember: str = "1m",
        capacity: int = 100,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`remember`: for how long an id is known, so that a put without an answer can be repeated."""
        policy = Policy(
            lease=lease, ack_timeout="1m", max_attempts=50, backoff="50ms", capacity=capacity,
            dedupe_window=remember,
        )  # fmt: skip
        super().__init__(
            folder, 1, producers=2, workers=3, url=_patient(url), fighters_url=url, policy=policy,
            environ=environ,
        )  # fmt: skip
        self.outages: list[Outage] = []
        self._lease = lease

    # ---- load -------------------------------------------------------------------------------------

    def until_acked(self, count: int) -> None:
        """Let them work until so many more messages are done."""
        enough = self._acked() + count
        self._wait_slowly(lambda: self._acked() >= enough)

    def put_long(self, count: int, seconds: float) -> list[str]:
        """Messages that keep their handlers busy for so long."""
        ids = [new_id() for _ in range(count)]
        with postroom.open(self.url) as room:
            for id, queue in zip(ids, itertools.cycle(QUEUES), strict=False):
                self._ledger.note("intend", id, id, time.monotonic(), "-")
                put = functools.partial(
                    room.queue(queue).put, body_with(id, Work(seconds)), id=id, priority="high"
                )
                self.wait_for(functools.partial(slipped_in, put))
                self._ledger.note("accepted", id, 0)
        return ids

    def until_begun(self, ids: list[str]) -> None:
        """Let them work until all these are in somebody's hands."""
        self._wait_slowly(lambda: set(ids) <= {line.id for line in self.lines() if line.word == "begin"})

    def until_waiting(self, server: Server) -> None:
        """Let them work until a put waits there for a replica."""
        self._wait_slowly(lambda: b" cmd=wait " in server.ask("CLIENT", "LIST"))

    def _acked(self) -> int:
        return sum(path.read_bytes().count(b" acked ") for path in self.folder.glob("worker-*.ledger"))

    def _wait_slowly(self, condition: Callable[[], bool]) -> None:
        """Looking into the ledgers is work too, and the cores are for those who fight."""

        def looked() -> bool:
            found = condition()
            if not found:
                time.sleep(_POLL)
            return found

        self.wait_for(looked)

    # ---- faults -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def outage(self, forgets: float = 0.0) -> Iterator[Killer]:
        """The store is hurt, and serves again when the block ends; then until everybody is at work again.

        `forgets`: it may have forgotten what it answered in so many seconds before.
        """
        began, killer = time.monotonic(), Killer()
        yield killer
        self.outages.append(Outage(began, time.monotonic(), forgets, gone=killer.gone))
        self._ledger.note("outage", "-", began, forgets)
        self._wait_slowly(lambda: self._back(self.outages[-1]) < math.inf)

    def _back(self, outage: Outage) -> float:
        """How long after the outage everybody had an answer; for ever: somebody has not yet."""
        firsts = (
            next((each.at for each in lines if each.at > outage.over and each.word in _ANSWERS), math.inf)
            for lines in (fighter.lines() for fighter in self.fighters)
        )
        return max(firsts) - outage.over

    # ---- the end ----------------------------------------------------------------------------------

    def result(self, name: str) -> Result:
        """What it has cost, as the ledgers tell; it is printed, for `pytest -s`."""
        stats, dead = self.remains()
        history = self.history()
        verdict = judge(self.lines(), self.fates(), dead, self._lease, self.outages, history)
        away = max((outage.over - outage.began for outage in self.outages), default=0.0)
        back = max(map(self._back, self.outages), default=0.0)
        result = Result(verdict, stats, away, back, _orphaned(verdict, history))
        self._print(name, result)
        return result

    def _print(self, name: str, result: Result) -> None:
        verdict = result.verdict
        lost = sum("LOST" in wrong for wrong in verdict.wrong) + verdict.counts["lost, forgotten"]
        print(f"\n{name}: {len(verdict.begun)} messages, {lost} lost, begun again: {result.again or 0}")
        print(f"  away {result.away:.2f} s, everybody at work {result.back:.2f} s later")
        asked = ("unsure", "repeated", "unheard", "acked, unheard")
        print(f"  asked again: { {word: verdict.counts[word] for word in asked} }")
        if verdict.orphans:
            print(f"  kills: {self.kills}; ready again at most {result.orphaned:.2f} s after a kill")


def _orphaned(verdict: Verdict, history: History) -> float:
    """How long after the kill of its worker a message came back, at most."""
    longest = 0.0
    for id, killed in verdict.orphans.items():
        times = (told.at for told in history.entries if told.event == "requeue" and id in told.ids)
        # One whose holder was too slow before it was killed is ready again already.
        longest = max(longest, min((at for at in times if at > killed), default=killed) - killed)
    return longest


def check(siege: Siege, result: Result) -> None:
    """Nothing is wrong, nobody complained loudly, and what the store counted is what the ledgers tell."""
    verdict = result.verdict
    assert not verdict.wrong, "\n".join(verdict.wrong[:20])
    for fighter in siege.fighters:
        said = fighter.log.read_text()
        assert "Traceback" not in said, f"{fighter.name}: {said[-3_000:]}"
    if any(outage.forgets for outage in siege.outages):
        return  # its counters may be of a moment before
    for each in result.stats:
        counted = each.counters
        assert counted["put"] == counted["acked"] + counted["dead"], counted
        ends = ("acked", "retried", "released", "reclaimed")
        assert counted["claimed"] == sum(counted[end] for end in ends), counted
    assert sum(each.counters["put"] for each in result.stats) == len(verdict.begun)
