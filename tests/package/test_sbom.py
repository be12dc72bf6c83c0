"""The list of what an installation consists of names everything, with its version and its licence."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from base64 import b64encode
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.package.building import REPO
from tools.vendor import PIECES

#: What the tests have; `make sbom` installs all.
ROOT = "postroom[redis,celery,cli,sql]"


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("sbom_tool", REPO / "tools" / "sbom.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(REPO / "tools")  # where a script finds what lies beside it
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


def npm_parts(bill: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By the names that npm has for them."""
    parts = [part for part in bill["components"] if part["purl"].startswith("pkg:npm/")]
    return {"/".join(filter(None, [part.get("group"), part["name"]])): part for part in parts}


def test_it_names_what_the_wheel_has_of_npm_and_nothing_that_only_checks_it(tool: Any) -> None:
    bill = tool.sbom(ROOT)
    parts = npm_parts(bill)
    assert set(parts) == {piece.package for piece in PIECES}
    package = json.loads((REPO / "package.json").read_text(encoding="utf-8"))
    assert {name: part["version"] for name, part in parts.items()} == package["dependencies"]
    ours = bill["metadata"]["component"]["purl"]
    (needs,) = (each["dependsOn"] for each in bill["dependencies"] if each["ref"] == ours)
    assert {part["purl"] for part in parts.values()} <= set(needs)


def test_what_it_says_of_an_npm_package(tool: Any) -> None:
    parts = npm_parts(tool.sbom(ROOT))
    inter = parts["@fontsource-variable/inter"]
    assert inter["purl"] == f"pkg:npm/%40fontsource-variable/inter@{inter['version']}"
    assert inter["licenses"] == [{"expression": "OFL-1.1"}]
    assert parts["preact"]["licenses"] == [{"expression": "MIT"}]
    assert all(part["licenses"][0]["expression"] for part in parts.values())
    assert "://" not in json.dumps(parts), "it tells where somebody fetched it"


def test_the_hash_is_that_of_the_lock_file_in_hex(tool: Any) -> None:
    archive = hashlib.sha512(b"an archive")
    told = tool.digest("sha512-" + b64encode(archive.digest()).decode())
    assert told == {"alg": "SHA-512", "content": archive.hexdigest()}
    assert {(each["alg"], len(each["content"])) for part in tool.shipped() for each in part["hashes"]} == {
        ("SHA-512", 128)
    }


def test_without_node_modules_the_lock_file_says_the_licence(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tool.shipped()
    monkeypatch.setattr(tool.vendor, "MODULES", tmp_path)
    assert tool.shipped() == before


def test_it_is_the_same_every_time(tool: Any) -> None:
    assert tool.sbom(ROOT) == tool.sbom(ROOT)


def test_what_is_not_installed_is_no_gap_but_an_error(tool: Any) -> None:
    with pytest.raises(ModuleNotFoundError):
        tool.closure("a-package-that-nobody-has")


def test_nor_is_what_is_not_locked(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool.vendor, "PIECES", (PIECES[0]._replace(package="a-package-that-nobody-has"),))
    with pytest.raises(KeyError):
        tool.shipped()
