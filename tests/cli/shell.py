"""The command as people and scripts run it: as a process, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-c", "import sys; from postroom.cli import main; sys.exit(main())"]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "NO_COLOR"))}


class Shell:
    """A folder in which the command is run, with no other variables than those given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, text: str, name: str = "postroom.toml") -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def run(
        self, *args: str, code: int = 0, stdin: str = "", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        run = subprocess.run(
            [*COMMAND, *args],
            cwd=self.folder,
            env=CLEAN | environ,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == code, run.stderr
        assert "Traceback" not in run.stderr
        return run

    def start(self, *args: str, **environ: str) -> subprocess.Popen[str]:
        """The command in the background; whoever starts it also ends it."""
        log = (self.folder / "log").open("w", encoding="utf-8")
        options: dict[str, Any] = {"stdout": log, "stderr": log, "text": True}
        with log:
            return subprocess.Popen([*COMMAND, *args], cwd=self.folder, env=CLEAN | environ, **options)

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")
