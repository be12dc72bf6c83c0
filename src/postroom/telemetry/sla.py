"""What the queues promise about waiting, and what they keep: p95 of first attempts against `sla_p95`."""

from __future__ import annotations

import msgspec

from postroom.engine import Engine
from postroom.errors import InvalidInput
from postroom.telemetry import samples
from postroom.telemetry.histogram import Histogram, merged


class Sla(msgspec.Struct, frozen=True, kw_only=True):
    """How long the first attempts of one queue waited; spans are milliseconds.

    `target` is the policy's `sla_p95` (None: it promises nothing), `p95` is None while nothing was measured.
    """

    queue: str
    target: int | None
    p95: int | None
    p50: int | None
    count: int
    #: The part that waited no longer than the target.
    within: float | None

    @property
    def met(self) -> bool | None:
        """Whether the promise is kept; None: nothing is promised, or nothing was measured."""
        return None if self.target is None or self.p95 is None else self.p95 <= self.target


def read_sla(engine: Engine, span: int) -> list[Sla]:
    """Every queue over about the last `span` (ms): what all processes have measured.

    Raises InvalidInput for more than an hour: older measurements are not kept by the minute.
    """
    if span > samples.KEPT * samples.MINUTE:
        raise InvalidInput("over: measurements are kept for an hour, so it is at most 1h")
    now, waits = engine.now(), samples.read(engine, "wait:")
    return [_sla(info.name, info.policy.sla_p95, waits.get(info.name), span, now) for info in engine.queues()]


def _sla(queue: str, target: int | None, sample: samples.Sample | None, span: int, now: int) -> Sla:
    waits = sample.last(span, now) if sample else Histogram()
    return Sla(
        queue=queue,
        target=target,
        p95=_ms(waits.percentile(95)),
        p50=_ms(waits.percentile(50)),
        count=waits.count,
        within=waits.share_within(target / 1_000) if target and waits.count else None,
    )


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """How long first attempts waited in one minute (ms)."""

    at: int
    count: int
    p50: int | None
    p95: int | None


def read_waits(engine: Engine, queue: str | None = None) -> list[Wait]:
    """The last hour by the minute, of one queue or of all together; minutes without any are left out."""
    kept = samples.read(engine, "wait:")
    minutes: dict[int, list[Histogram]] = {}
    for name, sample in kept.items():
        if queue in (None, name):
            for minute, plain in sample.minutes.items():
                minutes.setdefault(int(minute), []).append(Histogram.from_plain(plain))
    return [_wait(minute, merged(found)) for minute, found in sorted(minutes.items())]


def _wait(minute: int, waits: Histogram) -> Wait:
    p50, p95 = _ms(waits.percentile(50)), _ms(waits.percentile(95))
    return Wait(at=minute * samples.MINUTE, count=waits.count, p50=p50, p95=p95)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000)
