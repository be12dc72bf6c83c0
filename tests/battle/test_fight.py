"""A leg is judged whatever its workers do: one that ends by itself is told, and does not end the leg."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.battle.fight import Fight, Leg


def member(name: str, code: int | None) -> Any:
    process = SimpleNamespace(poll=lambda: code)
    return SimpleNamespace(
        name=name,
        service="billing",
        process=process,
        is_ready=code is None,
        log=lambda: "first\nConnectionError: gone\n",
    )


def test_a_blow_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    store: Any = SimpleNamespace(url="", broker="", hurts={"restart": None})
    fight = Fight(
        Leg("stock", "threads"), store, tmp_path, 1, 1.0, blows={"hard": 1, "restart": 1, "hrad": 1}
    )
    with pytest.raises(ValueError, match="hrad"):
        fight._plan()


def test_who_ends_by_itself_is_a_complaint_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = SimpleNamespace(url="", broker="")
    fight = Fight(Leg("stock", "threads"), store, tmp_path, 1, 1.0)
    fight.crew = [member("w0", 1), member("w1", None)]
    called: list[str] = []

    def enlist(service: str) -> None:
        called.append(service)
        fight.crew.append(member("w2", None))

    monkeypatch.setattr(fight, "_enlist", enlist)
    fight._relieve()
    assert [each.name for each in fight.crew] == ["w1", "w2"]
    assert called == ["billing"]  # who worked for one service is replaced there
    assert fight.wrong == ["w0 ended by itself: ConnectionError: gone"]
    assert [(fault.kind, fault.worker) for fault in fight.faults] == [("ended by itself", "w0")]
    fight._relieve()
    assert len(fight.wrong) == 1
