"""What was measured, kept in the store: one record for each thing, merged by whoever has measured it.

A record holds the total since it began, and the last hour by the minute. A process adds what it has measured
every few seconds, by compare-and-set; so the numbers are those of the whole room, go on when a process ends,
and can be read by any other. The name of each addition stays in the record for a while: one whose answer was
lost is recognised and not added twice. Nothing here raises into the way of a message: what cannot be written
is kept and written later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

import msgspec

from postroom.engine import Engine
from postroom.errors import Closed, PostroomError
from postroom.ids import new_token
from postroom.limits import MAX_BATCH, MAX_RECORD
from postroom.telemetry.histogram import Histogram, merged

log: logging.Logger = logging.getLogger(__name__)

KIND = "sample"
#: Seconds between two additions of a process.
EVERY = 5.0
#: What is kept by the minute, and for how long (ms).
MINUTE, KEPT = 60_000, 60
#: The names of the last additions: more than all processes of a room make while one waits for its answer.
_NAMES = 64
#: Tries against others, before it waits for the next time.
_TRIES = 5
#: A sample that nobody adds to is forgotten (ms).
_TTL = 30 * 86_400_000
#: How much further apart the bounds of a minute may be, where all minutes would be too much.
_COARSER = (2, 4, 8)
#: Different things that one process measures at most; more are not measured, and that is said once.
_MOST = 1_000


#: (seconds, how many messages that stands for)
Spans = list[tuple[float, int]]


class Sample(msgspec.Struct, kw_only=True):
    """One thing as it is kept: everything since `since`, and the last hour by the minute."""

    since: int
    total: dict[str, object]
    minutes: dict[str, dict[str, object]] = {}
    names: list[str] = []

    def all(self) -> Histogram:
        return Histogram.from_plain(self.total)

    def last(self, span: int, now: int) -> Histogram:
        """What was measured in about the last `span` (ms, at most an hour): whole minutes."""
        first = (now - span) // MINUTE
        recent = (plain for minute, plain in self.minutes.items() if int(minute) > first)
        return merged(Histogram.from_plain(plain) for plain in recent)


_decode = msgspec.json.Decoder(Sample).decode


class Recorder:
    """What this process has measured and not added yet."""

    def __init__(self, engine: Engine, before_flush: Callable[[], None] = lambda: None) -> None:
        self._engine = engine
        self._before_flush = before_flush
        self._pending: dict[str, Histogram] = {}
        #: What was sent under a name, and not answered for.
        self._sent: dict[str, tuple[str, Histogram]] = {}
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._overflowed = False

    # --- measuring --------------------------------------------------------------------------

    def add(self, key: str, spans: Spans) -> None:
        """Measured: these spans of this thing, such as `wait:emails`."""
        with self._lock:
            histogram = self._pending.get(key) or self._made(key)
            for span, weight in spans:
                histogram.add(span, weight)
        if self._thread is None or not self._thread.is_alive():
            self._start()

    def _made(self, key: str) -> Histogram:
        if len(self._pending) < _MOST:
            return self._pending.setdefault(key, Histogram())
        if not self._overflowed:
            self._overflowed = True
            log.warning("too many things to measure", extra={"event": "telemetry.overflow", "count": _MOST})
        return Histogram()

    # --- adding to the store ----------------------------------------------------------------

    def flush(self) -> None:
        """Add what was measured to the store; what fails is kept for the next time."""
        self._before_flush()
        with self._flushing:
            with self._lock:
                pending, self._pending = self._pending, {}
            for key, histogram in pending.items():
                self._keep(key, histogram)
            for key, (name, histogram) in list(self._sent.items()):
                if self._added(key, name, histogram):
                    del self._sent[key]

    def _keep(self, key: str, histogram: Histogram) -> None:
        """Behind what was sent before: that must arrive under its own name first, or be found to have."""
        if key in self._sent and self._added(key, *self._sent[key]):
            del self._sent[key]
        if key in self._sent:
            with self._lock:
                newer = self._pending.get(key)
                if newer:
                    histogram.merge(newer)
                self._pending[key] = histogram
        else:
            self._sent[key] = new_token(), histogram

    def _added(self, key: str, name: str, histogram: Histogram) -> bool:
        try:
            return any(self._try(key, name, histogram) for _ in range(_TRIES))
        except PostroomError as error:
            extra = {"event": "telemetry.not_kept", "key": key, "error": str(error)}
            log.log(logging.DEBUG if isinstance(error, Closed) else logging.INFO, "not kept", extra=extra)
            return False

    def _try(self, key: str, name: str, histogram: Histogram) -> bool:
        records, now = self._engine.records, self._engine.now()
        record = records.get(KIND, key)
        sample = _decode(record.value) if record else Sample(since=now, total=Histogram().to_plain())
        if name in sample.names:
            return True
        value = _fitting(_with(sample, name, histogram, now))
        return records.put(KIND, key, value, ttl=_TTL, expect=record.version if record else 0) is not None

    # --- the thread -------------------------------------------------------------------------

    def _start(self) -> None:
        with self._lock:
            if self._stop.is_set() or (self._thread and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._run, name="postroom-telemetry", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(EVERY):
            try:
                self.flush()
            except Exception:  # whatever an engine raises, measuring goes on
                log.warning("telemetry failed", exc_info=True, extra={"event": "telemetry.failed"})

    def close(self) -> None:
        """Add what is left, and stop."""
        self._stop.set()
        thread = self._thread
        if thread and thread is not threading.current_thread():
            thread.join()
        self.flush()

    def after_fork_in_child(self) -> None:
        """What the parent has measured is the parent's to add."""
        self._lock, self._flushing, self._thread = threading.Lock(), threading.Lock(), None
        self._pending, self._sent = {}, {}


def _with(sample: Sample, name: str, histogram: Histogram, now: int) -> Sample:
    minute = now // MINUTE
    minutes = {at: plain for at, plain in sample.minutes.items() if int(at) > minute - KEPT}
    for_now = minutes.get(str(minute))
    minutes[str(minute)] = _sum(for_now, histogram)
    names = [*sample.names, name][-_NAMES:]
    return Sample(since=sample.since, total=_sum(sample.total, histogram), minutes=minutes, names=names)


def _fitting(sample: Sample) -> bytes:
    """The sample as it is kept. Spans of all lengths, minute for minute, could be too much for a record: then
    the minutes tell them less exactly, which is better than not at all; the total stays as it is."""
    value = msgspec.json.encode(sample)
    for step in _COARSER:
        if len(value) <= MAX_RECORD:
            break
        minutes = {
            minute: Histogram.from_plain(plain).coarser(step).to_plain()
            for minute, plain in sample.minutes.items()
        }
        value = msgspec.json.encode(msgspec.structs.replace(sample, minutes=minutes))
    return value


def _sum(plain: Mapping[str, object] | None, histogram: Histogram) -> dict[str, object]:
    return merged([*([Histogram.from_plain(plain)] if plain else []), histogram]).to_plain()


def read(engine: Engine, prefix: str) -> dict[str, Sample]:
    """All samples whose key begins with this, such as `wait:`, by the rest of the key; at most 1,000."""
    records = engine.records.list(KIND, after=prefix, limit=MAX_BATCH)
    return {
        record.key.removeprefix(prefix): _decode(record.value)
        for record in records
        if record.key.startswith(prefix)
    }
