"""The runbook about dead letters is run from its first command to its last, as a shell would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "dead-letters.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if found == kind]


@pytest.mark.timeout(600)  # some thirty processes, one after the other
def test_the_runbook_runs(tmp_path: Path) -> None:
    for block in blocks("toml") + blocks("python"):
        name = block.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(block, encoding="utf-8")
    # A worker that outlives a failing step would hold the pipes open.
    script = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n" + "\n".join(blocks("sh"))
    env = CLEAN | {"PATH": f"{Path(sys.executable).parent}:{CLEAN['PATH']}"}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "TimeoutError: mail server: timed out" in ran.stdout
    assert "ValueError: not an address" in ran.stdout
    assert "notifications_email: Contact comms team, inspect template errors" in ran.stderr
    assert "would replay: 20" in ran.stderr
    assert "replay: 20; 20 matched" in ran.stderr
    assert "imported: 21; 1 were here already" in ran.stderr
    told = ran.stdout[ran.stdout.index("fast@shop") :]
    assert "mail.digest" in told
    assert len(re.findall(r"replayed (\S+) as \S+ in notifications_email", told)) == 1
    assert "  notifications_email  mail.digest  timeout  " in told
    assert re.search(r"^replayed \S+ as \S+ in chat_events$", told, re.MULTILINE)
    lines = (tmp_path / "dlq_fast.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["task_name"] for line in lines} == {"mail.send", "chat.send"}
