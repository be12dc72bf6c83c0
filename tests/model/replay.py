"""Repeats the traces of the models on the engines, and compares after every step."""

from __future__ import annotations

from collections.abc import Iterable

from postroom.engine import ClaimRequest, Engine
from postroom.engines.memory import MemoryEngine
from postroom.engines.spool import SpoolEngine, parcels
from postroom.errors import EngineUnavailable
from postroom.model import Leased, NewMessage, Receipt, Settlement, Verb
from postroom.model import State as Stands
from postroom.policy import Policy
from postroom.testing.clock import ManualClock
from tests.model import lease, outage, spool
from tests.model.explorer import Action
from tests.spool.stage import LostReply, Remote, spool_on

QUEUE = "q"
#: How long a tick lasts (ms).
TICK = 10_000
POLICY = Policy(
    lease="10s",
    ack_timeout="20s",
    max_attempts=lease.MAX_ATTEMPTS,
    suspect_after=lease.SUSPECT_AFTER,
    dedupe_window="1d",
)


def in_touch(engine: Engine, clock: ManualClock) -> None:
    """A tick during which somebody is heard of now and then, so that it is no outage of the store."""
    for span in ("4s", "4s", "2s"):
        clock.advance(span)
        engine.renew(QUEUE, [], 1)


class LeaseReplay:
    """One trace of the model of the lease on an engine."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine: Engine = MemoryEngine(self.clock)
        self.engine.declare(QUEUE, POLICY)
        self.message = NewMessage(body=b"1")
        self.receipts: dict[int, Receipt] = {}

    def run(self, trace: Iterable[tuple[Action, lease.State]]) -> None:
        state = lease.State()
        for action, state in trace:
            assert self.do(action) == action.answer, action
            self.compare(state.store)
        self.try_stale_receipts(state.store)
        self.engine.close()

    def try_stale_receipts(self, store: lease.Store) -> None:
        """Every receipt but the present one, in every call that takes one: refused, and nothing changes."""
        refusal = "gone" if store.place == "done" else "lost"
        for number in self.receipts.keys() - {store.holder}:
            for verb in ("renew", "extend", "start", *Verb):
                assert self.hold(Action(verb, number)) == refusal
        self.compare(store)

    def do(self, action: Action) -> str:
        """Make the call; its answer in the words of the model."""
        if action.verb in {"work", "die"}:
            return ""  # at the consumer, where no engine sees it
        if action.verb == "tick":
            in_touch(self.engine, self.clock)
            return ""
        if action.verb == "put":
            created = self.engine.put(QUEUE, [self.message]).puts[0].created
            return "created" if created else "known"
        if action.verb == "sweep":
            self.engine.sweep(QUEUE)
            return action.answer  # what became of it is compared
        return self.claim(action.how) if action.verb == "claim" else self.hold(action)

    def claim(self, how: str) -> str:
        request = ClaimRequest(n=1, start=1 if how == "started" else 0, lease=lease.LEASE * TICK)
        leased = self.engine.claim(QUEUE, request).deliveries
        if not leased:
            return "nothing"
        self.receipts[leased[0].deliveries] = leased[0].receipt
        return f"delivery {leased[0].deliveries}"

    def hold(self, action: Action) -> str:
        receipt = self.receipts[action.delivery]
        if action.verb == "renew":
            return str(self.engine.renew(QUEUE, [receipt], lease.LEASE * TICK)[0])
        if action.verb == "extend":
            return str(self.engine.extend(QUEUE, [receipt], lease=lease.LEASE * TICK)[0])
        if action.verb == "start":
            return str(self.engine.turn(QUEUE, [], [receipt], None).started[0])
        delay = lease.DELAY * TICK if action.verb == "retry" else 0
        return str(self.engine.settle(QUEUE, [Settlement(receipt, Verb(action.verb), delay)])[0])

    def compare(self, store: lease.Store) -> None:
        (entry,) = self.engine.get(QUEUE, [self.message.id])
        if entry is None:
            assert store.place in {"absent", "done"}
            return
        assert entry.state == store.place
        assert (entry.attempt, entry.deliveries) == (store.attempt, store.deliveries)
        assert (entry.ran_out > 0, entry.strays) == (store.ran_out, store.strays)
        assert entry.receipt == (self.receipts[store.holder] if store.holder else None)
        assert (entry.started_at is not None) == store.started
        if entry.deadline is not None:
            assert max(0, entry.deadline - self.clock()) == store.left * TICK


class OutageReplay:
    """One trace of the model of an outage: a store that is away is one that nobody calls."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine: Engine = MemoryEngine(self.clock)
        self.engine.declare(QUEUE, Policy(lease=f"{outage.LEASE * TICK}ms", ack_timeout=None))
        self.engine.put(QUEUE, [NewMessage(body=b"1")])
        (leased,) = self.engine.claim(QUEUE, ClaimRequest(n=1, start=1)).deliveries
        self.receipt = leased.receipt

    def run(self, trace: Iterable[tuple[Action, outage.State]]) -> None:
        for action, state in trace:
            assert self.do(action) == action.answer, action
            self.compare(state)
        self.engine.close()

    def do(self, action: Action) -> str:
        if action.verb == "tick":
            self.clock.advance(TICK / 1_000)
        elif action.verb == "sweep":
            return "reclaimed" if self.engine.sweep(QUEUE).reclaimed else "nothing"
        elif action.verb == "renew":
            return str(self.engine.renew(QUEUE, [self.receipt], outage.LEASE * TICK)[0])
        elif action.verb == "ack":
            return str(self.engine.settle(QUEUE, [Settlement(self.receipt)])[0])
        return ""  # who dies, and what becomes of the store, is not seen by it

    def compare(self, state: outage.State) -> None:
        (entry,) = self.engine.get(QUEUE, [self.receipt.id])
        assert (entry.state if entry else "done") == state.place
        if entry and entry.deadline is not None:
            assert max(0, entry.deadline - self.clock()) == state.left * TICK


class Far(Remote):
    """A Redis whose calls can also be under way for a long time."""

    def delay(self) -> None:
        self.mode, self.only = "delay", {"put"}

    def send(self, verb: str, call: object, *args: object, **options: object) -> object:
        if self.mode == "delay" and verb in self.only:
            raise EngineUnavailable("no answer yet") from LostReply()
        return super().send(verb, call, *args, **options)  # type: ignore[arg-type]  # as it is declared there


class SpoolReplay:
    """One trace of the model of the spool on the engine with two sides; its watch does not run."""

    def __init__(self) -> None:
        self.clocks = {True: ManualClock(), False: ManualClock()}
        self.remote = Far(MemoryEngine(self.clocks[False]))
        self.near = MemoryEngine(self.clocks[True])
        self.engine: SpoolEngine = spool_on(self.remote, self.near, clock=self.clocks[True])
        self.message = NewMessage(body=b"1")
        self.receipts: dict[tuple[bool, int], Receipt] = {}
        self.owed: set[Receipt] = set()

    def run(self, trace: list[tuple[Action, spool.State]]) -> None:
        place = 0
        while place < len(trace):
            action, state = trace[place]
            if action.verb == "mover":
                count = moves(trace[place:])
                self.move(trace[place + count - 1][0].how)
                place, state = place + count, trace[place + count - 1][1]
            else:
                self.do(action)
                place += 1
            self.compare(state)
        self.remote.answer()
        self.engine.close()

    def do(self, action: Action) -> None:
        near = action.how.endswith("the spool")
        match action.verb, action.how:
            case "producer", _:
                self.message = self.message.replace(remember=1_000)
            case "put", how:
                self.put(how)
            case "redis", "goes away":
                self.remote.refuse()
                self.engine._line.away(EngineUnavailable("connection refused"))
            case "redis", "comes back":
                self.remote.answer()
            case "redis", _:
                self.remote.engine.put(QUEUE, parcels.remembered([self.message], 0))
            case "back", _:
                self.engine._line.back()
            case "claim", _:
                (leased,) = self.claim(near)
                self.receipts[near, action.delivery] = leased.receipt
            case "sweep", _:
                self.run_out(near)
            case "ack", _:
                self.ack(action, near)
            case "process", _:
                self.engine._debts.forget()

    def put(self, how: str) -> None:
        if how == "no answer, done":
            self.remote.mute("put")
        elif how == "no answer, on its way":
            self.remote.delay()
        elif how:
            self.remote.refuse()
        self.engine.put(QUEUE, [self.message])
        if how:
            self.remote.refuse()

    def claim(self, near: bool) -> list[Leased]:
        side = self.engine if near else self.remote.engine
        return side.claim(QUEUE, ClaimRequest(n=1, lease=TICK)).deliveries

    def run_out(self, near: bool) -> None:
        side = self.near if near else self.remote.engine
        in_touch(side, self.clocks[near])
        assert side.sweep(QUEUE).reclaimed == 1

    def ack(self, action: Action, near: bool) -> None:
        settlement = Settlement(self.receipts[near, action.delivery])
        if settlement.receipt in self.owed:
            self.engine._debts.pay(self.remote.connect())
        elif near or action.answer == "ok, and owed":
            (outcome,) = self.engine.settle(QUEUE, [settlement])
            assert outcome == action.answer.partition(",")[0]
            if not near:
                self.owed.add(settlement.receipt)
        else:
            (outcome,) = self.remote.engine.settle(QUEUE, [settlement])
            assert outcome == action.answer

    def move(self, last: str) -> None:
        """All that one mover does, until it is ready or stopped."""
        if last == "stops, read":
            return
        if last == "stops, parked":
            self.remote.refuse("put")
        if last == "stops, put":
            self.remote.mute("put")
        try:
            self.engine._mover.move(self.remote.connect())
            assert last == "removes"
        except EngineUnavailable:
            assert last.startswith("stops")
        self.remote.answer()

    def compare(self, state: spool.State) -> None:
        self.compare_side(self.remote.engine, state.far)
        self.compare_side(self.near, state.near)

    def compare_side(self, engine: Engine, side: spool.Side) -> None:
        (entry,) = engine.get(QUEUE, [self.message.id])
        if entry is None:
            assert side.place in {"absent", "done"}
        elif parcels.is_parked(entry):
            assert side.place in {"held", "parked"}
        else:
            assert entry.state == side.place
            assert (entry.state is Stands.PROCESSING) == (side.holder > 0)


def moves(trace: list[tuple[Action, spool.State]]) -> int:
    """How many steps one mover makes in a row until it is ready or stopped; 0: others come in between."""
    begun = trace[0][0].how == "reads" and len(trace[0][1].movers) == 1
    for count, (action, state) in enumerate(trace, 1):
        if not begun or action.verb != "mover" or len(state.movers) > 1:
            return 0
        if not state.movers:
            return count if action.answer != "taken" else 0
    return 0


def is_replayable(trace: list[tuple[Action, spool.State]]) -> bool:
    """Whether each mover does all of its work at once, as the engine's does when it is called."""
    place = 0
    while place < len(trace):
        if trace[place][0].verb == "mover":
            count = moves(trace[place:])
            if not count:
                return False
            place += count
        else:
            place += 1
    return True
