"""examples/marketplace/redis.conf starts a server, and the doctor calls it fine."""

from __future__ import annotations

import re
from pathlib import Path

import postroom
from postroom.findings import Level
from tests.redis import servers

FILE = Path(__file__).parents[2] / "examples" / "marketplace" / "redis.conf"


def test_the_doctor_finds_nothing_to_change() -> None:
    options = dict(re.findall(r"^([a-z-]+) (.+)$", FILE.read_text(encoding="utf-8"), re.MULTILINE))
    assert (options["appendonly"], options["appendfsync"], options["save"]) == ("yes", "everysec", "900 1")
    with servers.single(options) as server, postroom.open(server.url()) as room:
        assert [finding for finding in room.engine.inspect() if finding.level is not Level.OK] == []
