"""The memory engine keeps the contract."""

from __future__ import annotations

from postroom.engines.memory import MemoryEngine
from postroom.testing import EngineContract, ManualClock


class TestMemory(EngineContract):
    def make_engine(self, clock: ManualClock) -> MemoryEngine:
        return MemoryEngine(clock)
