"""What was settled lately is kept for as long as it may have to be told again, and no longer."""

from __future__ import annotations

from typing import Any, cast

from postroom.engine import Engine
from postroom.model import Receipt, Settlement, Verb
from postroom.recent import RecentSettles


class Settled:
    """Stands for an engine; what it was told."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    def settle(self, queue: str, settlements: list[Settlement]) -> list[Any]:
        self.tokens += [each.receipt.token for each in settlements]
        return []


def test_what_is_too_old_to_be_told_again_is_not_kept() -> None:
    recent, engine = RecentSettles(), Settled()
    for n in range(1_000):  # ten a second
        recent.note([Settlement(Receipt("q", f"{n}", f"{n}"), Verb.ACK)], n / 10)
    assert len(recent) <= 21
    recent.repeat(cast(Engine, engine))
    assert engine.tokens == [f"{n}" for n in range(979, 1_000)]
    recent.repeat(cast(Engine, engine))
    assert len(engine.tokens) == 21, "once"
