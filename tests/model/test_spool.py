"""The protocol of the spool holds in every order of events; without any of its rules it does not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from postroom.engines.spool.errands import Errands
from postroom.engines.spool.watch import Watch
from tests.model import page, spool
from tests.model.explorer import Explored, explore
from tests.model.replay import SpoolReplay, is_replayable
from tests.model.spool import Rules, SpoolModel

#: Which property breaks without a rule.
BREAKS = {
    "uncertain_are_held": spool.NO_DOUBLE_SETTLE,
    "repeatable_are_held": spool.NO_DOUBLE_SETTLE,
    "parked_before_moved": spool.NO_DOUBLE_SETTLE,
    "put_before_removed": spool.NO_LOSS,
    "moved_are_remembered": spool.NO_DOUBLE_SETTLE,
    "settle_goes_where_it_came_from": spool.SETTLES_COUNT,
    "owed_settles_are_paid": spool.SETTLES_COUNT,
    "spool_outlives_the_process": spool.NO_LOSS,
}


@functools.cache
def explored() -> Explored[spool.State]:
    return explore(SpoolModel())


def test_every_property_holds_in_every_order_of_events() -> None:
    found = explored()
    assert found.counterexample is None, f"\n{found.counterexample}"
    assert len(found.reached) == page.states("the spool"), "does it still do everything?"


@pytest.mark.parametrize("rule", Rules._fields)
def test_without_a_rule_a_property_breaks(rule: str) -> None:
    found = explore(SpoolModel(Rules(**{rule: False}))).counterexample
    assert found is not None, f"nothing needs {rule}"
    assert found.property == BREAKS[rule], f"\n{found}"


def at_once(errands: Errands, work: Callable[[], Any], on_late: object = None) -> Any:
    return work()


def test_the_engine_with_two_sides_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """All traces in which a mover does its work in one go: the same state on both sides after each step."""
    monkeypatch.setattr(Watch, "ensure", lambda watch: None)  # here the trace says when it looks
    monkeypatch.setattr(Errands, "run", at_once)  # and nothing takes too long
    found, done = explored(), set[tuple[str, str]]()
    for trace in filter(is_replayable, found.traces()):
        SpoolReplay().run(trace)
        done |= {(action.verb, action.how) for action, _ in trace}
    left = {(action.verb, action.how) for _, action, _ in found.kinds.values()} - done
    assert left == set(), "these steps are in no trace that was replayed"
