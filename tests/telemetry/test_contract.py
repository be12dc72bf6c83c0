"""An engine that is watched keeps every promise of the contract."""

from __future__ import annotations

from postroom.engine import Engine
from postroom.engines.memory import MemoryEngine
from postroom.telemetry import Observed
from postroom.testing import EngineContract, ManualClock


class TestObservedMemory(EngineContract):
    def make_engine(self, clock: ManualClock) -> Engine:
        return Observed(MemoryEngine(clock))


class TestTracedMemory(EngineContract):
    def make_engine(self, clock: ManualClock) -> Engine:
        return Observed(MemoryEngine(clock), traced=True)
