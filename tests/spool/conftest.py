"""A primary that can be switched off, and a watch that looks often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postroom.engines.spool import SpoolEngine, line, watch
from tests.spool.stage import Remote, spool_on


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes half a second between machines takes a moment here."""
    monkeypatch.setattr(watch, "PROBE", 0.02)
    monkeypatch.setattr(watch, "LOOK_BUSY", 0.05)
    monkeypatch.setattr(watch, "LOOK_IDLE", 0.1)
    monkeypatch.setattr(line, "HOLD_FIRST", 0.02)


@pytest.fixture
def remote(quick: None) -> Remote:
    return Remote()


@pytest.fixture
def engine(remote: Remote) -> Iterator[SpoolEngine]:
    engine = spool_on(remote)
    yield engine
    remote.answer()
    engine.close()
