"""With both sides there, the spool keeps the contract: a room does not notice that it has one."""

from __future__ import annotations

from postroom.engine import Capabilities
from postroom.engines.memory import MemoryEngine
from postroom.engines.spool import SpoolEngine
from postroom.testing import EngineContract, ManualClock


class OnMemory(SpoolEngine):
    """Its primary is gone with the process, so what that could not survive is not asked."""

    capabilities = Capabilities(durable=False, shared=False, blocking=True)


class TestSpool(EngineContract):
    def make_engine(self, clock: ManualClock) -> SpoolEngine:
        return OnMemory(lambda: MemoryEngine(clock), MemoryEngine(clock), timeout=30_000, clock=clock)

    # Every put through a spool is remembered for a day at least, whatever it says.
    test_an_id_can_be_put_again_once_its_time_is_over_however_many_there_were = None  # type: ignore[assignment]
    test_an_id_put_again_is_not_held_by_an_old_receipt = None  # type: ignore[assignment]
    test_an_acked_id_is_forgotten_by_default = None  # type: ignore[assignment]
    test_an_acked_id_is_remembered_that_long_after_it_is_gone = None  # type: ignore[assignment]
    test_a_remembered_id_is_forgotten_although_sweeps_came_by = None  # type: ignore[assignment]
    test_the_messages_own_remember_wins_over_the_policy = None  # type: ignore[assignment]
    test_every_field_of_a_message_comes_back = None  # type: ignore[assignment]
