"""The list of what an installation consists of names everything, with its version and its licence."""

from __future__ import annotations

import importlib.util
from importlib.metadata import version
from typing import Any

import pytest

from tests.package.building import REPO

#: What the tests have; `make sbom` installs all.
ROOT = "postroom[redis,celery,cli,sql]"


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("sbom_tool", REPO / "tools" / "sbom.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_names_what_is_installed_and_who_needs_it(tool: Any) -> None:
    bill = tool.sbom(ROOT)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "postroom"
    parts = {part["name"]: part for part in bill["components"]}
    assert {
        "msgspec",
        "redis",
        "hiredis",
        "celery",
        "kombu",
        "amqp",
        "typer",
        "sqlalchemy",
        "psycopg",
    } <= set(parts)
    assert "pytest" not in parts and "postroom" not in parts
    assert parts["msgspec"]["version"] == version("msgspec")
    assert parts["msgspec"]["licenses"]
    needs = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert any(ref.startswith("pkg:pypi/amqp@") for ref in needs[parts["kombu"]["purl"]])
    assert {ref for refs in needs.values() for ref in refs} <= set(needs)


def test_it_is_the_same_every_time(tool: Any) -> None:
    assert tool.sbom(ROOT) == tool.sbom(ROOT)


def test_what_is_not_installed_is_no_gap_but_an_error(tool: Any) -> None:
    with pytest.raises(ModuleNotFoundError):
        tool.closure("a-package-that-nobody-has")
