"""Waking who waits, in this process and in others.

Whoever makes something claimable rings the waiters of its own process directly, and leaves a token in
the queue's list for those of others. One thread a process pops such tokens, with one blocking command for
all queues that somebody here waits for; a second one does the same for topics. A private list (and a
private stream) ends that command when somebody begins to wait for something else. In a cluster no command
can be about several queues, so there is a thread for each of the first few; the others are left to the
timers of who waits.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from postroom.engines.redis import scripts
from postroom.engines.redis.client import Client
from postroom.engines.redis.faults import is_uncertain
from postroom.engines.redis.names import Names
from postroom.engines.steps.bells import Bells, BellWaiter, is_topic, topic_bell
from postroom.errors import Closed, PostroomError
from postroom.waiter import Waiter

#: How long a command blocks (s). A connection that is silent for longer is taken for broken.
_BLOCK = 10.0
#: With this bell armed, queues that came into being are looked for so often.
_LIFECYCLE = topic_bell("lifecycle")
_BLOCK_LIFECYCLE = 2.0
#: Pauses between attempts to reach a server that is away.
_PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)
#: A busy topic rings at most so often (s).
_COALESCE = 0.005
#: So many threads listen in a cluster, one for each name.
_MOST_LISTENERS = 16
#: In a cluster nobody can wait for all logs: whoever does is told to look so often (s).
_LOOK_AT_LOGS = 1.0
#: A step rings so many at most: see `ring` in lua/books.lua.
_MOST_RUNG = 3
#: Whoever needs to wake later than this has no seat: see `seat` in lua/turn.lua.
_SEATED = 1_000


class RedisWaiter(BellWaiter):
    """A waiter that other processes can tell from all others."""

    def __init__(self, ringing: Ringing, queues: frozenset[str], topics: frozenset[str], id: bytes) -> None:
        super().__init__(ringing, queues, topics)
        self._ringing = ringing
        self.id = id
        #: The queues of which it is one of the first to wake, of all processes.
        self.seats: set[str] = set()

    def arm(self) -> None:
        super().arm()
        self._ringing.listen()

    def clear(self) -> frozenset[str]:
        rung = super().clear()
        if rung:
            self._ringing.listen()
        return rung

    def _hand_on(self, left: list[tuple[str, bool]]) -> None:
        for name, unused in left:
            seated = name in self.seats
            self.seats.discard(name)
            if unused or seated:
                self._ringing.leave(name, unused, self.id if seated else None)


class Ringing(Bells):
    """The waiters of this process, and those of others behind them."""

    def __init__(self, client: Client, names: Names, now: Callable[[], str]) -> None:
        super().__init__(threading.Lock(), lambda name, unused: None)
        self.client = client
        self.names = names
        self._now = now
        self._is_cluster = client.settings.mode == "cluster"
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self.process: bytes = os.urandom(8)
        self._count = itertools.count()
        #: By the one name each is for; in one server's memory, by none.
        self._listeners: dict[str, Listener] = {}

    def waiter(self, queues: Iterable[str], topics: Iterable[str]) -> Waiter:
        id = self.process + (next(self._count) % 2**32).to_bytes(4, "big")
        waiter = RedisWaiter(self, frozenset(queues), frozenset(topics), id)
        with self.lock:
            self._open.add(waiter)
        return waiter

    # --- ringing ----------------------------------------------------------------------------

    def sleepers(self, queue: str) -> int:
        """How many waiters of this process could be rung for this queue."""
        if queue not in self._armed:  # as in every process that only puts: no lock is needed to see that
            return 0
        with self.lock:
            return self.untold(queue)

    def untold(self, name: str) -> int:
        return sum(name not in waiter.rung for waiter in self._armed.get(name, ()))

    def tell(self, queue: str, rings: int, sleepers: int) -> None:
        """After a step: wake those whom its script left to this process."""
        ours = min(rings, sleepers)
        if ours <= 0:
            return
        with self.lock:
            told = self.ring(queue, ours)
        if told < ours:  # somebody has left meanwhile
            with contextlib.suppress(PostroomError):  # the step is done; a ring is a hint
                self.push(queue, ours - told)

    def doubt(self, queue: str, sleepers: int, error: PostroomError) -> None:
        """A step failed. If it may have been done, have those look whom its script has left to us."""
        if is_uncertain(error):
            with self.lock:
                self.ring(queue, min(_MOST_RUNG, sleepers))

    def push(self, queue: str, rings: int, why: str = "", *left: bytes) -> None:
        """Wake so many who wait for this queue, whichever process they are in."""
        sleepers = self.sleepers(queue)
        wanted = self.client.run(
            scripts.RING, self.names.queue(queue), (self._now(), sleepers, rings, why, *left)
        )
        self.tell(queue, wanted, sleepers)

    def leave(self, queue: str, unused: bool, seated: bytes | None = None) -> None:
        """A waiter left: somebody else gets its unused ring, or its watch over the next due time."""
        with self.lock:
            listener = self._listeners.get(self._key(queue))
        if listener is not None and listener.deaf:
            return  # the server is away: it would only hold up whoever leaves
        with contextlib.suppress(PostroomError):  # a hint, and everybody has a timer
            self.push(queue, 1, "unused" if unused else "left", *([seated] if seated else []))

    def seat(self, queue: str, waiter: Waiter, later: int) -> None:
        """What a claim said about when this waiter need wake."""
        if isinstance(waiter, RedisWaiter):
            if later < _SEATED:
                waiter.seats.add(queue)
            else:
                waiter.seats.discard(queue)

    # --- listening --------------------------------------------------------------------------

    def listen(self) -> None:
        """Somebody waits who may not be heard yet."""
        with self.lock:
            listeners = [self._listener(name) for name in self.armed()]
        for listener in filter(None, dict.fromkeys(listeners)):
            listener.look()

    def _listener(self, name: str) -> Listener | None:
        """Who listens for this name, with the lock held; None: it is left to the timers, or all ends."""
        if self._closed:
            return None
        key = self._key(name)
        if key not in self._listeners:
            if len(self._listeners) >= _MOST_LISTENERS:
                # One that has yet to begin is not idle: it would be forgotten here, and begin all the same.
                idle = [key for key, listener in self._listeners.items() if listener.is_idle]
                for key_of_idle in idle:
                    del self._listeners[key_of_idle]
            if len(self._listeners) >= _MOST_LISTENERS:
                return None
            apart = name if self._is_cluster else ""
            self._listeners[key] = (TopicListener if is_topic(name) else QueueListener)(self, apart)
        return self._listeners[key]

    def _key(self, name: str) -> str:
        return f"{is_topic(name)}{name if self._is_cluster else ''}"

    def close(self) -> None:
        """Everybody wakes, and nobody listens any more."""
        with self.lock:
            self._closed = True
            super().close()
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener.stop()

    def join(self) -> None:
        for listener in list(self._listeners.values()):
            listener.join()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def leave_to_parent(self) -> None:
        """In a forked child: the waiters and the threads belong to the parent."""
        self.reset(threading.Lock())
        self._begin()


class Listener:
    """A thread that hears of some bells by a blocking command, as long as anybody waits for one."""

    what: ClassVar[str]

    def __init__(self, ringing: Ringing, only: str = "") -> None:
        """`only`: the one name to listen for."""
        self._ringing = ringing
        self._client = ringing.client
        self._names = ringing.names
        self._only = only
        self.private: bytes = ringing.names.private(ringing.process.hex(), only, self.what)
        self._changed = threading.Condition(ringing.lock)
        self._thread: threading.Thread | None = None
        #: What the present command is about; None while there is none.
        self._hearing: frozenset[str] | None = None
        self._nudged = False
        #: Whether the server was away when it was asked last.
        self.deaf: bool = False

    def wanted(self) -> frozenset[str]:
        """The bells to listen for, with the lock held."""
        raise NotImplementedError

    def hear(self, bells: frozenset[str]) -> None:
        """Wait for one of these bells, or the private one, and ring."""
        raise NotImplementedError

    def nudge(self) -> None:
        """Ring the private bell."""
        raise NotImplementedError

    def recover(self, bells: frozenset[str]) -> None:
        """What rang while the server was away was not heard: have everybody look."""
        with self._ringing.lock:
            for bell in bells:
                self._ringing.ring_all(bell)

    # --- for whoever waits ------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether it neither listens nor is about to, with the lock held: nobody waits for its name."""
        return self._thread is None and not self._armed()

    def _armed(self) -> list[str]:
        return [name for name in self._ringing.armed() if self._only in ("", name)]

    def look(self) -> None:
        """See to it that all that is wanted is listened for."""
        with self._ringing.lock:
            wanted = self.wanted()
            if not wanted or self._ringing.is_closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="postroom-waiter", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            deaf = self._hearing is not None and not wanted <= self._hearing and not self._nudged
            self._nudged |= deaf
        if deaf:
            with contextlib.suppress(PostroomError):  # then it is heard when the command ends
                self.nudge()

    def stop(self) -> None:
        with self._ringing.lock:
            self._changed.notify_all()

    def join(self) -> None:
        thread = self._thread
        if thread and thread is not threading.current_thread():
            thread.join(2.0)

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        failures, self.deaf = 0, False
        while bells := self._next():
            try:
                if self.deaf:  # ask first whether the server is there again: to hear may take a while
                    self._client.command("EXISTS", self.private, key=self.private)
                    self.deaf = False
                    self.recover(bells)
                self.hear(bells)
                failures = 0
            except Closed:
                break
            except PostroomError:
                failures, self.deaf = failures + 1, True
                self._pause(_PAUSES[min(failures, len(_PAUSES)) - 1])
        with self._ringing.lock:
            self._hearing = self._thread = None

    def _next(self) -> frozenset[str]:
        """What to listen for now; nothing: nobody has waited for anything for a while."""
        with self._ringing.lock:
            self._hearing, self._nudged = None, False
            if not self._ringing.is_closed and not self.wanted():
                # Whoever was rung will wait again soon.
                self._changed.wait(_BLOCK)
            wanted = frozenset() if self._ringing.is_closed else self.wanted()
            if wanted:
                self._hearing = wanted
            else:
                self._thread = None
            return wanted

    def _pause(self, seconds: float) -> None:
        with self._ringing.lock:
            self._hearing = None
            if not self._ringing.is_closed:
                self._changed.wait(seconds)


class QueueListener(Listener):
    """Pops the tokens of all queues that somebody here waits for."""

    what = "queues"

    def wanted(self) -> frozenset[str]:
        # A queue all of whose waiters are awake already is left to others.
        ringing = self._ringing
        return frozenset(name for name in self._armed() if not is_topic(name) and ringing.untold(name))

    def hear(self, bells: frozenset[str]) -> None:
        keys = {self._names.wake(name): name for name in bells}
        answer = self._client.block("BLPOP", *keys, self.private, str(_BLOCK), timeout=_BLOCK)
        if answer is None or answer[0] == self.private:
            return
        name = keys[answer[0]]
        with self._ringing.lock:
            told = self._ringing.ring(name, 1)
            left = not told and name not in self._ringing.armed()
        if left:
            # Nobody waits here any more: somebody elsewhere may.
            self._ringing.leave(name, unused=True)

    def nudge(self) -> None:
        self._client.run(scripts.NUDGE, [self.private], ("RPUSH", 60_000, ""))


class TopicListener(Listener):
    """Reads the bells of all topics that somebody here waits for, and for "lifecycle" all logs."""

    what = "topics"

    def __init__(self, ringing: Ringing, only: str = "") -> None:
        super().__init__(ringing, only)
        #: The last entry seen of each stream. The private one is read from its start: a nudge that comes
        #: while this listener begins is about a topic that it does not read yet.
        self._seen: dict[bytes, bytes] = {self.private: b"0"}

    def wanted(self) -> frozenset[str]:
        return frozenset(name for name in self._armed() if is_topic(name))

    def hear(self, bells: frozenset[str]) -> None:
        if self._only == _LIFECYCLE:
            self._pause(_LOOK_AT_LOGS)
            self._ring({_LIFECYCLE})
            return
        streams = self._streams(bells)
        self._seen = {stream: seen for stream, seen in self._seen.items() if stream in streams}
        if rung := self._catch_up(streams):
            self._ring(rung)
            return
        span = _BLOCK_LIFECYCLE if _LIFECYCLE in bells else _BLOCK
        positions = [self._seen[stream] for stream in streams]
        answer = self._client.block(
            "XREAD", "COUNT", 100, "BLOCK", int(span * 1_000), "STREAMS", *streams, *positions, timeout=span
        )
        rung = set()
        for stream, entries in _pairs(answer):
            self._seen[stream] = entries[-1][0]
            rung.add(streams[stream])
        if rung - {""}:
            self._ring(rung - {""})
            time.sleep(_COALESCE)

    def _streams(self, bells: frozenset[str]) -> dict[bytes, str]:
        """What to read, and what it rings."""
        streams = {self.private: ""}
        for bell in bells - {_LIFECYCLE}:
            streams[self._names.topic(bell.removeprefix("\0"))[2]] = bell
        if _LIFECYCLE in bells:
            for queue in self._client.command("SMEMBERS", self._names.registry, key=self._names.registry):
                streams[self._names.log(queue.decode())] = _LIFECYCLE
        return streams

    def _catch_up(self, streams: dict[bytes, str]) -> set[str]:
        """Begin at the end of streams that were not read so far. What is there may have come in since
        somebody armed, and rings."""
        rung = set()
        for stream in streams.keys() - self._seen.keys():
            last = self._client.command("XREVRANGE", stream, "+", "-", "COUNT", 1, key=stream)
            self._seen[stream] = last[0][0] if last else b"0"
            if last and streams[stream]:
                rung.add(streams[stream])
        return rung

    def _ring(self, bells: set[str]) -> None:
        with self._ringing.lock:
            for bell in bells:
                self._ringing.ring_all(bell)

    def nudge(self) -> None:
        self._client.run(scripts.NUDGE, [self.private], ("XADD", 60_000, "*", "", ""))


def _pairs(answer: Any) -> Iterable[tuple[bytes, list[Any]]]:
    """The streams in an answer to XREAD, which newer protocols give as a mapping."""
    return answer.items() if isinstance(answer, dict) else answer or ()
