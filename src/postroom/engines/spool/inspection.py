"""What an operator should know of both sides, and of what waits between them."""

from __future__ import annotations

from collections.abc import Callable

from postroom.engine import Engine
from postroom.engines.spool.line import Side
from postroom.errors import EngineUnavailable
from postroom.findings import Finding, bad, fine, worth_a_change

Ask = Callable[[Callable[[Engine], list[Finding]]], list[Finding]]


def inspect(side: Side, spool: Engine, ask: Ask) -> list[Finding]:
    """Redis if it answers, then the spool; whose findings say so in their name."""
    return [*_primary(ask), _between(side), *map(_named, spool.inspect())]


def _primary(ask: Ask) -> list[Finding]:
    try:
        return ask(lambda primary: primary.inspect())
    except EngineUnavailable as error:
        return [bad("connection", str(error), "the spool takes puts meanwhile: bring Redis back")]


def _between(side: Side) -> Finding:
    text = f"{side.spooled:,} messages wait in the spool"
    if side.spooled and not side.redis_active:
        return worth_a_change("spool", text, "they move over by themselves when Redis is back")
    return fine("spool", text)


def _named(finding: Finding) -> Finding:
    return finding._replace(check=f"spool: {finding.check}")
