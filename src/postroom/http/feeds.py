"""What live events are made of: the history of every queue, and topics; read by one thread for everybody.

lifecycle   every line of every history, under the event `lifecycle`
overdue     the events `requeue` and `move_to_dlq`, one of each for a queue and a batch
audit       what operators did
topic:NAME  what is published there
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from postroom.engine import Engine
from postroom.errors import Closed, InvalidInput, PostroomError
from postroom.history import Lifecycle
from postroom.http import looking
from postroom.http.redaction import HIDDEN, Redaction
from postroom.limits import AUDIT, MAX_BATCH, check_name
from postroom.logs import Event, LogEntry, TopicEntry, TopicPage
from postroom.waiter import Waiter

log: logging.Logger = logging.getLogger(__name__)

LIFECYCLE, OVERDUE, TOPIC = "lifecycle", "overdue", "topic:"
#: Batches come this far apart at least (seconds).
WINDOW = 0.25
#: Events kept of each feed for who comes back.
KEPT = 5_000
#: How long a feed may take to catch up when it begins, and the reader to end (seconds).
_CATCH_UP, _PATIENCE = 2.0, 30.0
#: After an error of the store (seconds).
_AGAIN = 1.0
#: The largest entry of a topic that is told live; a client that wants it reads the topic.
_LARGEST = 64 * 2**10
#: What is read of a topic at a time (bytes), and how many entries before it is known how large they are.
_MOST_BYTES, _SOME = 8 * 2**20, 8


class Told(NamedTuple):
    """Something that happened, as clients are told: `number` is 0 for what was before this hub."""

    feed: str
    queue: str
    at: int
    name: str
    data: bytes
    number: int = 0


def frame(name: str, data: bytes, id: str = "") -> bytes:
    """One event on the wire. JSON has no line breaks, so the data is one line."""
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"


# ---- What is told of an entry ---------------------------------------------------------------------


def told_of_log(entries: Sequence[LogEntry], redaction: Redaction) -> list[Told]:
    """The lines themselves, and what of them is a reclaim or a death, summed up by queue."""
    shown = looking.lines(redaction, entries)
    lines = [Told(LIFECYCLE, entry.queue, entry.at, LIFECYCLE, msgspec.json.encode(entry)) for entry in shown]
    return lines + _requeues(entries) + _deaths(entries)


def _requeues(entries: Sequence[LogEntry]) -> list[Told]:
    sums: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        if entry.event == Event.REQUEUE:
            key = entry.queue, str(entry.info.get("triggered_by", "scheduler"))
            count, dead, at = sums.get(key, (0, 0, 0))
            dead += int(entry.info.get("dlq_count", 0))
            sums[key] = [count + entry.count, dead, max(at, entry.at)]
    return [
        _overdue(Event.REQUEUE, queue, at, {"count": count, "dlq_count": dead, "triggered_by": by})
        for (queue, by), (count, dead, at) in sums.items()
    ]


def _deaths(entries: Sequence[LogEntry]) -> list[Told]:
    sums: dict[str, tuple[int, int]] = {}
    for entry in entries:
        if entry.event == Event.MOVE_TO_DLQ:
            count, at = sums.get(entry.queue, (0, 0))
            sums[entry.queue] = count + entry.count, max(at, entry.at)
    return [_overdue(Event.MOVE_TO_DLQ, queue, at, {"count": count}) for queue, (count, at) in sums.items()]


def _overdue(event: Event, queue: str, at: int, payload: dict[str, Any]) -> Told:
    document = {"type": event.value, "timestamp": at, "payload": payload}
    return Told(OVERDUE, queue, at, event.value, msgspec.json.encode(document))


def told_of_topic(feed: str, entries: Iterable[TopicEntry], redaction: Redaction) -> list[Told]:
    name = feed.partition(":")[0]
    return [Told(feed, "", entry.at, name, _topic_document(feed, entry, redaction)) for entry in entries]


def _topic_document(feed: str, entry: TopicEntry, redaction: Redaction) -> bytes:
    if len(entry.data) > _LARGEST:
        return _topic_told(feed, entry, f"[{len(entry.data):,} bytes: read the topic]")
    try:
        data = redaction.value(msgspec.json.decode(entry.data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        data = HIDDEN  # nobody can tell what it holds
    return _topic_told(feed, entry, data)


def _topic_told(feed: str, entry: TopicEntry, data: Any) -> bytes:
    return msgspec.json.encode({"topic": _topic_of(feed), "id": entry.id, "at": entry.at, "data": data})


def read_topic(engine: Engine, topic: str, after: str | None, limit: int) -> TopicPage:
    """As `Engine.read`, but it stops behind 8 MB: an entry may have one, and a page 1,000 of them."""
    entries, size, missed = list[TopicEntry](), 0, 0
    while True:
        fitting = _SOME if not entries else (_MOST_BYTES - size) * len(entries) // max(1, size)
        asked = max(1, min(limit - len(entries), fitting))
        page = engine.read(topic, after=after, limit=asked)
        entries += page.entries
        after, missed = page.cursor, missed + page.missed
        size += sum(len(entry.data) for entry in page.entries)
        if len(page.entries) < asked or len(entries) >= limit or size >= _MOST_BYTES:
            return TopicPage(entries, page.cursor, missed)


def _topic_of(feed: str) -> str:
    return feed.removeprefix(TOPIC)


def read_feeds(text: str) -> frozenset[str]:
    """The feeds that a client names, separated by commas. Raises InvalidInput for what is none."""
    feeds = frozenset(part.strip() for part in text.split(",") if part.strip())
    for feed in feeds - {LIFECYCLE, OVERDUE, AUDIT}:
        if not feed.startswith(TOPIC):
            known = f"{LIFECYCLE}, {OVERDUE}, {AUDIT} and {TOPIC}NAME"
            raise InvalidInput(f"topics: {feed!r:.80} is none of {known}")
        check_name(_topic_of(feed), "topic")
    return feeds or frozenset({LIFECYCLE, OVERDUE})


# ---- The reader: a thread -------------------------------------------------------------------------


class Reader:
    """Follows the store and calls `tell` with each batch, from its thread; ends with `stop`."""

    def __init__(
        self,
        engine: Engine,
        tell: Callable[..., None],
        *,
        redaction: Redaction,
        heartbeat: float,
        window: float = WINDOW,
    ) -> None:
        self._engine, self._tell, self._heartbeat, self._window = engine, tell, heartbeat, window
        self._redaction = redaction
        self._feeds: dict[str, Callable[[], list[Told]]] = {}
        #: Feeds that are wanted from now on, and those that are not any more, in turn.
        self._asked: deque[tuple[str, bool]] = deque()
        self._stopping = threading.Event()
        self._waiter: Waiter | None = None
        self._beat = 0.0
        self._thread = threading.Thread(target=self._run, name="postroom-events", daemon=True)
        self._thread.start()

    def ask(self, feed: str) -> None:
        """Follow this one too: `tell(opened=…)` says what was before."""
        self._asked.append((feed, True))
        self._ring()

    def forget(self, feed: str) -> None:
        """Follow it no longer."""
        self._asked.append((feed, False))
        self._ring()

    def stop(self) -> None:
        self._stopping.set()
        self._ring()

    def join(self) -> None:
        self._thread.join(_PATIENCE)

    def _ring(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            waiter.ring()

    def _run(self) -> None:
        away = False
        while not self._stopping.is_set():
            try:
                self._follow()
                away = False
            except Closed:
                return
            except Exception as error:  # whatever it was: all who listen hang on this thread
                if not isinstance(error, PostroomError):
                    log.exception("events failed", extra={"event": "stream.failed"})
                if not away:
                    log.warning("events stop: %s", error, extra={"event": "stream.away"})
                    self._tell(away=True)
                away = True
                self._stopping.wait(_AGAIN)

    def _follow(self) -> None:
        """Read and wait, until another feed is asked for. Cursors stay, so an outage loses nothing."""
        while self._asked:
            feed, wanted = self._asked[0]
            if wanted:
                self._open(feed)
            else:
                self._feeds.pop(feed, None)
            self._asked.popleft()
        topics = [LIFECYCLE, *(_topic_of(feed) for feed in self._feeds if feed != LIFECYCLE)]
        with self._engine.waiter((), topics=topics) as waiter:
            self._waiter = waiter
            waiter.arm()
            while not (self._stopping.is_set() or self._asked):
                for read in self._feeds.values():  # each for itself: what was read is told, whatever comes
                    self._tell(batch=read())
                self._beat_if_due()
                waiter.wait(max(0.0, min(self._beat - time.monotonic(), 5.0)))
                self._stopping.wait(self._window)

    def _beat_if_due(self) -> None:
        if time.monotonic() >= self._beat:
            self._tell(now=self._engine.now())
            self._beat = time.monotonic() + self._heartbeat

    def _open(self, feed: str) -> None:
        """Read what was before, bounded in time; from there on, it is followed."""
        read = self._of_log() if feed == LIFECYCLE else self._of_topic(feed)
        before: deque[Told] = deque(maxlen=KEPT)
        end = time.monotonic() + _CATCH_UP
        whole = False
        while not whole and time.monotonic() < end:
            page = read()
            before += page
            whole = not page
        self._feeds[feed] = read
        since = 0 if whole and len(before) < KEPT else before[0].at + 1 if whole else self._engine.now()
        self._tell(opened=feed, batch=list(before), since=since, now=self._engine.now())

    def _of_log(self) -> Callable[[], list[Told]]:
        lifecycle = Lifecycle(self._engine, cursors={})
        return lambda: told_of_log(lifecycle.read(MAX_BATCH), self._redaction)

    def _of_topic(self, feed: str) -> Callable[[], list[Told]]:
        cursor = ""

        def read() -> list[Told]:
            nonlocal cursor
            page = read_topic(self._engine, _topic_of(feed), cursor, MAX_BATCH)
            cursor = page.cursor
            return told_of_topic(feed, page.entries, self._redaction)

        return read
