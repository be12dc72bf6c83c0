"""Nothing is lost and nothing is done twice without a reason, whoever is killed and whenever.

`BATTLE_SECONDS=60` fights for longer than the few seconds of every test run, `BATTLE_SEED=7` throws other
dice. What was fought is shown with `pytest -s`.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from postroom.stats import QueueStats
from tests.chaos.battle import Battle
from tests.chaos.load import LEASE
from tests.chaos.outside import PATIENCE
from tests.chaos.verdict import Verdict, judge

SECONDS = float(os.environ.get("BATTLE_SECONDS", "12"))
SEED = int(os.environ.get("BATTLE_SEED", "20"))
LEAST_KILLS = 10
#: Of the -wal, in bytes: always, and where the one who keeps it short was stopped for two leases.
MAX_WAL, MAX_WAL_STOPPED = 64 * 2**20, 256 * 2**20


@pytest.mark.timeout(SECONDS + 4 * PATIENCE)
def test_nothing_is_lost_and_only_what_was_in_flight_is_done_twice(tmp_path: Path) -> None:
    battle = Battle(tmp_path, SEED)
    with battle.fighting():
        battle.poison()
        battle.rage(SECONDS / 2, LEAST_KILLS // 2)
        battle.poison()
        battle.rage(SECONDS / 2, LEAST_KILLS)
        battle.drain()
    stats, dead = battle.remains()
    verdict = judge(battle.lines(), battle.fates(), dead, LEASE, history=battle.history())
    report(battle, verdict, stats)
    assert not verdict.wrong, "\n".join(verdict.wrong[:50])
    assert sum(battle.kills.values()) >= LEAST_KILLS
    check_counters(stats, verdict)
    check_store(battle.store)
    assert 0 < battle.longest_wal < (MAX_WAL_STOPPED if battle.checkpointer_stopped else MAX_WAL)
    check_logs(battle)


def check_counters(stats: list[QueueStats], verdict: Verdict) -> None:
    """What the store has counted is what the ledgers tell."""
    for each in stats:
        counted = each.counters
        assert (each.ready, each.scheduled, each.processing, each.overdue) == (0, 0, 0, 0)
        assert counted["put"] == counted["acked"] + counted["dead"]
        ends = ("acked", "retried", "released", "reclaimed")
        assert counted["claimed"] == sum(counted[end] for end in ends), counted
    assert sum(each.counters["put"] for each in stats) == len(verdict.begun)
    assert sum(each.dead for each in stats) == sum(each.counters["dead"] for each in stats) == 2


def check_store(store: Path) -> None:
    """After the last one has closed it there is one file, sound and empty but for the dead letters."""
    assert [path.name for path in store.parent.glob(f"{store.name}*")] == [store.name]
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        states = connection.execute("SELECT state, count(*) FROM postroom_message GROUP BY state")
        assert states.fetchall() == [(4, 2)]
        for table in ("postroom_body", "postroom_trash"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


def check_logs(battle: Battle) -> None:
    for fighter in battle.fighters:
        said = fighter.log.read_text()
        assert "Traceback" not in said, f"{fighter.name}: {said[-3_000:]}"


def report(battle: Battle, verdict: Verdict, stats: list[QueueStats]) -> None:
    spans = sorted(verdict.put_spans.values())
    p50, p99, longest = (spans[int(part * (len(spans) - 1))] * 1_000 for part in (0.5, 0.99, 1))
    print(f"\nseed {SEED}, {SECONDS:.0f} s, processes started: {len(battle.fighters)}")
    print(f"kills: {battle.kills}, stops: {sum(len(fighter.stops) for fighter in battle.fighters)}")
    print(f"messages: {sum(each.counters['put'] for each in stats)}, ledger: {dict(verdict.counts)}")
    worst = verdict.taken_down.most_common(1)
    print(f"begun again because: {dict(verdict.causes)}; at most by one kill: {worst}")
    print(f"{len(spans)} puts: p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {longest:.0f} ms")
    stopped = " (the checkpointer was stopped)" if battle.checkpointer_stopped else ""
    print(f"longest -wal: {battle.longest_wal / 2**20:.1f} MB{stopped}")
