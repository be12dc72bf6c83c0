"""A group commit keeps its word in every order of events; without any of its rules it does not."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from postroom.engines.sqlite.writer import Writer
from tests.model import commit, page
from tests.model.commit import CommitModel, Rules
from tests.model.explorer import EVERY_MESSAGE_ENDS, Explored, explore

#: Which property breaks without a rule.
BREAKS = {
    "answered_after_the_commit": commit.ON_DISK,
    "steps_fail_alone": commit.ALONE,
    "what_failed_is_undone": commit.NOTHING_LEFT,
    "a_commit_is_read_off_the_connection": commit.ONCE,
    "what_was_interrupted_is_rolled_back": commit.ONCE,
    "a_refused_commit_is_no_commit": commit.ON_DISK,
    "sleepers_look_by_themselves": EVERY_MESSAGE_ENDS,
}


@functools.cache
def explored() -> Explored[commit.State]:
    return explore(CommitModel())


def test_every_property_holds_in_every_order_of_events() -> None:
    found = explored()
    assert found.counterexample is None, f"\n{found.counterexample}"
    assert len(found.reached) == page.states("a group commit"), "does it still do everything?"


def test_everything_happens_somewhere() -> None:
    ends = {state.phases for state in explored().reached if CommitModel().is_end(state)}
    assert ends >= {("ok", "ok"), ("ok", "error"), ("error", "error"), ("interrupted", "ok")}
    assert any(state.interrupts and state.refusals and state.disk for state in explored().reached)


@pytest.mark.parametrize("rule", Rules._fields)
def test_without_a_rule_a_property_breaks(rule: str) -> None:
    found = explore(CommitModel(Rules(**{rule: False}))).counterexample
    assert found is not None, f"nothing needs {rule}"
    assert found.property == BREAKS[rule], f"\n{found}"


def test_cited_code_is_there() -> None:
    text = Path(commit.__file__).read_text(encoding="utf-8")
    cited = set(re.findall(r"`Writer\.(\w+)`", text))
    assert len(cited) >= 5
    assert [name for name in cited if not hasattr(Writer, name)] == []
