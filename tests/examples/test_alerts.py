"""The alerts of examples/prometheus: well-formed, and only about metrics that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

import postroom.celery
from postroom.breaker import Breaker
from postroom.celery.events import events_app
from postroom.celery.events.metrics import EventsCollector
from postroom.engines.memory import MemoryEngine
from postroom.telemetry import Observed
from postroom.telemetry.exporter import collector
from tests.door.staging import room_on

FILE = Path(__file__).parents[2] / "examples" / "prometheus" / "alerts.yml"
DOCUMENT: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = [rule for group in DOCUMENT["groups"] for rule in group["rules"]]
#: Labels whose values are ours and not the user's: a slip in one is an alert that never comes.
FIXED = {"state", "outcome", "reason"}

#: By the name that a query uses: its labels, and the values that they have.
Told = dict[str, dict[str, set[str]]]


@pytest.fixture(scope="module")
def told() -> Told:
    """Every name that a query can use, of a room and a service in which there is something of everything."""
    names: Told = {}
    for family in [*of_a_room(), *of_a_service()]:
        for suffix in {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(
            family.type, [""]
        ):
            names[family.name + suffix] = {
                label: {sample.labels[label] for sample in family.samples}
                for label in getattr(family, "_labelnames", ())
            }
    return names


def of_a_room() -> list[Any]:
    with room_on(Observed(MemoryEngine())) as room:
        room.queue("q").put(1)
        Breaker("psp", room=room).open()
        return list(collector(room).collect())


def of_a_service() -> list[Any]:
    app = events_app("billing", broker_url="postroom+memory://")
    try:
        return list(EventsCollector(app).collect())
    finally:
        postroom.celery.close_offices()


def unknown(expression: str, told: Told) -> set[str]:
    """What an expression names that no process tells: metrics, labels, values of labels."""
    wrong: set[str] = set()
    for each in selectors(promql_parser.parse(expression)):
        if each.name not in told:
            wrong.add(each.name)
            continue
        labels = told[each.name]
        wrong |= {matcher.name for matcher in each.matchers.matchers if matcher.name not in labels}
        fixed = (matcher for matcher in each.matchers.matchers if matcher.name in FIXED & labels.keys())
        wrong |= {matcher.value for matcher in fixed if matcher.value not in labels[matcher.name]}
    return wrong


def selectors(expression: Any) -> Iterator[Any]:
    """Every part of an expression that names a metric."""
    match type(expression).__name__:
        case "VectorSelector":
            yield expression
        case "MatrixSelector":
            yield expression.vector_selector
        case _:
            for part in ("lhs", "rhs", "expr", "param"):
                if (inner := getattr(expression, part, None)) is not None:
                    yield from selectors(inner)
            for inner in getattr(expression, "args", ()) or ():
                yield from selectors(inner)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_is_about_metrics_that_exist(rule: dict[str, Any], told: Told) -> None:
    found = list(selectors(promql_parser.parse(rule["expr"])))
    assert {each.name for each in found} == set(re.findall(r"postroom_\w+", rule["expr"]))
    assert unknown(rule["expr"], told) == set()
    by = {
        label.strip() for group in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in group.split(",")
    }
    for name in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
        assert name in by
    assert by <= set().union(*(told[each.name] for each in found))


def test_a_store_that_is_away_or_full_and_a_queue_that_grows_have_their_alerts() -> None:
    """Spec 4, §20.4."""
    about = {name for rule in RULES for name in re.findall(r"postroom_\w+", rule["expr"])}
    assert {"postroom_engine_up", "postroom_messages", "postroom_memory_used_bytes"} <= about


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_has_what_prometheus_needs(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Postroom\w+", rule["alert"])
    assert re.fullmatch(r"\d+[smhd]", rule.get("for", "1m"))
    assert rule["labels"]["severity"] in ("page", "warn")
    assert rule["annotations"]["summary"]


@pytest.mark.parametrize(
    "metric",
    [
        "postroom_events_archive_filled_ratio",
        "postroom_events_archive_lost_total",
        "postroom_oldest_dead_seconds",
        "postroom_dead_letters_evicted_total",
    ],
)
def test_what_is_kept_has_its_alerts(metric: str, told: Told) -> None:
    """It is limited by number and age: somebody is told before that matters, and when it did."""
    assert metric in told
    about = [rule for rule in RULES if metric in re.findall(r"\w+", rule["expr"])]
    assert about, f"nobody is told about {metric}"
    assert all(rule["annotations"]["summary"].count("$labels") == 1 for rule in about), "says whose it is"


def test_the_file_is_one_that_prometheus_loads() -> None:
    assert set(DOCUMENT) == {"groups"}
    assert all(set(group) == {"name", "rules"} for group in DOCUMENT["groups"])
    names = [group["name"] for group in DOCUMENT["groups"]]
    alerts = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    assert len(set(alerts)) == len(alerts) > 10


def test_the_same_numbers_from_several_processes_are_not_added_up() -> None:
    assert not [rule["alert"] for rule in RULES if re.search(r"\b(sum|avg|count)\b", rule["expr"])]


def test_an_expression_that_is_broken_would_be_noticed(told: Told) -> None:
    for broken in (
        "max by (queue (postroom_messages",
        "rate(postroom_messages_put_total)",
        "max(postroom_messages[5m])",
    ):
        with pytest.raises(ValueError, match=r"."):
            promql_parser.parse(broken)
    assert unknown("max(rate(postroom_mesages_total[5m]))", told) == {"postroom_mesages_total"}
    assert unknown('max(postroom_messages{stat="ready"})', told) == {"stat"}
    assert unknown('max(postroom_breaker_state{state="opened"})', told) == {"opened"}
    assert unknown('rate(postroom_messages_settled_total{outcome="daed"}[5m]) > 0', told) == {"daed"}
    assert unknown('max(postroom_messages{state="ready",queue="any"})', told) == set()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed; the parser checks")
def test_promtool_agrees() -> None:
    subprocess.run(["promtool", "check", "rules", str(FILE)], check=True, timeout=60)
