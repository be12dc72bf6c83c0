"""What one queue may have of a worker: its share, whatever else the worker has hands for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import postroom
from postroom import Delivery, Handlers, Share, Worker
from postroom.errors import InvalidInput
from postroom.limits import MAX_BATCH
from postroom.model import State
from postroom.queue import Queue
from postroom.role import Role
from postroom.room import Room
from postroom.worker import dispatcher
from tests.door.shares import SELDOM, Watch, check_that_rings_go_to_who_has_room
from tests.door.staging import PATIENCE, Hire, Wire, entries, eventually, room_on


def has(begun: list[int], count: int) -> bool:
    return begun == list(range(count))


def leased(queue: Queue) -> int:
    return queue.stats().processing


def filled(room: Room, *names: str, each: int = 50) -> list[Queue]:
    queues = [room.queue(name) for name in names]
    for queue in queues:
        queue.put_many(range(each))
    return queues


# ---- The bound ------------------------------------------------------------------------------------


def test_a_queue_has_at_most_its_share_in_flight_and_the_others_have_the_rest(
    live: Room, hire: Hire, gate: threading.Event
) -> None:
    small, other = filled(live, "small", "other")
    watch = Watch(gate)
    hire(live, {"small": watch, "other": watch}, concurrency=8, prefetch=0, shares={"small": Share(3)})
    eventually(lambda: watch.running == {"small": 3, "other": 5})
    assert (leased(small), leased(other)) == (3, 5)
    gate.set()
    eventually(lambda: watch.done == {"small": 50, "other": 50})
    assert watch.most["small"] == 3


def test_quick_handlers_earn_no_more_than_the_share(wire: Wire, hire: Hire) -> None:
    room = room_on(wire)
    filled(room, "small", "other", each=400)
    watch = Watch()
    hire(room, {"small": watch, "other": watch}, concurrency=4, shares={"small": Share(2)}, keeper=False)
    eventually(lambda: watch.done == {"small": 400, "other": 400})
    assert watch.most["small"] <= 2
    asked = [call.args[3] for call in wire.calls if call.verb == "turn" and call.args[0] == "small"]
    assert max(request.n for request in asked if request) == 2
    assert room.queue("small").stats().counters["claimed"] == 400, "nothing was taken only to be handed back"


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_a_share_may_hold_some_beside_what_it_works_on(
    live: Room, hire: Hire, gate: threading.Event, prefetch: int
) -> None:
    (queue,) = filled(live, "q")
    watch = Watch(gate)
    hire(live, {"q": watch}, concurrency=8, prefetch=10, shares={"q": Share(2, prefetch)})
    eventually(lambda: leased(queue) == 2 + prefetch)
    eventually(lambda: sum(entry.started_at is not None for entry in entries(queue, State.PROCESSING)) == 2)
    gate.set()
    eventually(lambda: watch.done["q"] == 50)
    assert watch.most["q"] <= 2


def test_a_share_can_limit_only_what_is_held(live: Room, hire: Hire, gate: threading.Event) -> None:
    (queue,) = filled(live, "q")
    watch = Watch(gate)
    hire(live, {"q": watch}, concurrency=4, prefetch=10, shares={"q": Share(prefetch=1)})
    eventually(lambda: leased(queue) == 5)
    gate.set()
    eventually(lambda: watch.done["q"] == 50)


@pytest.mark.parametrize("prefetch", [None, 2])
def test_what_waits_for_its_share_holds_up_no_other_hand(
    live: Room, hire: Hire, gate: threading.Event, prefetch: int | None
) -> None:
    """Nor is it handed back and claimed again all the time."""
    reports, quick = (*filled(live, "reports"), live.queue("quick"))
    handlers = {"reports": Watch(gate), "quick": Watch()}
    shares = {"reports": Share(concurrency=1, prefetch=5)}
    hire(live, handlers, concurrency=2, prefetch=prefetch, shares=shares)
    eventually(lambda: leased(reports))
    time.sleep(3 * dispatcher._STALL)  # nothing moves, for longer than a stall takes
    for count in range(1, 21):
        quick.put(count)
        eventually(lambda count=count: quick.stats().counters["acked"] == count)  # type: ignore[misc]
    assert reports.stats().counters["claimed"] < 20


def test_the_pool_is_the_bound_of_all_shares_together(live: Room, hire: Hire, gate: threading.Event) -> None:
    names = ("a", "b", "c")
    queues = filled(live, *names)
    watch = Watch(gate)
    shares = {name: Share(3) for name in names}
    hire(live, dict.fromkeys(names, watch), concurrency=4, prefetch=0, shares=shares)
    eventually(lambda: watch.running.total() == 4)
    assert sum(map(leased, queues)) == 4
    gate.set()
    eventually(lambda: watch.done.total() == 150)
    assert max(watch.most.values()) <= 3


# ---- Rings ----------------------------------------------------------------------------------------


def test_a_ring_that_one_worker_cannot_use_reaches_another(live: Room) -> None:
    check_that_rings_go_to_who_has_room(live, live)


def test_so_it_does_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with postroom.open(url) as first, postroom.open(url) as second:
        check_that_rings_go_to_who_has_room(first, second)


def test_a_free_place_is_filled_at_once(live: Room, hire: Hire) -> None:
    """What waited while the share was used up does not wait for a timer afterwards."""
    gates = [threading.Event() for _ in range(5)]
    begun: list[int] = []

    def handler(delivery: Delivery) -> None:
        begun.append(delivery.body)
        gates[delivery.body].wait(PATIENCE)

    queue = live.queue("q", policy=SELDOM)
    queue.put_many(range(5))
    hire(live, {"q": handler}, concurrency=4, shares={"q": Share(1)}, keeper=False)
    for n, gate in enumerate(gates, start=1):
        eventually(partial(has, begun, n), timeout=60)
        gate.set()


# ---- Values ---------------------------------------------------------------------------------------


@given(
    concurrency=st.none() | st.integers(1, 50),
    prefetch=st.none() | st.integers(0, 50),
    free=st.integers(-5, 60),
    started=st.integers(0, 60),
    held=st.integers(0, 60),
)
def test_a_share_never_allows_more_than_it_says(
    concurrency: int | None, prefetch: int | None, free: int, started: int, held: int
) -> None:
    share = Share(concurrency, prefetch)
    start = share.startable(free, started)
    claim = share.claimable(start, held)
    assert 0 <= start <= max(0, free)
    assert claim >= 0
    if concurrency is not None:
        assert start == 0 or started + start <= concurrency
    if concurrency is not None or prefetch is not None:
        ahead = prefetch or 0
        assert claim == 0 or held + claim <= start + ahead
        if held == 0 and start:
            assert claim == start + ahead, "a free place is always used"


@pytest.mark.parametrize(
    "wrong", [lambda: Share(0), lambda: Share(MAX_BATCH + 1), lambda: Share(True), lambda: Share(1, -1)]
)
def test_a_share_that_makes_no_sense_is_refused(wrong: Callable[[], Share]) -> None:
    with pytest.raises(InvalidInput):
        wrong()


# ---- Roles ----------------------------------------------------------------------------------------


def test_a_worker_for_a_role_has_its_settings(live: Room, gate: threading.Event) -> None:
    a, b = filled(live, "a", "b")
    watch = Watch(gate)
    role = Role("fast", ("a", "b"), concurrency=5, prefetch=2, shares={"a": Share(2)})
    with Worker.for_role(live, role, {"a": watch, "b": watch, "c": watch}) as worker:
        eventually(lambda: watch.running == {"a": 2, "b": 3})
        eventually(lambda: (leased(a), leased(b)) == (2, 5))
        assert worker.name.endswith("/fast")
        gate.set()
        eventually(lambda: watch.done == {"a": 50, "b": 50})
    assert live.queue("c").stats().processing == 0


def test_a_role_with_a_queue_that_nobody_handles_is_refused(live: Room) -> None:
    role = Role("fast", ("a", "b", "c"))
    with pytest.raises(InvalidInput, match=r"role 'fast': there is no handler for b, c"):
        Worker.for_role(live, role, {"a": print})
    handlers = Handlers({"a": print})
    handlers.handle("b", kind="only this")(print)
    with pytest.raises(InvalidInput, match="no handler for c"):
        Worker.for_role(live, role, handlers)
    handlers.handle(kind="of any queue")(print)
    Worker.for_role(live, role, handlers)
