"""A run goes on where it was, its dice mean the same blows, and what went wrong is told."""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.battle import __main__ as battle
from tests.battle import report
from tests.battle.__main__ import Campaign
from tests.battle.fight import LEGS, Fight, Leg, given, plan
from tests.battle.verdict import Fault, Verdict

LEGS_HERE = (Leg("sqlite", "native"), Leg("redis", "threads"), Leg("stock", "prefork"))


class Fought:
    """Stands for the fights: which there were, and which break off or come out red."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.breaks: set[str] = set()
        self.loses: set[str] = set()
        patch.setattr(battle, "opened", lambda store, folder: open("/dev/null"))  # noqa: SIM115, PTH123 - any context
        patch.setattr(Fight, "__post_init__", lambda fight: None)
        patch.setattr(Fight, "run", lambda fight: self._run(fight))  # noqa: PLW0108 - a method of the fight

    def _run(self, fight: Fight) -> Verdict:
        name = fight.leg.name
        self.names.append(name)
        (fight.folder / "w0-1.ledger").touch()
        if name in self.breaks:
            raise AssertionError("it does not stop")
        fight.faults.append(Fault("hard", 1.0, 2.0, "w0"))
        return Verdict(submitted=1_000, lost=["a"] if name in self.loses else [], waits=[0.5])


@pytest.fixture
def fought(monkeypatch: pytest.MonkeyPatch) -> Fought:
    return Fought(monkeypatch)


def campaign(folder: Path, minutes: float = 3.0) -> Campaign:
    return Campaign(folder, LEGS_HERE, minutes=minutes, seed=1)


def test_blows_can_be_counted_in_place_of_the_dice() -> None:
    blows = battle.counted("hard=10,restart=2")
    strikes = given(random.Random(1), 300.0, blows)
    assert Counter(strike.kind for strike in strikes) == blows == {"hard": 10, "restart": 2}
    assert sorted(strikes) == strikes
    assert 0 < strikes[0].at < strikes[-1].at < 300.0
    with pytest.raises(argparse.ArgumentTypeError, match="hard=10"):
        battle.counted("hard")
    other = Campaign(Path("state"), LEGS_HERE, minutes=3, seed=1, jobs=20_000, blows=blows)
    assert other.folder != campaign(Path("state")).folder, "other settings are another run"


def test_finished_legs_are_not_fought_again(tmp_path: Path, fought: Fought) -> None:
    fought.breaks = {"redis-threads"}
    campaign(tmp_path).run()
    assert fought.names == ["sqlite-native", "redis-threads", "stock-prefork"]
    assert not campaign(tmp_path).is_good()
    fought.breaks = set()
    campaign(tmp_path).run()
    assert fought.names[3:] == ["redis-threads"]
    assert campaign(tmp_path).is_good()
    campaign(tmp_path, minutes=6).run()  # another run
    assert len(fought.names) == 7
    again = campaign(tmp_path)
    again.begin_anew()
    again.run()
    assert len(fought.names) == 10


def test_what_another_commit_came_to_is_none_of_this_one(
    tmp_path: Path, fought: Fought, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign(tmp_path).run()
    assert campaign(tmp_path).is_good()
    monkeypatch.setattr(report, "tree", lambda: "another")
    assert not campaign(tmp_path).is_good()
    assert campaign(tmp_path).results() == {}


def test_a_leg_that_was_lost_is_told_and_its_ledgers_are_kept(tmp_path: Path, fought: Fought) -> None:
    fought.loses = {"redis-threads"}
    one = campaign(tmp_path)
    one.run()
    assert not one.is_good()
    assert [path.name for path in one.folder.glob("*/*.ledger")] == ["w0-1.ledger"]
    kept = json.loads((one.folder / "redis-threads.json").read_text())
    assert kept["complaints"] == ["1 lost: a"]
    assert kept["blows"] == [{"kind": "hard", "began": 1.0, "over": 2.0, "worker": "w0", "pool": ""}]


def test_the_comparison_may_lose(tmp_path: Path, fought: Fought) -> None:
    fought.loses = {"stock-prefork"}
    one = campaign(tmp_path)
    one.run()
    assert one.is_good()
    told = one.report("make battle")
    assert "2,000 tasks, 0 lost; 0 workers ended" in told
    assert "| Celery, prefork | 1,000 | 1 |" in told
    assert told.count("####") == 3


def test_a_seed_means_the_same_blows() -> None:
    hurts = ["cut", "freeze", "restart"]
    one, same, other = (plan(random.Random(seed), 120, hurts) for seed in (1, 1, 2))
    assert one == same != other
    assert len(one) == 20 + 5
    assert {strike.kind for strike in one} >= {*hurts, "hard", "cold", "warm", "grace"}
    assert all(0 < strike.at < 120 for strike in one)


def test_every_store_has_every_crew() -> None:
    crews = ("native", "prefork", "threads")
    assert {(leg.store, leg.crew) for leg in LEGS} >= {
        (store, crew)
        for store in report.TITLES
        if store != "stock"
        for crew in (crews if store != "rabbitmq" else crews[1:])  # events are Celery's
    }
    assert len({leg.name for leg in LEGS}) == len(LEGS)
