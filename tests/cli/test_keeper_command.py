"""`postroom keeper`: a sweep by hand, and a keeper that runs."""

from __future__ import annotations

import signal
from pathlib import Path

import postroom
from postroom import Policy
from postroom.room import Room
from tests.cli.inside import Inside
from tests.cli.shell import Shell
from tests.door.staging import eventually, taken

PATIENCE = 60.0
#: Overdue at once, and no silence here is long enough to look like an outage.
HASTY = Policy(lease="5m", ack_timeout="10ms")


def test_sweep_does_what_time_demands(inside: Inside, seen: Room) -> None:
    queue = seen.queue("q", HASTY)
    queue.put("x")
    taken(queue)
    seen.queue("other").put("y")

    def reclaimed() -> bool:
        swept = inside.run("keeper", "sweep", "q", "--json").json
        assert [done["queue"] for done in swept] == ["q"]
        return bool(swept[0]["reclaimed"])

    eventually(reclaimed, PATIENCE)
    assert queue.stats().ready == 1
    told = [entry.info for entry in queue.history().entries if entry.event == "requeue"]
    assert told[0]["triggered_by"] == "operator"
    assert inside.run("keeper", "sweep").out.splitlines()[0].split()[:2] == ["queue", "reclaimed"]
    inside.run("keeper", "sweep", "nope", code=3)


def test_a_keeper_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    url = f"sqlite:///{tmp_path}/jobs.db"
    with postroom.open(url) as room:
        queue = room.queue("q", HASTY)
        queue.put("x")
        taken(queue)
        process = shell.start("keeper", "run", "--url", url)
        try:
            eventually(lambda: queue.stats().ready == 1, PATIENCE)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, shell.log()
        finally:
            process.kill()
            process.wait(PATIENCE)
        assert room.engine.records.get("lock", "keeper") is None, "it gave up its lead"
