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

from postroom.engines.memory import MemoryEngine
from postroom.telemetry import Observed
from postroom.telemetry.exporter import collector
from tests.door.staging import room_on

FILE = Path(__file__).parents[2] / "examples" / "prometheus" / "alerts.yml"
RULES: list[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"][0]["rules"]


@pytest.fixture(scope="module")
def told() -> dict[str, set[str]]:
    """Every name that a query can use, with its labels."""
    names: dict[str, set[str]] = {}
    with room_on(Observed(MemoryEngine())) as room:
        room.queue("q").put(1)
        for family in collector(room).collect():
            labels = set(getattr(family, "_labelnames", ()))
            for suffix in {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(
                family.type, [""]
            ):
                names[family.name + suffix] = labels
    return names


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
def test_an_alert_is_about_metrics_that_exist(rule: dict[str, Any], told: dict[str, set[str]]) -> None:
    found = list(selectors(promql_parser.parse(rule["expr"])))
    assert {each.name for each in found} == set(re.findall(r"postroom_\w+", rule["expr"]))
    for each in found:
        assert each.name in told
        matched = {matcher.name for matcher in each.matchers.matchers}
        assert matched <= told[each.name], f"{each.name} has no label {matched - told[each.name]}"
    by = {
        label.strip() for group in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in group.split(",")
    }
    for name in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
        assert name in by
    assert by <= set().union(*(told[each.name] for each in found))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_has_what_prometheus_needs(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Postroom\w+", rule["alert"])
    assert re.fullmatch(r"\d+[smhd]", rule.get("for", "1m"))
    assert rule["labels"]["severity"] in ("page", "warn")
    assert rule["annotations"]["summary"]


def test_the_same_numbers_from_several_processes_are_not_added_up() -> None:
    assert not [rule["alert"] for rule in RULES if re.search(r"\b(sum|avg|count)\b", rule["expr"])]


def test_an_expression_that_is_broken_would_be_noticed(told: dict[str, set[str]]) -> None:
    with pytest.raises(ValueError, match=r"."):
        promql_parser.parse("max by (queue (postroom_messages")
    (found,) = selectors(promql_parser.parse("max(rate(postroom_mesages_total[5m]))"))
    assert found.name not in told


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed; the parser checks")
def test_promtool_agrees() -> None:
    subprocess.run(["promtool", "check", "rules", str(FILE)], check=True, timeout=60)
