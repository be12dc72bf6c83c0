"""Emptying the spool: each message parked, put to Redis under its own id, and then removed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from postroom.engine import Engine, QueueInfo
from postroom.engines.spool import parcels
from postroom.errors import Conflict, EngineUnavailable, InvalidInput, QueueFull, Uncertain
from postroom.ids import new_token
from postroom.limits import MAX_BATCH
from postroom.model import Action, Entry, Move, NewMessage, State
from postroom.policy import Policy

log: logging.Logger = logging.getLogger(__name__)

_KIND, _KEY = "lock", "spool.mover"
#: A mover that was silent for this long is taken for dead (ms). Two at once do no harm.
_TTL = 5_000


class Fill(NamedTuple):
    """What is in the spool."""

    waiting: int = 0
    others: int = 0

    @property
    def total(self) -> int:
        return self.waiting + self.others


class _Away(Exception):
    def __init__(self, error: EngineUnavailable) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def _there() -> Iterator[None]:
    """Around calls to Redis: the same error of the spool means something else."""
    try:
        yield
    except EngineUnavailable as error:
        raise _Away(error) from error


class Mover:
    def __init__(self, spool: Engine, stopped: Callable[[], bool]) -> None:
        self._spool = spool
        self._stopped = stopped
        self._token = new_token().encode()
        #: What Redis refused for good; it stays in the spool, and is complained about once.
        self._refused: set[str] = set()
        self._complaint = ""

    def fill(self) -> Fill:
        """What is in the spool now; does what time demands there, because nobody else may."""
        try:
            return self._counted()
        except EngineUnavailable as error:
            self._complain(error)
            return Fill()

    def _counted(self) -> Fill:
        waiting = others = 0
        for info in self._spool.queues():
            stats = self._spool.stats(info.name)
            if stats.depth or stats.processing:
                self._spool.sweep(info.name, limit=MAX_BATCH)
                stats = self._spool.stats(info.name)
            waiting += stats.depth + stats.dead
            others += stats.processing
        self._complaint = ""
        return Fill(waiting, others)

    def move(self, primary: Engine) -> int:
        """Move what is there once, if nobody else does; how many. Raises EngineUnavailable of Redis.

        A spool that fails moves nothing: that must not keep anybody away from a Redis that is there.
        """
        try:
            try:
                return self._move_all(primary)
            finally:
                self._let_go()
        except _Away as away:
            raise away.error from None
        except EngineUnavailable as error:
            self._complain(error)
            return 0

    def _complain(self, error: EngineUnavailable) -> None:
        if str(error) != self._complaint:
            self._complaint = str(error)
            log.error("the spool fails: %s", error, extra={"event": "spool.failed", "error": str(error)})

    def _move_all(self, primary: Engine) -> int:
        moved = 0
        for info in self._spool.queues():
            stats = self._spool.stats(info.name)
            if stats.depth + stats.dead == 0 or not self._hold():
                continue
            try:
                self._declare(primary, info)
                moved += sum(self._move_state(primary, info, state) for state in _STATES)
            except (QueueFull, Conflict, Uncertain) as error:
                # What was accepted waits here until there is room, and a replica; the others need not.
                extra = {"event": "spool.not_moved", "queue": info.name, "error": str(error)}
                log.warning("%s: cannot be moved yet: %s", info.name, error, extra=extra)
        return moved

    def _declare(self, primary: Engine, info: QueueInfo) -> None:
        """A Redis that has lost the queue gets its policy back before the first message."""
        with _there():
            if info.policy != Policy() and not primary.queues([info.name]):
                primary.declare(info.name, info.policy)

    # --- one queue --------------------------------------------------------------------------

    def _move_state(self, primary: Engine, info: QueueInfo, state: State) -> int:
        moved, cursor = 0, None
        while not self._stopped() and self._hold():
            page = self._spool.find(info.name, state, cursor=cursor, limit=MAX_BATCH)
            moved += self._move_page(primary, info, page.entries)
            cursor = page.cursor
            if cursor is None:
                break
        return moved

    def _move_page(self, primary: Engine, info: QueueInfo, entries: list[Entry]) -> int:
        """In one call if there is room for all; else in smaller ones, until there is none for one.

        Those who put one by one would otherwise never leave room for many at once.
        """
        entries = self._parked(info.name, [entry for entry in entries if entry.id not in self._refused])
        pairs = [(entry, message) for entry in entries if (message := self._restored(entry, info))]
        moved, size = 0, len(pairs)
        while moved < len(pairs):
            try:
                self._move_pairs(primary, info, pairs[moved : moved + size])
                moved += size
            except QueueFull:
                if size == 1:
                    raise
                size //= 2
        return min(moved, len(pairs))

    def _move_pairs(self, primary: Engine, info: QueueInfo, pairs: list[tuple[Entry, NewMessage]]) -> None:
        try:
            with _there():
                primary.put(info.name, [message for _, message in pairs])
            done = [entry for entry, _ in pairs]
        except InvalidInput:
            done = [entry for entry, message in pairs if self._put_alone(primary, info, message)]
        removal = Action.DISCARD if done and done[0].state is State.DEAD else Action.CANCEL
        self._spool.move(info.name, [Move(id=entry.id, action=removal) for entry in done])

    def _parked(self, queue: str, entries: list[Entry]) -> list[Entry]:
        """Those of them that nobody here can claim any more."""
        free = [e for e in entries if e.state is not State.DEAD and not parcels.is_parked(e)]
        moves = [Move(id=entry.id, action=Action.RESCHEDULE, due=parcels.PARKED) for entry in free]
        answers = self._spool.move(queue, moves) if moves else []
        taken = {entry.id for entry, answer in zip(free, answers, strict=True) if not answer.ok}
        return [entry for entry in entries if entry.id not in taken]

    def _restored(self, entry: Entry, info: QueueInfo) -> NewMessage | None:
        """The message to put; None: nobody can read it, and it stays where it is."""
        try:
            return parcels.restored(entry, info.policy)
        except (InvalidInput, msgspec.MsgspecError) as error:
            self._refuse(info.name, entry.id, error)
            return None

    def _put_alone(self, primary: Engine, info: QueueInfo, message: NewMessage) -> bool:
        """Put one of a batch of which some were refused; False: it stays where it is."""
        try:
            with _there():
                primary.put(info.name, [message])
        except InvalidInput as error:
            if message.expires is None:
                return self._refuse(info.name, message.id, error)
            return self._expire(primary, info, message)
        return True

    def _expire(self, primary: Engine, info: QueueInfo, message: NewMessage) -> bool:
        extra = {"event": "spool.expired", "queue": info.name, "id": message.id}
        log.warning("%s: %s expired before it could be moved", info.name, message.id, extra=extra)
        if info.policy.on_expire == "dead":
            try:
                with _there():
                    primary.put(info.name, [parcels.expired(message)])
            except InvalidInput as error:
                return self._refuse(info.name, message.id, error)
        return True

    def _refuse(self, queue: str, id: str, error: Exception) -> bool:
        self._refused.add(id)
        extra = {"event": "spool.refused", "queue": queue, "id": id}
        log.error("%s: %s cannot be moved, it stays in the spool: %s", queue, id, error, extra=extra)
        return False

    # --- one mover at a time ----------------------------------------------------------------

    def forked(self) -> None:
        """In a child: the lock is the parent's."""
        self._token = new_token().encode()

    def _hold(self) -> bool:
        """Take the lock or keep it; False while another process has it."""
        records = self._spool.records
        found = records.get(_KIND, _KEY)
        if found and found.value != self._token:
            return False
        version = found.version if found else 0
        return records.put(_KIND, _KEY, self._token, ttl=_TTL, expect=version) is not None

    def _let_go(self) -> None:
        found = self._spool.records.get(_KIND, _KEY)
        if found and found.value == self._token:
            self._spool.records.delete(_KIND, _KEY, expect=found.version)


#: What is held was put when Redis had just gone, so before the others.
_STATES = (State.SCHEDULED, State.READY, State.DEAD)
