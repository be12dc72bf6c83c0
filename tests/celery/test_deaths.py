"""Workers that die: nothing is lost, what had not begun does not count, a killer ends as a dead letter."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.logs import Event
from postroom.model import Entry, State
from postroom.room import Room
from tests.battle.fight import Fight, Leg
from tests.battle.stores import opened
from tests.battle.verdict import WINDOW
from tests.celery.starving import Beat
from tests.celery.workers import LEASE, Opener, pool

pytestmark = pytest.mark.timeout(600)

#: So long after the end of its lease a message is ready again (seconds), on a machine that has time for it.
_AT_MOST = 1.0


# ---- the battle -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "leg",
    [Leg("redis", "prefork"), Leg("sqlite", "threads"), Leg("rabbitmq", "prefork")],
    ids=lambda leg: leg.name,
)
def test_a_short_battle(leg: Leg, tmp_path: Path) -> None:
    """The long one, with its figures, is `make battle`."""
    # A worker that the machine stops for some seconds must not lose its lease.
    with opened(leg.store, tmp_path, lease=15) as store:
        calm = dataclasses.replace(store, hurts={})  # what a store suffers has tests of its own
        # 25 ms on a machine that has time for us, and one a kill: `make battle` insists on them.
        fight = Fight(leg, calm, tmp_path, 7, seconds=7, workers=2, lease=15, window=5.0, quiet=True)
        verdict = fight.run()
        fight.window = WINDOW
        starved = fight.judge().starved
    assert (verdict.lost, verdict.unattributed, verdict.left, verdict.wrong) == ([], [], {}, [])
    # Three blows make no mean: by chance a single one may cost two or three, and not all of them more.
    assert verdict.bounded - starved <= 3 * verdict.blows
    assert verdict.submitted > 100
    assert sum(verdict.faults.values()) == 3


# ---- what it costs --------------------------------------------------------------------------------


def _processing(room: Room) -> list[Entry]:
    return list(room.engine.find("shop", State.PROCESSING).entries)


def _requeued(room: Room) -> dict[str, float]:
    """When each message whose lease ran out was taken back, by the clock of the store (seconds)."""
    entries = room.engine.log("shop", after="").entries
    return {id: entry.at / 1_000 for entry in entries if entry.event == Event.REQUEUE for id in entry.ids}


def _unsettled(room: Room) -> list[Entry]:
    """What waits or is worked on; one that is claimed between the two looks is in both."""
    ready = room.engine.find("shop", State.READY).entries
    return list({entry.id: entry for entry in [*ready, *_processing(room)]}.values())


@pytest.mark.parametrize(
    ("broker", "name"),
    [("redis", "prefork"), ("sqlite", "threads"), ("redis", "gevent"), ("sqlite", "solo")],
    indirect=["broker"],
)
def test_all_comes_back_with_the_lease_and_only_what_had_begun_loses_an_attempt(
    open_shop: Opener, room: Room, tmp_path: Path, name: str, record_property: Callable[[str, object], None]
) -> None:
    shop = open_shop(broker_transport_options={"visibility_timeout": LEASE}, worker_prefetch_multiplier=4)
    go, engine = tmp_path / "go", room.engine
    for n in range(4):
        shop.send("until", str(go), str(n))
    worker = shop.worker(*pool(name, 1))
    shop.until(lambda: len(_processing(room)) == 4 and any(entry.started_at for entry in _processing(room)))
    shop.worker(*pool(name, 1))  # has nothing to do, and is ready when it is needed
    with Beat() as beat:
        worker.kill()
        killed = time.time()
        leases = {entry.id: entry.deadline or 0 for entry in _processing(room)}
        shop.until(lambda: engine.stats("shop").counters["reclaimed"] == 4)
    back = _requeued(room)
    record_property(f"all back after (s, lease {LEASE})", round(max(back.values()) - killed, 2))
    assert max(back.values()) - killed < 10 * LEASE
    first = min(leases.values())
    for id, deadline in leases.items():
        if name in {"solo", "gevent"} and deadline > first:
            # It has begun one by then, and leaves the others to the keeper: with gevent, too, Celery's loop
            # waits for a hand. What was begun has a later deadline, unless its lease was renewed since.
            continue
        over = deadline / 1_000
        assert over <= killed + LEASE
        assert back[id] - over - beat.lost(killed, back[id]) <= _AT_MOST
    # Which one the second worker begins with depends on milliseconds: each came back by its own deadline.
    shop.until(lambda: len(shop.lines("begin")) == 2)
    assert sorted(entry.attempt for entry in _unsettled(room)) == [0, 0, 0, 1]
    go.touch()
    shop.until(lambda: engine.stats("shop").counters["acked"] == 4)
    assert engine.stats("shop").dead == 0
    assert [len(shop.lines("begin", str(n))) for n in range(4)] == [2, 1, 1, 1]


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_a_task_that_kills_its_worker_ends_as_a_dead_letter_and_its_neighbours_live(
    open_shop: Opener, room: Room
) -> None:
    options = {"visibility_timeout": LEASE, "delivery_limit": 2}
    shop = open_shop(broker_transport_options=options, worker_prefetch_multiplier=4)
    shop.send("bomb", priority=9)
    for n in range(3):
        shop.send("note", str(n))
    engine = room.engine

    def one_died_or_it_is_over() -> bool:
        return shop.workers[-1].process.poll() is not None or engine.stats("shop").dead > 0

    # Two attempts; on a machine that is too busy to note a start up to three deaths before that.
    for _ in range(5 + 1):
        shop.worker(*pool("solo"), ready=False)
        shop.until(one_died_or_it_is_over)
        if engine.stats("shop").dead:
            break
    # At least once: what ended just before a worker did may run again.
    shop.until(lambda: len(set(shop.labels("note"))) == 3 and engine.stats("shop").processing == 0)
    (letter,) = engine.find("shop", State.DEAD).entries
    assert (letter.message.kind, letter.attempt) == ("tests.celery.shop.bomb", 2)
    # Told the truth: they were claimed before, by workers that died with them.
    assert all(line["redelivered"] and line["count"] >= 1 for line in shop.lines("note"))


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_a_task_that_kills_its_child_ends_as_a_dead_letter(open_shop: Opener, room: Room) -> None:
    """A child of prefork alone, as by the kernel that is out of memory; the app has no queue matrix."""
    shop = open_shop(task_reject_on_worker_lost=True, broker_transport_options={"delivery_limit": 2})
    worker = shop.worker(*pool("prefork"))
    shop.send("grenade")
    shop.until(lambda: room.engine.stats("shop").dead == 1, "it is tried for ever, or lost")
    (letter,) = room.engine.find("shop", State.DEAD).entries
    assert (letter.message.kind, letter.attempt) == ("tests.celery.shop.grenade", 2)
    assert len({line["pid"] for line in shop.lines("grenade")}) == len(shop.lines("grenade")) == 2
    shop.send("note", "after")
    shop.until(lambda: shop.lines("note", "after"), "the worker has no hands any more")
    assert worker.stop() == 0


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_a_retry_that_was_sent_before_its_worker_was_killed_runs_once(
    open_shop: Opener, room: Room, tmp_path: Path
) -> None:
    """The task itself is delivered again, and sends its retry again: when that is over and done."""
    shop = open_shop(broker_transport_options={"visibility_timeout": LEASE})
    go = tmp_path / "go"
    worker = shop.worker(*pool("solo"))
    shop.send("again", str(go), "a")
    shop.until(lambda: shop.lines("sent"))
    worker.kill()
    go.touch()
    shop.worker(*pool("solo"))
    shop.until(lambda: room.engine.stats("shop").counters["acked"] == 2)
    assert len(shop.lines("sent")) == 2, "it was delivered again"
    shop.until(lambda: room.engine.stats("shop").depth == 0)
    assert sorted(line["retries"] for line in shop.lines("try")) == [0, 0, 1]
