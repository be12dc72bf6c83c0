"""The memory engine against its ledger (and, trivially, against itself)."""

from __future__ import annotations

import pytest

from postroom.engines.memory import MemoryEngine
from postroom.testing import EngineMachine, ManualClock
from postroom.testing.machine import MACHINE_SETTINGS

# A failure is worth the time that it takes to make it small.
pytestmark = pytest.mark.timeout(600)


class MemoryMachine(EngineMachine):
    def make_engine(self, clock: ManualClock) -> MemoryEngine:
        return MemoryEngine(clock)


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = MACHINE_SETTINGS
