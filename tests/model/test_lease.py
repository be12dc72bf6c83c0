"""The protocol of the lease holds in every order of events; without any of its rules it does not."""

from __future__ import annotations

import functools

import pytest

from tests.model import lease, page
from tests.model.explorer import EVERY_MESSAGE_ENDS, Explored, explore
from tests.model.lease import LeaseModel, Rules
from tests.model.replay import LeaseReplay

#: Which property breaks without a rule.
BREAKS = {
    "put_knows_ids": lease.PUT_ONCE,
    "claim_is_one_step": lease.NO_LOSS,
    "settle_checks_token": lease.NO_STALE_ANSWER,
    "holding_on_checks_token": lease.NO_STALE_ANSWER,
    "token_is_new_with_every_claim": lease.NO_STALE_ANSWER,
    "token_ends_with_the_settle": lease.NO_DOUBLE_SETTLE,
    "token_ends_with_the_reclaim": lease.NO_STALE_ANSWER,
    "start_is_asked_for": lease.NO_STALE_ANSWER,
    "ack_follows_the_effect": lease.NO_LOSS,
    "retry_is_one_step": lease.NO_LOSS,
    "renewal_stays_within_ack_timeout": lease.WORK_IN_TIME,
    "overdue_are_reclaimed": EVERY_MESSAGE_ENDS,
    "sweep_waits_for_the_deadline": lease.LEASES_LAST,
    "run_outs_are_counted": lease.BOUNDED,
    "strays_become_suspects": lease.BOUNDED,
    "exhausted_are_kept": lease.NO_LOSS,
    "due_are_promoted": EVERY_MESSAGE_ENDS,
}


@functools.cache
def explored() -> Explored[lease.State]:
    return explore(LeaseModel())


def test_every_property_holds_in_every_order_of_events() -> None:
    found = explored()
    assert found.counterexample is None, f"\n{found.counterexample}"
    assert len(found.reached) == page.states("the lease"), "does it still do everything?"


def test_everything_happens_somewhere() -> None:
    """A property that holds because nothing happens would prove nothing."""
    actions = {(action.verb, action.answer) for _, action, _ in explored().kinds.values()}
    answers = {(verb, answer) for verb in ("ack", "retry", "bury", "release") for answer in ("ok", "lost")}
    wanted = {
        *answers,
        ("ack", "gone"),
        ("start", "lost"),
        ("renew", "ok"),
        ("extend", "ok"),
        ("extend", "lost"),
        ("sweep", "dead"),
        ("put", "known"),
    }
    assert wanted <= actions
    ends = {state.store.place for state in explored().reached}
    assert ends == {"absent", "ready", "scheduled", "processing", "dead", "done"}


@pytest.mark.parametrize("rule", Rules._fields)
def test_without_a_rule_a_property_breaks(rule: str) -> None:
    found = explore(LeaseModel(Rules(**{rule: False}))).counterexample
    assert found is not None, f"nothing needs {rule}"
    assert found.property == BREAKS[rule], f"\n{found}"


def test_the_memory_engine_does_the_same() -> None:
    """Every step, from every state of the store, on the engine: the same answers, the same state after it;
    and to every receipt that does not hold the message, the same refusal."""
    for trace in explored().traces():
        LeaseReplay().run(trace)
