"""Processes that share a spool, and die at any point of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from postroom.engines.spool import SpoolEngine
from postroom.model import Settlement, State
from tests.spool.stage import Remote, await_back, await_moved, claim, eventually, ids, opened, put, sqlite


@pytest.mark.parametrize("arrived", [False, True], ids=["before the put", "after the put"])
def test_a_mover_that_dies_half_way_leaves_nothing_behind(quick: None, tmp_path: Path, arrived: bool) -> None:
    remote = Remote()
    with opened(remote, sqlite(tmp_path)) as first:
        remote.refuse()
        sent = {put(first) for _ in range(5)}
        (remote.mute if arrived else remote.refuse)("put")
        eventually(lambda: remote.verbs.count("put") > 1)
        first._watch.close()
        first._watch.join()
        assert first.spool.stats("q").scheduled == 5, "parked: no local worker has them any more"
        if arrived:  # and some are done in Redis before anybody comes again
            for leased in claim(remote.engine, n=2):
                remote.engine.settle("q", [Settlement(leased.receipt)])
        with opened(Remote(remote.engine), sqlite(tmp_path)) as second:
            await_moved(second)
            assert set(ids(claim(second))) <= sent
            assert remote.engine.stats("q").counters["put"] == 5


def test_what_an_ended_process_left_in_the_spool_is_moved_by_the_next(quick: None, tmp_path: Path) -> None:
    remote = Remote()
    remote.refuse()
    with opened(remote, sqlite(tmp_path)) as engine:
        id = put(engine)
        engine.close()
    with opened(Remote(), sqlite(tmp_path)) as engine:
        await_moved(engine)
        assert ids(claim(engine)) == [id]


def test_processes_that_share_a_spool_move_each_message_once(quick: None, tmp_path: Path) -> None:
    remote = Remote()
    engines = [SpoolEngine(remote.connect, sqlite(tmp_path), timeout=30_000) for _ in range(3)]
    remote.refuse()
    expected = {put(engine) for _ in range(40) for engine in engines}
    worked = [leased for engine in engines for leased in claim(engine, n=3)]
    remote.answer()
    for engine in engines:
        await_back(engine)
    for engine, leased in zip([engines[1], engines[2], *engines[:1]] * 3, worked, strict=True):
        engine.settle("q", [Settlement(leased.receipt)])  # any process can
    await_moved(engines[0])
    got = ids(claim(engines[0], n=1_000))
    assert sorted(got + ids(worked)) == sorted(expected)
    for engine in engines[1:]:
        engine._line._engine = None  # the one Redis of all three is closed once
        engine.close()
    engines[0].close()


def test_a_local_claim_and_a_move_never_have_the_same_message(quick: None, tmp_path: Path) -> None:
    remote = Remote()
    with opened(remote, sqlite(tmp_path)) as engine:
        remote.refuse()
        expected = {put(engine, body=b"%d" % n) for n in range(300)}
        got: list[str] = []

        def work() -> None:
            while not engine.redis_active:
                for leased in claim(engine, n=3):
                    got.append(leased.message.id)
                    engine.settle("q", [Settlement(leased.receipt)])

        worker = threading.Thread(target=work)
        worker.start()
        eventually(lambda: got)
        remote.answer()
        worker.join()
        await_moved(engine)
        there = [entry.id for entry in engine.find("q", State.READY, limit=1_000).entries]
        assert sorted(got + there) == sorted(expected)
