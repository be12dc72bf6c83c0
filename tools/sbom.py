"""Writes what an installation of postroom[all] consists of, as CycloneDX 1.6: `python tools/sbom.py FILE`.

By what is installed beside this interpreter. Written here because it is little: the tool that exists brings
a dozen packages of its own. The same installation gives the same file, byte by byte.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement


def normal(name: str) -> str:
    """A name as an index of packages spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_by(found: Distribution, extras: set[str]) -> list[Requirement]:
    """What this distribution needs here, with these extras. Our own extras name ourselves."""
    wanted = [Requirement(text) for text in found.requires or ()]
    asked = extras or {""}
    return [
        each
        for each in wanted
        if each.marker is None or any(each.marker.evaluate({"extra": e}) for e in asked)
    ]


def closure(root: str) -> dict[str, set[str]]:
    """Every distribution below the root, with those it needs. Raises when one is not installed."""
    graph: dict[str, set[str]] = {}
    done: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(root)]
    while waiting:
        wanted = waiting.pop()
        name, extras = normal(wanted.name), frozenset(wanted.extras)
        if (name, extras) in done:
            continue
        done.add((name, extras))
        needs = needed_by(distribution(name), set(extras))
        graph.setdefault(name, set()).update(normal(each.name) for each in needs)
        waiting += needs
    graph = {name: needs - {name} for name, needs in graph.items()}
    return dict(sorted(graph.items()))


def licence(found: Distribution) -> list[dict[str, Any]]:
    meta = found.metadata
    if expression := meta.get("License-Expression"):
        return [{"expression": expression}]
    names = [text.rpartition(" :: ")[2] for text in meta.get_all("Classifier", []) if "License ::" in text]
    short = (meta.get("License") or "").strip()
    if not names and short and "\n" not in short:
        names = [short]
    return [{"license": {"name": name}} for name in names]


def component(name: str) -> dict[str, Any]:
    found = distribution(name)
    purl = f"pkg:pypi/{name}@{found.version}"
    told = {"type": "library", "bom-ref": purl, "name": name, "version": found.version, "purl": purl}
    licences = licence(found)
    return told | ({"licenses": licences} if licences else {})


def sbom(root: str) -> dict[str, Any]:
    graph = closure(root)
    parts = {name: component(name) for name in graph}
    ours = parts.pop("postroom")
    refs = {name: f"pkg:pypi/{name}@{distribution(name).version}" for name in graph}
    links = [
        {"ref": refs[name], "dependsOn": sorted(refs[n] for n in needs)} for name, needs in graph.items()
    ]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, " ".join(refs.values()))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": ours},
        "components": list(parts.values()),
        "dependencies": links,
    }


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(exist_ok=True)
    bill = sbom("postroom[all]")
    target.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    print(f"{target}: {len(bill['components'])} components")
