"""`make package`: wheel and source, installed with each extra into an empty venv and tried there.

To install a source distribution, pip makes a wheel of it and installs that. So does this, once: the wheel
made of the source must be, file by file, the one made of the tree, and is installed with each extra. What is
found then holds for both. The source is also installed by pip alone, which fetches what the build needs.

Then the types of the public interface. Needs an index of packages; takes some minutes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.package.building import REPO, build, differences, empty_venv, install, run, smoke, wheel_from
from tests.package.smoke import EXTRAS

#: Stubs of what has no types of its own, without which a base class of ours would be unknown.
STUBS = ("celery-types", "django-stubs", "hypothesis", "pytest")


def main() -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        wheel, source = build(place)
        again = same_from(source, wheel, place / "again")
        for name in ("", *EXTRAS, "all"):
            tried(place, again, name)
        tried(place, source, "")
        verify_types(place / "all")
        for built in (wheel, source):
            (REPO / "dist").mkdir(exist_ok=True)
            (REPO / "dist" / built.name).write_bytes(built.read_bytes())
    print(f"all of it in {time.monotonic() - began:.0f} s; wheel and source are in dist/")
    return 0


def same_from(source: Path, wheel: Path, folder: Path) -> Path:
    """The wheel made of the source; raises when it is not the same as this one."""
    made = wheel_from(source, folder)
    different = differences(made, wheel)
    assert not different, f"the wheel of {source.name} is not that of the tree: {', '.join(different)}"
    print(f"{source.name}: makes the same wheel as the tree", flush=True)
    return made


def tried(place: Path, built: Path, extra: str) -> None:
    venv = place / (extra or ("source" if built.suffix == ".gz" else "core"))
    python = empty_venv(venv)
    install(python, f"{built}[{extra}]" if extra else built)
    done = smoke(python, *filter(None, [extra]))
    print(f"{built.name}[{extra}]: {', '.join(re.findall(r'ok: (.*)', done))}", flush=True)


def verify_types(venv: Path) -> None:
    """Everything public has a type, by pyright."""
    install(venv / "bin" / "python", *STUBS)
    environment = os.environ | {"VIRTUAL_ENV": str(venv), "PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--verifytypes",
        "postroom",
        "--ignoreexternal",
        "--outputjson",
    ]
    ran = subprocess.run(
        command, check=False, cwd=venv, env=environment, capture_output=True, text=True, timeout=500
    )
    report = json.loads(ran.stdout[ran.stdout.index("{") :])["typeCompleteness"]
    unknown = [
        f"  {symbol['name']}: {each['message']}"
        for symbol in report["symbols"]
        if symbol["isExported"] and not symbol["isTypeKnown"]
        for each in symbol["diagnostics"] or [{"message": "something in it"}]
    ]
    score = report["completenessScore"]
    reasons = "\n".join(unknown)
    assert score == 1 and not unknown, f"{score:.2%} of the public names have a type; not these:\n{reasons}"
    print(f"types: {score:.0%} of {sum(report['exportedSymbolCounts'].values())} public names", flush=True)


if __name__ == "__main__":
    assert run(sys.executable, "-c", "import pyright, hatchling") == ""
    sys.exit(main())
