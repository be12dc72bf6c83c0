"""What one queue promises, and the pure decisions that follow from it. No I/O, no clock.

A policy is stored with its queue (`declare`), so that every consumer and the keeper know it. The
text form (`to_text`, `from_text`) is the same in postroom.toml, in every store and on the screen.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from postroom.backoff import Backoff
from postroom.duration import Duration, format_duration, milliseconds
from postroom.errors import InvalidInput
from postroom.limits import EPOCH, MAX_ATTEMPTS, MAX_PRIORITY, check_name
from postroom.model import Failure

_DEFAULT_ATTEMPTS = 3
LABELS = {"low": 0, "normal": 5, "high": 10}
OnExpire = Literal["dead", "drop"]

_RATE = re.compile(r"\s*(\d{1,9})\s*/\s*(s|m|h)\s*", re.ASCII)
_PER = {"s": 1_000, "m": 60_000, "h": 3_600_000}
_TICKS = 32
_MAX_AGING = 10 * 365 * 86_400_000
#: As much as fits beside a dead letter on a screen.
_MAX_WORDS = 1_000
#: One level outranks every sequence number that fits into 45 bits: strict priority.
_STRICT = 2**45


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second, minute or hour. The bucket of claims holds one second's worth, at least one.

    A bucket is kept in whole numbers, so that every engine counts alike: a millisecond earns
    `count`, a claim costs `per`, and it is full at `full`.
    """

    count: int
    per: int

    @classmethod
    def parse(cls, text: str, name: str = "rate") -> Rate:
        match = _RATE.fullmatch(text) if isinstance(text, str) else None
        if not match or int(match[1]) == 0:
            raise InvalidInput(f'{name}: {text!r} is not a rate such as "100/s", "30/m" or "500/h"')
        return cls(int(match[1]), _PER[match[2]])

    @property
    def full(self) -> int:
        return max(self.per, self.count * 1_000)

    @property
    def burst(self) -> int:
        """How many claims a full bucket allows at once."""
        return self.full // self.per

    def __str__(self) -> str:
        unit = next(unit for unit, per in _PER.items() if per == self.per)
        return f"{self.count}/{unit}"


@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """What a queue promises. The constructor takes any duration; the attributes are milliseconds.

    lease           a consumer that is silent for this long is taken for dead
    ack_timeout     work may take this long, counted from its start; None: as long as it likes
    max_attempts    starts that may fail or run out before the message is kept as a dead letter
    retries         the same, counted in retries: n retries are n + 1 attempts
    backoff         "5s" or "2^n * 5s", n from 0; at most backoff_cap; jitter: evenly from 0
    labels          names for priorities (0–255, higher is more urgent); a put is "normal"
    aging           None: strict priority; a span: one level is worth that much waiting
    capacity        the most that may wait (ready + scheduled); a put beyond it is QueueFull
    warn_depth      a waiting number that is worth a warning in the log
    rate            claims a second, minute or hour: "100/s"
    put_rate        puts a second, minute or hour of each `rate_key`, a whole span's worth at once
    max_in_flight   the most that may be leased at once
    on_expire       what becomes of a message nobody took before it expired: "dead" or "drop"
    sla_p95         the wait that 95 of 100 messages should stay below
    dead_letter     the name under which this queue's dead letters are viewed
    dead_retention  how long dead letters are kept (None: no limit by age)
    dead_limit      how many are kept (None: no limit by count)
    on_dead         what an operator should do about a dead letter of this queue, in words
    dedupe_window   how long an id is remembered after its message is gone
    keep_done       how long finished messages can still be looked at
    suspect_after   unstarted run-outs after which a message is handled as a suspect
    """

    lease: int
    ack_timeout: int | None
    max_attempts: int
    backoff: Backoff
    jitter: bool
    labels: Mapping[str, int]
    aging: int | None
    capacity: int | None
    warn_depth: int | None
    rate: Rate | None
    put_rate: Rate | None
    max_in_flight: int | None
    on_expire: OnExpire
    sla_p95: int | None
    dead_letter: str
    dead_retention: int | None
    dead_limit: int | None
    on_dead: str | None
    dedupe_window: int
    keep_done: int
    suspect_after: int

    def __init__(
        self,
        *,
        lease: Duration = "30s",
        ack_timeout: Duration | None = "30s",
        max_attempts: int | None = None,
        retries: int | None = None,
        backoff: str = "2^n * 5s",
        backoff_cap: Duration = "1h",
        jitter: bool = True,
        labels: Mapping[str, int] = LABELS,
        aging: Duration | None = None,
        capacity: int | None = None,
        warn_depth: int | None = None,
        rate: str | None = None,
        put_rate: str | None = None,
        max_in_flight: int | None = None,
        on_expire: OnExpire = "dead",
        sla_p95: Duration | None = None,
        dead_letter: str = "dead",
        dead_retention: Duration | None = None,
        dead_limit: int | None = 100_000,
        on_dead: str | None = None,
        dedupe_window: Duration = 0,
        keep_done: Duration = 0,
        suspect_after: int = 3,
    ) -> None:
        self._set(
            lease=_positive("lease", lease),
            ack_timeout=_optional("ack_timeout", ack_timeout),
            max_attempts=_attempts(max_attempts, retries),
            backoff=Backoff.parse(backoff, milliseconds(backoff_cap, "backoff_cap")),
            jitter=_flag("jitter", jitter),
            labels=_labels(labels),
            aging=_aging(aging),
            capacity=_count("capacity", capacity),
            warn_depth=_count("warn_depth", warn_depth),
            rate=_rate("rate", rate),
            put_rate=_rate("put_rate", put_rate),
            max_in_flight=_count("max_in_flight", max_in_flight),
            on_expire=_on_expire(on_expire),
            sla_p95=_optional("sla_p95", sla_p95),
            dead_letter=check_name(dead_letter, "dead_letter"),
            dead_retention=_optional("dead_retention", dead_retention),
            dead_limit=_count("dead_limit", dead_limit),
            on_dead=_words("on_dead", on_dead),
            dedupe_window=milliseconds(dedupe_window, "dedupe_window"),
            keep_done=milliseconds(keep_done, "keep_done"),
            suspect_after=_whole("suspect_after", suspect_after),
        )

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def to_text(self) -> dict[str, Any]:
        """Every setting as people write it; None: off."""
        text: dict[str, Any] = {"backoff_cap": format_duration(self.backoff.cap)}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _SPANS and value is not None:
                value = format_duration(value)
            elif field.name in ("backoff", "rate", "put_rate") and value is not None:
                value = str(value)
            text[field.name] = dict(value) if field.name == "labels" else value
        return text

    @classmethod
    def from_text(cls, text: Mapping[str, Any]) -> Policy:
        """The policy that `to_text` described. Settings of a newer release are passed over."""
        return cls(**{name: value for name, value in text.items() if name in SETTINGS})

    def priority(self, wanted: str | int) -> int:
        """The number behind a label, or the number itself."""
        if isinstance(wanted, str):
            if wanted not in self.labels:
                known = ", ".join(self.labels)
                raise InvalidInput(f"priority: {wanted!r} is not one of {known} or a number")
            return self.labels[wanted]
        if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= MAX_PRIORITY:
            raise InvalidInput(f"priority: {wanted!r} is not a label or a number from 0 to {MAX_PRIORITY}")
        return wanted

    def order(self, priority: int, seq: int) -> int:
        """The static rank of a message: lower is claimed sooner, and nothing is ever re-ranked."""
        level = _STRICT if self.aging is None else self.aging * _TICKS
        return (MAX_PRIORITY - priority) * level + seq

    @property
    def watches_depth(self) -> bool:
        """Whether a put has to know how many wait."""
        return self.capacity is not None or self.warn_depth is not None

    def is_suspect(self, ran_out: int, strays: int) -> bool:
        """Whether a message may be what kills its consumers."""
        return ran_out > 0 or strays >= self.suspect_after

    def deadline(self, now: int, lease: int | None, ack_deadline: int | None) -> int:
        """When a delivery is overdue. A consumer without a heartbeat has no lease, only its ack_timeout."""
        if lease is None:
            return now + self.lease if ack_deadline is None else ack_deadline
        return now + lease if ack_deadline is None else min(now + lease, ack_deadline)

    def grace(self, silence: int) -> int:
        """How long nothing is reclaimed after no call came for `silence`.

        A store that was away for half a lease has met nobody's heartbeat: that says nothing about
        who died, so the living get a third of a lease to report first.
        """
        return self.lease // 3 if silence > self.lease // 2 else 0


SETTINGS = frozenset(Policy.__init__.__kwdefaults__ or ())
_SPANS = frozenset(
    {"lease", "ack_timeout", "aging", "sla_p95", "dead_retention", "dedupe_window", "keep_done"}
)


def _rate(name: str, value: str | None) -> Rate | None:
    return None if value is None else Rate.parse(value, name)


def _positive(name: str, value: Duration) -> int:
    span = milliseconds(value, name)
    if span == 0:
        raise InvalidInput(f"{name}: must be longer than nothing")
    return span


def _optional(name: str, value: Duration | None) -> int | None:
    return None if value is None else _positive(name, value)


def _aging(value: Duration | None) -> int | None:
    span = _optional("aging", value)
    if span is not None and span > _MAX_AGING:
        raise InvalidInput("aging: more than ten years is as good as strict; leave it off")
    return span


def _whole(name: str, value: int, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{name}: {value!r} is not a whole number from {least}")
    return value


def _count(name: str, value: int | None) -> int | None:
    return None if value is None else _whole(name, value)


def _flag(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{name}: {value!r} is neither true nor false")
    return value


def _on_expire(value: OnExpire) -> OnExpire:
    if value not in ("dead", "drop"):
        raise InvalidInput(f'on_expire: {value!r} is neither "dead" nor "drop"')
    return value


def _words(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > _MAX_WORDS:
        raise InvalidInput(f"{name}: expected text of at most {_MAX_WORDS:,} characters, not {value!r:.80}")
    return value.encode("utf-8", "replace").decode()


def _attempts(max_attempts: int | None, retries: int | None) -> int:
    if retries is not None:
        if max_attempts is not None:
            raise InvalidInput("give max_attempts or retries, not both (n retries are n + 1 attempts)")
        max_attempts = _whole("retries", retries, 0) + 1
    attempts = _DEFAULT_ATTEMPTS if max_attempts is None else _whole("max_attempts", max_attempts)
    if attempts > MAX_ATTEMPTS:
        raise InvalidInput(f"max_attempts: {attempts} is more than {MAX_ATTEMPTS}")
    return attempts


def _labels(labels: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(labels, Mapping):
        raise InvalidInput(f"labels: expected names with their numbers, not {labels!r:.80}")
    for label, value in labels.items():
        check_name(label, "label")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_PRIORITY:
            raise InvalidInput(f"labels: {label} = {value!r} is not a number from 0 to {MAX_PRIORITY}")
    if "normal" not in labels:
        raise InvalidInput('labels: "normal" is missing; it is what a plain put gets')
    return dict(labels)


def ticks(at: int) -> int:
    """An instant on the scale of sequence numbers: 32 a millisecond since 2025."""
    return (at - EPOCH) * _TICKS if at > EPOCH else 0


def next_seq(last: int, now: int) -> int:
    """The sequence number of a message that becomes ready now, after `last`."""
    floor = (now - EPOCH) * _TICKS
    return floor if floor > last else last + 1


def due_seq(last: int, now: int, due: int) -> int:
    """The sequence number of a message that was due at `due` and becomes ready now.

    It stands where it would have been had it been put when due — unless a burst has driven the
    numbers ahead of the clock: then behind that burst, or it would overtake earlier messages.
    """
    return last + 1 if last >= ticks(now + 1) else ticks(due)


def exhausted(attempt: int, max_attempts: int) -> bool:
    """Retry or bury: whether the attempts made so far use up what the message may have."""
    return attempt >= max_attempts


_TOO_SLOW = Failure(type="AckTimeout", text="attempts used up: the work took longer than its ack_timeout")
_SILENT = Failure(type="LeaseExpired", text="attempts used up: the consumer went silent")
_EXPIRED = Failure(type="Expired", text="nobody took the message before it expired")


def ran_out_failure(kind: str, *, too_slow: bool, failed_at: int) -> Failure:
    """The failure of a delivery that was reclaimed: the work too slow, or the consumer silent."""
    return stamped(_TOO_SLOW if too_slow else _SILENT, kind, failed_at)


def expired_failure(kind: str, failed_at: int) -> Failure:
    return stamped(_EXPIRED, kind, failed_at)


def stamped(failure: Failure, kind: str, failed_at: int) -> Failure:
    """The failure as it is kept: with the engine's time and its group."""
    group = failure.fingerprint or fingerprint(kind, failure)
    return msgspec.structs.replace(failure, fingerprint=group, failed_at=failed_at)


def fingerprint(kind: str, failure: Failure) -> str:
    """The group of a dead letter: failures alike, of messages of one kind."""
    import hashlib  # here and not above: most programs never fail, and it takes OpenSSL to load

    whole = f"{kind}\0{failure.signature}"
    return hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest()[:16]
