"""An outage takes nothing from the living and hides no dead, in every order of events; less would not do."""

from __future__ import annotations

import functools

import pytest

from tests.model import outage, page
from tests.model.explorer import Explored, explore
from tests.model.outage import OutageModel, Rules
from tests.model.replay import OutageReplay

#: Which property breaks without a rule.
BREAKS = {
    "silence_gives_grace": outage.LIVING_KEEP,
    "half_a_lease_is_a_silence": outage.LIVING_KEEP,
    "grace_begins_with_the_first_call": outage.LIVING_KEEP,
    "a_heart_beats_every_third": outage.LIVING_KEEP,
    "waiters_stay_in_touch": outage.DEAD_ARE_FOUND,
    "grace_ends": outage.DEAD_ARE_FOUND,
    "a_return_lasts": outage.LIVING_KEEP,
}


@functools.cache
def explored() -> Explored[outage.State]:
    return explore(OutageModel())


def test_every_property_holds_in_every_order_of_events() -> None:
    found = explored()
    assert found.counterexample is None, f"\n{found.counterexample}"
    assert len(found.reached) == page.states("an outage"), "does it still do everything?"


def test_everything_happens_somewhere() -> None:
    """Also what the grace is about: a lease that ran out while its worker lived, which it then renews."""
    kinds = explored().kinds.values()
    answers = {(action.verb, action.answer) for _, action, _ in kinds}
    assert answers >= {("sweep", "reclaimed"), ("sweep", "nothing"), ("renew", "ok"), ("ack", "ok")}
    assert any(before.left == 0 and action.verb == "renew" for before, action, _ in kinds)
    assert any(before.left == 0 and after.grace for before, action, after in kinds if action.verb == "sweep")


@pytest.mark.parametrize("rule", Rules._fields)
def test_without_a_rule_a_property_breaks(rule: str) -> None:
    found = explore(OutageModel(Rules(**{rule: False}))).counterexample
    assert found is not None, f"nothing needs {rule}"
    assert found.property == BREAKS[rule], f"\n{found}"


def test_the_memory_engine_does_the_same() -> None:
    for trace in explored().traces():
        OutageReplay().run(trace)
