"""docs/reference/spec-map.md: every module and every test that it names is there."""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

REPO = Path(__file__).parents[1]
PAGE = REPO / "docs" / "reference" / "spec-map.md"
#: Tests of the contract are written once and run by `tests/contract` on every engine.
FOLDERS = {"contract": REPO / "src" / "postroom" / "testing"}


class Row(NamedTuple):
    part: str
    statement: str
    done_by: str
    shown_by: str


def rows() -> list[Row]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [Row(*each) for each in cells if each[0] != "part"]


@cache
def names_of_tests(file: str) -> set[str]:
    path = FOLDERS.get(file.partition("/")[0], REPO / "tests") / file
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {name for name in functions if name.startswith("test_")}


def listed(cell: str) -> list[str]:
    """The names of a cell that holds nothing but names."""
    names = re.findall(r"`([^`]+)`", cell)
    assert ", ".join(f"`{name}`" for name in names) == cell
    return names


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.part}: {row.statement[:40]}")
def test_a_statement_has_its_module_and_its_test(row: Row) -> None:
    for module in listed(row.done_by):
        there = (REPO / module).is_dir() if module == "examples" else importlib.util.find_spec(module)
        assert there, module
    tests = [test.split("::") for test in listed(row.shown_by)]
    assert tests
    assert [test for file, test in tests if test not in names_of_tests(file)] == []


def test_the_page_goes_through_all_five_documents() -> None:
    assert len(re.findall(r"^## \d\. ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == 5
    assert len(rows()) > 80
