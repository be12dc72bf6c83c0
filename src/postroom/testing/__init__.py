"""For those who test with Postroom: a clock moved by hand, and what every engine must pass.

Somebody who writes an engine runs the whole contract against it like this:

    from postroom.testing import EngineContract, EngineMachine

    class TestMyEngine(EngineContract):            # one test per sentence of the contract
        def make_engine(self, clock):              # opens this test's store; `clock` gives its time
            return MyEngine(path=..., clock=clock)

    class MyMachine(EngineMachine):                # random operations, side by side with memory
        def make_engine(self, clock):
            return MyEngine(path=..., clock=clock)

    TestMyMachine = MyMachine.TestCase

Both need pytest and hypothesis. For readable failures say
`pytest.register_assert_rewrite("postroom.testing")` in conftest.py. `ManualClock` needs neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from postroom.testing.clock import ManualClock

if TYPE_CHECKING:
    from postroom.testing.contract import EngineContract
    from postroom.testing.machine import EngineMachine

__all__ = ["EngineContract", "EngineMachine", "ManualClock"]

# Loaded when asked for: who only wants the clock needs neither pytest nor hypothesis.
_LAZY = {"EngineContract": "postroom.testing.contract", "EngineMachine": "postroom.testing.machine"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
