"""Copies what the dashboard loads from npm into src/postroom/dashboard/vendor, which git ignores.

Called by `make setup` (so by run and test) and by the build of a wheel (hatch_build.py). The versions are
those of package-lock.json, which npm checks by hash; nothing is fetched when all is there already.
A browser cannot find a bare name such as "preact", so these imports are made relative.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).resolve().parents[1]
MODULES = REPO / "node_modules"
VENDOR = REPO / "src" / "postroom" / "dashboard" / "vendor"
LOCK = REPO / "package-lock.json"
#: What is in vendor/, and from which lock file and script it was made.
LIST = VENDOR / "VENDOR.json"


class Piece(NamedTuple):
    """A file of a package, what it is called here, and what is added at its end."""

    package: str
    source: str
    target: str
    end: str = ""


PIECES = (
    Piece("preact", "dist/preact.module.js", "preact.js"),
    Piece("preact", "hooks/dist/hooks.module.js", "hooks.js"),
    Piece("preact", "LICENSE", "preact.LICENSE.txt"),
    Piece("htm", "dist/htm.module.js", "htm.js"),
    Piece("htm", "LICENSE", "htm.LICENSE.txt"),
    # The module that uPlot ships is three times as large: it is not minified.
    Piece("uplot", "dist/uPlot.iife.min.js", "uplot.js", "\nexport default uPlot;\n"),
    Piece("uplot", "dist/uPlot.min.css", "uplot.css"),
    Piece("uplot", "LICENSE", "uplot.LICENSE.txt"),
    Piece("@fontsource-variable/inter", "files/inter-latin-wght-normal.woff2", "inter.woff2"),
    Piece("@fontsource-variable/inter", "LICENSE", "inter.LICENSE.txt"),
)
#: Declarations for `tsc`, which finds the packages by their own names. Not part of the wheel.
TYPES = {
    "preact.d.ts": 'export * from "preact";\n',
    "hooks.d.ts": 'export * from "preact/hooks";\n',
    "htm.d.ts": 'export { default } from "htm";\n',
    "uplot.d.ts": 'export { default } from "uplot";\n',
}


def is_ready() -> bool:
    """Whether vendor/ is complete, unchanged, and of these versions."""
    try:
        listed = json.loads(LIST.read_text(encoding="utf-8"))
        return listed["made_from"] == made_from() and all(
            digest(VENDOR / name) == file["sha256"] for name, file in listed["files"].items()
        )
    except (OSError, ValueError, KeyError):
        return False


def made_from() -> str:
    return hashlib.sha256(LOCK.read_bytes() + Path(__file__).read_bytes()).hexdigest()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make() -> None:
    """Install the locked packages and copy their files. Raises RuntimeError when npm is missing or fails."""
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("npm is missing, which brings the dashboard's packages (Debian: apt install npm)")
    # No package of ours needs a script, so none may run.
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    if subprocess.run(command, cwd=REPO, check=False).returncode:
        raise RuntimeError("npm could not install what package-lock.json names")
    shutil.rmtree(VENDOR, ignore_errors=True)
    VENDOR.mkdir(parents=True)
    files = {piece.target: copy(piece) for piece in PIECES}
    for name, text in TYPES.items():
        (VENDOR / name).write_text(text, encoding="utf-8")
    # Last, so that an interrupted copy is not taken for a complete one.
    LIST.write_text(json.dumps({"made_from": made_from(), "files": files}, indent=1), encoding="utf-8")


def copy(piece: Piece) -> dict[str, str]:
    """Copy one file; what vendor/ tells about it."""
    target = VENDOR / piece.target
    content = (MODULES / piece.package / piece.source).read_bytes()
    if target.suffix == ".js":
        content = as_module(content.decode()).encode() + piece.end.encode()
    target.write_bytes(content)
    about = json.loads((MODULES / piece.package / "package.json").read_text(encoding="utf-8"))
    return {
        "package": piece.package,
        "version": about["version"],
        "licence": about["license"],
        "sha256": digest(target),
    }


def as_module(source: str) -> str:
    """With relative imports, and without the name of a source map that is not here."""
    lines = [line for line in source.splitlines() if not line.startswith("//# sourceMappingURL=")]
    return "\n".join(lines).replace('from"preact"', 'from"./preact.js"') + "\n"


def ensure() -> None:
    if not is_ready():
        make()


if __name__ == "__main__":  # on a developer's machine, which also checks with what npm brings
    try:
        if not (is_ready() and MODULES.is_dir()):
            make()
    except RuntimeError as error:
        raise SystemExit(f"vendor: {error}") from error
