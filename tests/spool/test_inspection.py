"""What the engine with two sides says of itself, and whose clock it goes by."""

from __future__ import annotations

from postroom.engines.spool import SpoolEngine
from postroom.findings import Level
from postroom.model import NewMessage
from tests.spool.stage import Remote, eventually


def test_both_sides_are_looked_at(engine: SpoolEngine) -> None:
    checks = [finding.check for finding in engine.inspect()]
    assert checks == ["durability", "spool", "spool: durability"], "both are memory engines here"


def test_a_redis_that_is_away_is_bad_and_what_waits_is_told(remote: Remote, engine: SpoolEngine) -> None:
    remote.refuse()
    engine.put("emails", [NewMessage()])
    eventually(lambda: engine.side().spooled == 1)
    connection, spool, *_ = engine.inspect()
    assert (connection.check, connection.level) == ("connection", Level.FAIL)
    assert (spool.level, spool.text) == (Level.WARN, "1 messages wait in the spool")
    assert engine.now() > 0, "by the clock of this machine"
