"""Builds the package, and makes interpreters that have nothing but what is installed into them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).parents[2]
SMOKE = Path(__file__).parent / "smoke.py"


def run(*command: str | Path, cwd: Path = REPO) -> str:
    ran = subprocess.run(command, check=False, cwd=cwd, capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, f"{' '.join(map(str, command))}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution, made of this folder."""
    run(sys.executable, "-m", "hatchling", "build", "-d", folder)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def empty_venv(folder: Path) -> Path:
    """An interpreter with nothing installed, not even pip: ours installs into it."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    return folder / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "-qq",
        "--disable-pip-version-check",
        *what,
    )


def smoke(python: Path, *extras: str) -> str:
    """Run from a folder where no source of ours lies around."""
    return run(python, "-I", SMOKE, *extras, cwd=python.parents[1])
