"""The models name the code that their steps stand for; that code is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from postroom.engine import Engine
from postroom.engines.spool import SpoolEngine
from postroom.engines.spool.mover import Mover
from postroom.engines.steps.slot import Slot
from postroom.engines.steps.state import QueueState
from postroom.policy import Policy

HERE = Path(__file__).parent
ENGINES = HERE.parents[1] / "src" / "postroom" / "engines"
CLASSES = {cls.__name__: cls for cls in (Engine, Mover, Policy, QueueState, Slot, SpoolEngine)}


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("model", ["lease.py", "outage.py", "spool.py"])
def test_cited_code_is_there(model: str) -> None:
    text = (HERE / model).read_text(encoding="utf-8")
    files = re.findall(r"\b(steps|spool)/(\w+)\.py(?:: (\w+(?:, _?\w+)*))?", text)
    assert len(files) >= 3
    for folder, file, names in files:
        there = names_in(ENGINES / folder / f"{file}.py")
        assert set(filter(None, names.split(", "))) <= there, f"{folder}/{file}.py"
    methods = re.findall(r"\b(Engine|Mover|Policy|QueueState|Slot|SpoolEngine)\.(\w+)", text)
    assert len(methods) >= 4
    assert [name for owner, name in methods if not hasattr(CLASSES[owner], name)] == []
