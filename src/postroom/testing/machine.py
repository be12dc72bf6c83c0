"""Random operations on an engine, side by side with the memory engine and against a ledger.

Every step is done on the engine under test and on the oracle, both on one clock; the answers, the
pages, the statistics and the log must be the same (tokens aside). The ledger needs no oracle, so
that the memory engine itself is tested too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from postroom.engine import ClaimRequest, Engine
from postroom.engines.memory import MemoryEngine
from postroom.errors import PostroomError, QueueFull
from postroom.logs import LogEntry
from postroom.model import (
    EXPECTED,
    Action,
    Claimed,
    Entry,
    Move,
    NewMessage,
    Outcome,
    Receipt,
    Settlement,
    State,
)
from postroom.policy import Policy
from postroom.testing.clock import ManualClock
from postroom.testing.draws import (
    ENDINGS,
    MESSAGES,
    ONE_IN_FOUR,
    PICK,
    PICKS,
    POLICIES,
    REQUESTS,
    SPANS,
    Ending,
)
from postroom.testing.ledger import Ledger

T = TypeVar("T")

QUEUE = "machine"

#: Enough to meet every pair of rules often, little enough for every run of the tests. The histories
#: are the same in every run, so that a red one can be repeated; whoever wants to explore gives more
#: examples and `derandomize=False`.
MACHINE_SETTINGS = settings(
    derandomize=True,
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class Held(NamedTuple):
    """One delivery as a consumer keeps it: a receipt of the engine under test, and the oracle's."""

    ours: Receipt
    theirs: Receipt


class EngineMachine(RuleBasedStateMachine):
    """Subclass it, implement `make_engine`, and let pytest collect `YourMachine.TestCase`."""

    def make_engine(self, clock: ManualClock) -> Engine:
        """Open an empty store; `clock` gives its time."""
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.clock: ManualClock = ManualClock()
        self.engine: Engine = self.make_engine(self.clock)
        self.oracle: Engine = MemoryEngine(self.clock)
        self.ledger: Ledger = Ledger(Policy())
        self.held: list[Held] = []
        self.stale: list[Held] = []
        self.ids: list[str] = []
        self.logged_at: list[int] = [0, 0]
        self.cursors: list[str] = [self.engine.log(QUEUE).cursor, self.oracle.log(QUEUE).cursor]

    def teardown(self) -> None:
        self.engine.close()
        self.oracle.close()

    # --- both at once -----------------------------------------------------------------------

    def both(self, call: Callable[[Engine, int], T]) -> tuple[T | PostroomError, T | PostroomError]:
        """The same call on the engine under test (0) and on the oracle (1), errors as answers."""
        self.ledger.tick(self.clock())
        return _answer(call, self.engine, 0), _answer(call, self.oracle, 1)

    def same(self, call: Callable[[Engine, int], T]) -> T | PostroomError:
        """A call whose answers must be equal."""
        ours, theirs = self.both(call)
        assert _comparable(ours) == _comparable(theirs)
        return ours

    def receive(self, ours: Claimed, theirs: Claimed, request: ClaimRequest) -> None:
        """Compare two claims but for their tokens, and keep the receipts."""
        assert _without_tokens(ours) == _without_tokens(theirs)
        self.ledger.claimed(ours.deliveries, request, self.clock())
        for mine, other in zip(ours.deliveries, theirs.deliveries, strict=True):
            self.held.append(Held(mine.receipt, other.receipt))

    def pick(self, number: int) -> Held:
        """A receipt: mostly one that may still be good, sometimes one that cannot."""
        stale = self.stale and (not self.held or number % 5 == 4)
        pool = self.stale[-4:] if stale else self.held
        return pool[number // 5 % len(pool)]

    def pick_id(self, number: int, state: State) -> str:
        """An id that is in this state (done: one that is gone), if one is; else any."""
        if state is State.DONE:
            there = [id for id, known in self.ledger.known.items() if known.fate]
        else:
            there = [entry.message.id for entry in self.ledger.last[state]]
        return (there or self.ids)[number % len(there or self.ids)]

    def settlements(self, endings: Sequence[Ending]) -> list[list[Settlement]]:
        """The same settlements for both sides."""
        picked = [self.pick(ending.number) for ending in endings]
        return [
            [
                Settlement(held[side], ending.verb, ending.delay, failure=ending.failure)
                for held, ending in zip(picked, endings, strict=True)
            ]
            for side in (0, 1)
        ]

    def after_settle(self, settlements: Sequence[Settlement], outcomes: Sequence[Outcome]) -> None:
        for settlement, outcome in zip(settlements, outcomes, strict=True):
            self.ledger.settled(settlement, outcome, self.clock())
            done = [held for held in self.held if held.ours == settlement.receipt]
            self.held = [held for held in self.held if held not in done]
            self.stale += done

    # --- producers --------------------------------------------------------------------------

    @initialize(policy=POLICIES, fields=st.lists(MESSAGES, min_size=6, max_size=6))
    def declare(self, policy: dict[str, Any], fields: list[dict[str, Any]]) -> None:
        """A queue with something in it, so that no run is about an empty one."""
        self.ledger = Ledger(Policy(**policy))
        self.same(lambda engine, _: engine.declare(QUEUE, self.ledger.policy))
        self.put(fields)

    @rule(fields=st.lists(MESSAGES, min_size=1, max_size=4))
    def put_some(self, fields: list[dict[str, Any]]) -> None:
        self.put(fields)

    def put(self, fields: list[dict[str, Any]]) -> None:
        self.put_messages([self.new_message(each) for each in fields])

    @rule(count=st.sampled_from([5, 7, 40]), priority=st.sampled_from([5, 6]))
    def put_burst(self, count: int, priority: int) -> None:
        """More than the capacity allows, or more than 32 in one millisecond."""
        self.put_messages([self.new_message({"priority": priority}) for _ in range(count)])

    @precondition(lambda self: self.ids)
    @rule(number=PICK, state=st.sampled_from(State), fields=MESSAGES, twice=st.booleans())
    def put_again(self, number: int, state: State, fields: dict[str, Any], twice: bool) -> None:
        message = NewMessage(id=self.pick_id(number, state), **fields)
        self.put_messages([message, message] if twice else [message])

    def new_message(self, fields: dict[str, Any]) -> NewMessage:
        # Scattered, so that nothing is in order only because its ids are; and the same in every run.
        self.ids.append(hashlib.sha256(b"%d" % len(self.ids)).hexdigest()[:32])
        return NewMessage(id=self.ids[-1], body=self.ids[-1].encode(), **fields)

    def put_messages(self, messages: list[NewMessage]) -> None:
        accepted = self.same(lambda engine, _: engine.put(QUEUE, messages))
        if not isinstance(accepted, PostroomError):
            self.ledger.put(messages, accepted, self.clock())

    # --- consumers --------------------------------------------------------------------------

    @rule(request=REQUESTS)
    def claim(self, request: ClaimRequest) -> None:
        ours, theirs = self.both(lambda engine, _: engine.claim(QUEUE, request))
        assert isinstance(ours, Claimed)
        assert isinstance(theirs, Claimed)
        self.receive(ours, theirs, request)

    @rule(request=REQUESTS, endings=ENDINGS, span=st.sampled_from(["0s", "1ms", "2s"]))
    def work(self, request: ClaimRequest, endings: list[Ending], span: str) -> None:
        """What consumers do most: claim, take some time, settle."""
        self.claim(request)
        self.clock.advance(span)
        if self.held:
            self.settle(endings)

    @precondition(lambda self: self.held or self.stale)
    @rule(endings=ENDINGS)
    def settle_some(self, endings: list[Ending]) -> None:
        self.settle(endings)

    def settle(self, endings: list[Ending]) -> None:
        sides = self.settlements(endings)
        outcomes = self.same(lambda engine, side: engine.settle(QUEUE, sides[side]))
        assert isinstance(outcomes, list)
        self.after_settle(sides[0], outcomes)

    @precondition(lambda self: self.held or self.stale)
    @rule(endings=ENDINGS, starts=PICKS, request=st.none() | REQUESTS)
    def turn(self, endings: list[Ending], starts: list[int], request: ClaimRequest | None) -> None:
        sides, picked = self.settlements(endings), [self.pick(number) for number in starts]
        ours, theirs = self.both(
            lambda engine, side: engine.turn(QUEUE, sides[side], [held[side] for held in picked], request)
        )
        assert not isinstance(ours, PostroomError)
        assert not isinstance(theirs, PostroomError)
        assert ours[:2] == theirs[:2]
        self.after_settle(sides[0], ours.settled)
        for held, outcome in zip(picked, ours.started, strict=True):
            self.ledger.started(held.ours.id, outcome)
        self.receive(ours.claimed, theirs.claimed, request or ClaimRequest(n=0))

    @precondition(lambda self: self.held or self.stale)
    @rule(numbers=PICKS, lease=st.sampled_from([1_000, 4_000, 10_000]))
    def renew(self, numbers: list[int], lease: int) -> None:
        picked = [self.pick(number) for number in numbers]
        self.same(lambda engine, side: engine.renew(QUEUE, [held[side] for held in picked], lease))

    @precondition(lambda self: self.held or self.stale)
    @rule(
        numbers=PICKS,
        span=st.sampled_from([None, 1_000, 30_000]),
        lease=st.sampled_from([None, 4_000]),
        checkpoint=st.sampled_from([None, b"page 7"]),
    )
    def extend(
        self, numbers: list[int], span: int | None, lease: int | None, checkpoint: bytes | None
    ) -> None:
        picked = [self.pick(number) for number in numbers]
        self.same(
            lambda engine, side: engine.extend(
                QUEUE, [held[side] for held in picked], span=span, lease=lease, checkpoint=checkpoint
            )
        )

    @precondition(lambda self: self.ghosts())
    @rule(number=PICK, ending=ENDINGS.map(lambda endings: endings[0]))
    def haunt(self, number: int, ending: Ending) -> None:
        """A ghost with an old receipt settles, renews and starts what others hold now."""
        ghosts = self.ghosts()
        ghost = ghosts[number % len(ghosts)]
        sides = [[Settlement(receipt, ending.verb, ending.delay)] for receipt in ghost]
        outcomes = self.same(lambda engine, side: engine.settle(QUEUE, sides[side]))
        assert outcomes == [Outcome.LOST]
        assert self.same(lambda engine, side: engine.renew(QUEUE, [ghost[side]], 60_000)) == [Outcome.LOST]
        assert self.same(lambda engine, side: engine.turn(QUEUE, [], [ghost[side]], None).started) == outcomes

    def ghosts(self) -> list[Held]:
        """Receipts of deliveries that ended, of messages that are in other hands now."""
        tokens = {id: known.token for id, known in self.ledger.known.items() if known.token}
        leased = {entry.message.id for entry in self.ledger.last[State.PROCESSING]}
        old = (held for held in self.stale if held.ours.id in leased)
        return [held for held in old if tokens.get(held.ours.id) != held.ours.token]

    @precondition(lambda self: self.held)
    @rule()
    def crash(self) -> None:
        """The consumer dies: nobody settles what it held, but a late ghost may try."""
        self.stale, self.held = self.stale + self.held, []

    @rule(limit=st.sampled_from([1, 2, 100]))
    def sweep(self, limit: int) -> None:
        self.same(lambda engine, _: engine.sweep(QUEUE, limit=limit))

    # --- operators --------------------------------------------------------------------------

    @precondition(lambda self: self.ids)
    @rule(
        number=PICK,
        action=st.sampled_from([action for action in Action if action is not Action.MARK_REPLAYED]),
        fitting=st.booleans(),
        delay=st.sampled_from([0, 1, 3_000]),
        replay=st.integers(1, 2),
    )
    def move(self, number: int, action: Action, fitting: bool, delay: int, replay: int) -> None:
        state = min(EXPECTED[action]) if fitting else State.PROCESSING
        move = Move(id=self.pick_id(number, state), action=action, delay=delay, number=replay)
        moved = self.same(lambda engine, _: engine.move(QUEUE, [move]))
        if isinstance(moved, PostroomError):
            assert isinstance(moved, QueueFull)
            return
        self.ledger.moved(move, moved[0], self.clock())
        if moved[0].replayed_as and moved[0].replayed_as not in self.ids:
            self.ids.append(moved[0].replayed_as)
        if moved[0].ok and action is Action.REPLAY:
            assert self.same(lambda engine, _: engine.move(QUEUE, [move])) == moved

    @rule(request=REQUESTS, stay=ONE_IN_FOUR)
    def pause(self, request: ClaimRequest, stay: bool) -> None:
        self.same(lambda engine, _: engine.pause(QUEUE, "why not"))
        self.claim(request)
        if not stay:
            self.resume()

    @precondition(lambda self: self.oracle.stats(QUEUE).paused)
    @rule()
    def resume_at_last(self) -> None:
        self.resume()

    def resume(self) -> None:
        self.same(lambda engine, _: engine.resume(QUEUE))

    @rule(really=ONE_IN_FOUR, fields=st.lists(MESSAGES, min_size=2, max_size=2))
    def purge(self, really: bool, fields: list[dict[str, Any]]) -> None:
        if really:
            count = self.same(lambda engine, _: engine.purge(QUEUE))
            assert isinstance(count, int)
            self.ledger.purged(count)
        self.put(fields)

    # --- time -------------------------------------------------------------------------------

    @rule(span=SPANS)
    def time_passes(self, span: str) -> None:
        self.clock.advance(span)

    @rule(steps=st.integers(1, 8))
    def time_passes_in_touch(self, steps: int) -> None:
        """As it does while consumers live: no silence, no grace."""
        for _ in range(steps):
            self.clock.advance("2500ms")
            self.same(lambda engine, _: engine.renew(QUEUE, [], 10_000))

    @rule(request=REQUESTS, steps=st.integers(2, 9))
    def deliveries_run_out(self, request: ClaimRequest, steps: int) -> None:
        """A consumer takes some and dies; then everybody's deliveries run out and are swept."""
        self.claim(request)
        self.crash()
        self.time_passes_in_touch(steps)
        self.sweep(100)

    @rule(span=st.sampled_from(["1ms", "1s", "20s"]))
    def time_jumps_back(self, span: str) -> None:
        self.clock.set_back(span)

    # --- what must hold after every step ----------------------------------------------------

    @invariant()
    def both_agree(self) -> None:
        stats = self.same(lambda engine, _: engine.stats(QUEUE))
        self.same(lambda engine, _: engine.groups(QUEUE))
        ours, theirs = (
            {state: _find_all(engine, state) for state in State} for engine in (self.engine, self.oracle)
        )
        for state in State:
            assert [_shown(entry) for entry in ours[state]] == [_shown(entry) for entry in theirs[state]]
        assert self.news(0) == self.news(1)
        assert not isinstance(stats, PostroomError)
        self.ledger.check(ours, stats)

    def news(self, side: int) -> list[tuple[Any, ...]]:
        """What the log says since the last step."""
        engine = (self.engine, self.oracle)[side]
        log = engine.log(QUEUE, after=self.cursors[side], limit=1_000)
        self.cursors[side] = log.cursor
        times = [self.logged_at[side], *(entry.at for entry in log.entries)]
        assert times == sorted(times), "an engine's time never goes back"
        self.logged_at[side] = times[-1]
        return [_told(entry) for entry in log.entries]


# ---- What is compared -------------------------------------------------------------------------


def _answer(call: Callable[[Engine, int], T], engine: Engine, side: int) -> T | PostroomError:
    try:
        return call(engine, side)
    except PostroomError as error:
        return error


def _comparable(answer: object) -> object:
    return type(answer) if isinstance(answer, PostroomError) else answer


def _without_tokens(claimed: Claimed) -> Claimed:
    plain = [msgspec.structs.replace(delivery, token="") for delivery in claimed.deliveries]
    return claimed._replace(deliveries=plain)


def _shown(entry: Entry) -> Entry:
    """Everything but the rank and the token: engines may number differently, only the order counts."""
    return msgspec.structs.replace(entry, order=None, token=None)


def _told(entry: LogEntry) -> tuple[Any, ...]:
    return entry.at, entry.event, entry.count, sorted(entry.ids), entry.info


def _find_all(engine: Engine, state: State) -> list[Entry]:
    entries: list[Entry] = []
    cursor = None
    while True:
        page = engine.find(QUEUE, state, cursor=cursor, limit=7)
        entries += page.entries
        cursor = page.cursor
        if cursor is None:
            return entries
