"""Builds the package, and makes interpreters that have nothing but what is installed into them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
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


def wheel_from(source: Path, folder: Path) -> Path:
    """The wheel that pip makes of a source distribution before it installs that. Asks no index."""
    command = [sys.executable, "-m", "pip", "wheel", "-qq", "--disable-pip-version-check"]
    # Without isolation: by the hatchling that `build` has used, whose version stands in the wheel.
    run(*command, "--no-build-isolation", "--no-deps", "--no-index", "-w", folder, source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def differences(one: Path, other: Path) -> list[str]:
    """The files that are not the same in both wheels, or in one of them only."""
    here, there = contents(one), contents(other)
    return sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


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
