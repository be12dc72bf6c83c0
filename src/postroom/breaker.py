"""A breaker stops calls to something that fails, and lets a few through later, to see whether it works again.

    psp = Breaker("psp", threshold=5, cooldown="30s")       in this process
    psp = Breaker("psp", room=room)                         one for all processes of the room

    with psp:                                               BreakerOpen while it is open
        charge(invoice)

    Worker(room, {"payouts": pay}, breakers={"payouts": psp})   claims nothing while it is open

CLOSED: calls pass; `threshold` failures within `window`, without a success between them, open it.
OPEN: calls are refused for the `cooldown`. HALF_OPEN: `probes` calls at a time pass; the first success
closes it, a failure opens it again. No process trusts another's clock: each waits for a cooldown from
the moment at which it learnt of the present state, and a probe that was not heard of again for a
cooldown is given to somebody else.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Self, TypeVar, cast

import msgspec

from postroom import audit
from postroom.duration import Duration, milliseconds
from postroom.engine import Engine
from postroom.errors import BreakerOpen, InvalidInput, PostroomError, Verdict
from postroom.ids import new_token
from postroom.limits import check_between, check_name, cut_text
from postroom.standing import CALLS, Call, Here, Outcome, Shared, Standing, State, Step

if TYPE_CHECKING:
    from postroom.room import Room

log: logging.Logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: The topic that tells of the changes of shared breakers.
TOPIC = "breaker"
_MAX_THRESHOLD = 1_000
#: How much of an error is kept with the call that had it.
_TOLD = 80


class Change(NamedTuple):
    """A breaker came into another state."""

    name: str
    before: State
    after: State
    at: int
    reason: str


class _Told(msgspec.Struct):
    """A change as it is published."""

    name: str
    before: State
    after: State
    at: int
    reason: str


OnChange = Callable[[Change], object]

#: The calls under way in this thread or task, the newest last: the breaker, and in which of its trials the
#: call is a probe; 0: it is none.
_under_way: ContextVar[tuple[tuple[Breaker, int], ...]] = ContextVar("postroom_breaker_calls", default=())


class Breaker:
    """One breaker. Threads may share it; in a process, make one for a name and pass it around.

    threshold  so many failures open it ...
    window     ... within this span and without a success
    cooldown   how long it stays open before it is tried again
    probes     how many calls at a time may try
    counts     whether an error is a failure of what it guards; every Exception unless told otherwise.
               Of a verdict (`raise Retry(…) from error`) the cause counts
    room       where it is shared; without one it is this process's own
    on_change  called after every change of state, for metrics
    """

    def __init__(
        self,
        name: str,
        *,
        threshold: int = 5,
        window: Duration = "1m",
        cooldown: Duration = "30s",
        probes: int = 1,
        counts: Callable[[Exception], bool] = lambda error: True,
        room: Room | None = None,
        on_change: OnChange | None = None,
    ) -> None:
        check_between("threshold", threshold, 1, _MAX_THRESHOLD)
        check_between("probes", probes, 1, _MAX_THRESHOLD)
        self.name: str = check_name(name, "breaker name")
        self.threshold = threshold
        self.window: int = _span("window", window)
        self.cooldown: int = _span("cooldown", cooldown)
        self.probes = probes
        self.on_change: list[OnChange] = [on_change] if on_change else []
        self._counts = counts
        self._room = room
        self._home: Here | Shared = Shared(name, room) if room else Here(name)
        self._token = new_token()
        self._lock = threading.Lock()
        self._probing = 0
        #: How often it became half open by us: a probe of an earlier time has no place to give back.
        self._trial = 0
        self._calls: deque[Call] = deque(maxlen=CALLS)

    def __repr__(self) -> str:
        return f"<Breaker {self.name!r}, {self.state}>"

    # --- how it stands ----------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self.standing.state

    @property
    def standing(self) -> Standing:
        return self._look()

    def _look(self) -> Standing:
        standing = self._home.look()
        if self._home.lapsed is not None:
            before, self._home.lapsed = self._home.lapsed, None
            self._tell(Change(self.name, before.state, standing.state, _now(), standing.reason))
        return standing

    def limit(self) -> int | None:
        """How many calls at a time it lets through; None: as many as come. For who takes work for it."""
        return self._limit(self._look())

    def _limit(self, standing: Standing) -> int | None:
        if standing.state is State.CLOSED:
            return None
        waits = standing.forced or (self._left() > 0 and not self._is_ours(standing))
        return 0 if waits else self.probes

    def doubt(self) -> None:
        """Another process may have changed it: have the next look ask, for who is told by how work ends."""
        self._home.doubt()

    def retry_after(self) -> float:
        """When to ask again (seconds); 0: now."""
        return 0.0 if self.limit() != 0 else self._patience(self._look())

    def _patience(self, standing: Standing) -> float:
        # A probe mostly ends long before it is given up, and so does a person's reason to open it.
        soon = standing.forced or standing.state is State.HALF_OPEN
        return min(1.0, self.cooldown / 1_000) if soon else max(0.001, self._left())

    def _is_ours(self, standing: Standing) -> bool:
        return standing.state is State.HALF_OPEN and standing.prober == self._prober

    @property
    def _prober(self) -> str:
        return f"{self._token}.{os.getpid()}"  # a fork has the token of its parent

    def _left(self) -> float:
        """What is left of the cooldown since this process knows of the present state (seconds)."""
        return self._home.seen_at + self.cooldown / 1_000 - time.monotonic()

    # --- calls ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        trial = 0 if self._look().state is State.CLOSED else self._probe()
        _under_way.set((*_under_way.get(), (self, trial)))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        trial = self._ended()
        if error is None:
            self.succeeded()
        elif (cause := _failure(error)) and self._counts(cause):
            self.failed(cause)
        elif trial:
            self._give_back(trial)

    def _ended(self) -> int:
        """The newest call of this thread or task is over; in which trial it was a probe."""
        calls = _under_way.get()
        for place in reversed(range(len(calls))):
            if calls[place][0] is self:
                _under_way.set(calls[:place] + calls[place + 1 :])
                return calls[place][1]
        return 0  # it began in another context: its place is free again after a cooldown

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Guard every call of a function; a decorator."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def guarded_coroutine(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return cast(Callable[P, T], guarded_coroutine)

        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            with self:
                return function(*args, **kwargs)

        return guarded

    def _probe(self) -> int:
        """Be one of the probes, and say of which trial; 0: there is nothing to try any more.

        Raises BreakerOpen when it is too early or enough are under way.
        """
        with self._lock:
            changed = self._take_probe()
            trial = self._trial if self._probing else 0
        if changed:  # told without the lock: a hook may make a guarded call of its own
            self._tell(changed)
        return trial

    def _take_probe(self) -> Change | None:
        """The same under the lock; the change that it made, to be told."""
        before = self._home.look()
        if before.state is State.CLOSED:
            return None
        going = self._is_ours(before) and self._left() > 0
        if not self._limit(before) or (going and self._probing >= self.probes):
            self._refused()
            what = f"breaker {self.name!r} is {before.state}: {before.reason or 'no reason given'}"
            raise BreakerOpen(what, retry_after=self._patience(before))
        if not going:
            return self._become_prober(before)
        self._probing += 1
        return None

    def _become_prober(self, before: Standing) -> Change | None:
        """Half open, by us. Only from what was seen here: of several who try at once, one succeeds."""
        ours = Standing(
            state=State.HALF_OPEN,
            since=_now(),
            reason=before.reason,
            prober=self._prober,
            calls=before.calls_with(self._calls),
        )
        changed, after = self._step(lambda now: ours if now == before else now)
        if after.state is State.CLOSED:
            return None
        if after is not ours:
            self._refused()
            raise BreakerOpen(f"breaker {self.name!r} is being tried by another process")
        self._probing = 1
        self._trial += 1
        return changed

    def _give_back(self, trial: int) -> None:
        """A probe of this trial ended without saying anything about what is guarded."""
        with self._lock:
            if trial == self._trial:
                self._probing = max(0, self._probing - 1)

    # --- what calls have shown --------------------------------------------------------------

    def succeeded(self) -> None:
        """What it guards works: closes a half-open breaker, forgets the failures of a closed one."""
        self._calls.append(Call(time.time_ns() / 1e6, Outcome.OK))
        standing = self._look()
        if standing.state is State.CLOSED and not standing.failures:
            return
        self._change(self._after_success)

    def failed(self, error: BaseException | str) -> None:
        """What it guards has failed."""
        reason = cut_text(error if isinstance(error, str) else f"{type(error).__name__}: {error}", "reason")
        self._calls.append(Call(time.time_ns() / 1e6, Outcome.FAILURE, reason[:_TOLD]))
        self._change(functools.partial(self._after_failure, reason))

    def _refused(self) -> None:
        """Of refusals in a row the first is enough: they must not push out what led to them."""
        calls = tuple(self._calls)
        if not calls or calls[-1].outcome is not Outcome.REFUSED:
            self._calls.append(Call(time.time_ns() / 1e6, Outcome.REFUSED))

    def open(self, reason: str = "", *, expires: Duration | None = None) -> None:
        """Open it until `close`, or for so long: no cooldown ends that. Of a shared one the store's clock
        decides, and each process learns of it within a second. Without a reason, the one of `audit.watched`.
        """
        lasts = 0 if expires is None else _span("expires", expires)
        reason = cut_text(reason or audit.why(), "reason") or "opened by hand"
        now, forced = _now(), functools.partial(Standing, state=State.OPEN, forced=True, reason=reason)
        forced = functools.partial(forced, since=now, lasts=lasts, until=now + lasts if lasts else 0)
        self._change(lambda before: forced(calls=before.calls_with(self._calls)))
        self._note("open_breaker", reason, **({"lasts": lasts} if lasts else {}))

    def close(self, reason: str = "") -> None:
        """Close it and forget its failures. Without a reason, the one of `audit.watched`."""
        reason = cut_text(reason or audit.why(), "reason") or "closed by hand"
        self._change(lambda now: Standing(since=_now(), reason=reason, calls=now.calls_with(self._calls)))
        self._note("close_breaker", reason)

    def _note(self, event: str, reason: str, **more: int) -> None:
        if self._room:
            audit.note(self._room.engine, event, "", 1, breaker=self.name, reason=reason, **more)

    def _after_success(self, standing: Standing) -> Standing:
        if standing.state is State.OPEN:
            return standing  # a call from before: it does not shorten the cooldown
        since = standing.since if standing.state is State.CLOSED else _now()
        return Standing(since=since, reason="a call succeeded", calls=standing.calls_with(self._calls))

    def _after_failure(self, reason: str, standing: Standing) -> Standing:
        now = _now()
        if standing.state is State.OPEN:
            return standing
        recent = (at for at in standing.failures if at > now - self.window)
        failures = (*recent, now)[-self.threshold :]
        made = functools.partial(
            Standing, threshold=self.threshold, reason=reason, calls=standing.calls_with(self._calls)
        )
        if standing.state is State.HALF_OPEN or len(failures) >= self.threshold:
            return made(state=State.OPEN, since=now, until=now + self.cooldown)
        return made(failures=failures, since=standing.since)

    def _change(self, step: Step) -> None:
        changed, _ = self._step(step)
        if changed:
            self._tell(changed)

    def _step(self, step: Step) -> tuple[Change | None, Standing]:
        """Change how it stands; the change of state, which is still to be told, and how it stands now."""
        before, after = self._home.change(step)
        if before.state is after.state:
            return None, after
        if after.state is not State.HALF_OPEN:
            self._probing = 0
        return Change(self.name, before.state, after.state, _now(), after.reason), after

    def _tell(self, change: Change) -> None:
        level = logging.INFO if change.after is State.CLOSED else logging.WARNING
        event = {"event": "breaker.changed", "breaker": self.name, "before": change.before.value}
        extra = {**event, "after": change.after.value, "reason": change.reason}
        log.log(level, "breaker %r is %s: %s", self.name, change.after, change.reason, extra=extra)
        if self._room:
            # The store may be what fails; then the log has it.
            with contextlib.suppress(PostroomError):
                self._room.engine.publish(TOPIC, [msgspec.json.encode(change._asdict())])
        for hook in self.on_change:
            try:
                hook(change)
            except Exception:  # whatever a hook does, the call that is guarded goes on
                log.exception(
                    "a hook of breaker %r failed", self.name, extra={"event": "breaker.hook_failed"}
                )


def changes(engine: Engine, name: str | None = None, limit: int = 1_000) -> list[Change]:
    """What shared breakers went through, or one of them: the newest `limit` of a day, oldest first."""
    kept: deque[Change] = deque(maxlen=limit)
    cursor = ""
    while (page := engine.read(TOPIC, after=cursor, limit=1_000)).entries:
        cursor = page.cursor
        found = (change for entry in page.entries if (change := _change_of(entry.data)))
        kept += (change for change in found if name in (None, change.name))
    return list(kept)


def _change_of(data: bytes) -> Change | None:
    try:
        return Change(*msgspec.structs.astuple(msgspec.json.decode(data, type=_Told)))
    except msgspec.DecodeError:  # whoever publishes to the topic itself may write what they like
        return None


class Breakers:
    """Breakers by name, made alike when they are first asked for: one for every provider."""

    def __init__(self, room: Room | None = None, **rules: Any) -> None:
        """`rules` are those of `Breaker`."""
        self._room = room
        self._rules = rules
        self._known: dict[str, Breaker] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Breaker:
        with self._lock:
            if name not in self._known:
                self._known[name] = Breaker(name, room=self._room, **self._rules)
            return self._known[name]

    def __iter__(self) -> Iterator[Breaker]:
        with self._lock:
            return iter(list(self._known.values()))


def _failure(error: BaseException) -> Exception | None:
    """What an error says about what is guarded; None: nothing."""
    cause = error.__cause__ if isinstance(error, Verdict) else error
    return cause if isinstance(cause, Exception) else None


def _span(name: str, value: Duration) -> int:
    span = milliseconds(value, name)
    if span == 0:
        raise InvalidInput(f"{name}: must be longer than nothing")
    return span


def _now() -> int:
    return time.time_ns() // 1_000_000
