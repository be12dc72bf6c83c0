"""Writes what an installation of postroom[all] consists of, as CycloneDX 1.6: `python tools/sbom.py FILE`.

By what is installed beside this interpreter, and the npm packages that tools/vendor.py copies into the wheel.
Written here because it is little: the tool that exists brings a dozen packages of its own. The same
installation gives the same file, byte by byte.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import uuid
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

import vendor  # beside this file
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


def shipped() -> list[dict[str, Any]]:
    """The npm packages of which the wheel has copies, as they are locked. Raises when one is not."""
    locked = json.loads(vendor.LOCK.read_text(encoding="utf-8"))["packages"]
    names = sorted({piece.package for piece in vendor.PIECES})
    return [copied(name, locked[f"node_modules/{name}"]) for name in names]


def copied(package: str, locked: dict[str, Any]) -> dict[str, Any]:
    """A component as npm knows it, with the hash of its archive, which npm has checked."""
    group, _, name = package.rpartition("/")
    purl = f"pkg:npm/{quote(package)}@{locked['version']}"
    return {
        "type": "library",
        "bom-ref": purl,
        **({"group": group} if group else {}),
        "name": name,
        "version": locked["version"],
        "hashes": [digest(locked["integrity"])],
        "licenses": [{"expression": npm_licence(package, locked)}],
        "purl": purl,
    }


def digest(integrity: str) -> dict[str, str]:
    """npm writes `sha512-` and base64, CycloneDX `SHA-512` and hex."""
    algorithm, _, text = integrity.partition("-")
    content = base64.b64decode(text, validate=True).hex()
    return {"alg": f"SHA-{algorithm.removeprefix('sha')}", "content": content}


def npm_licence(package: str, locked: dict[str, Any]) -> str:
    """As the package itself says, where npm has installed it; else as the lock file has it."""
    about = vendor.MODULES / package / "package.json"
    said = json.loads(about.read_text(encoding="utf-8")) if about.exists() else locked
    return str(said["license"])


def sbom(root: str) -> dict[str, Any]:
    graph, copies = closure(root), shipped()
    parts = {name: component(name) for name in graph}
    refs = {name: part["bom-ref"] for name, part in parts.items()}
    needs = {refs[name]: sorted(refs[each] for each in wanted) for name, wanted in graph.items()}
    needs[refs["postroom"]] += [part["bom-ref"] for part in copies]
    needs |= {part["bom-ref"]: [] for part in copies}
    ours = parts.pop("postroom")
    serial = uuid.uuid5(uuid.NAMESPACE_URL, " ".join(needs))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": ours},
        "components": [*parts.values(), *copies],
        "dependencies": [{"ref": ref, "dependsOn": below} for ref, below in needs.items()],
    }


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(exist_ok=True)
    bill = sbom("postroom[all]")
    target.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    print(f"{target}: {len(bill['components'])} components")
