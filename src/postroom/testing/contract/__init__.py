"""The contract as tests: one group per promise, one test per sentence of `postroom.engine`.

Subclass `EngineContract` and implement `make_engine`; pytest then runs everything here against
that engine. Nothing is skipped unless the engine's `capabilities` say that it cannot apply.
"""

from __future__ import annotations

from collections import Counter

from postroom.testing.contract.backlog import BacklogContract
from postroom.testing.contract.bad_input import BadInputContract
from postroom.testing.contract.claim import (
    ClaimBytesContract,
    ClaimContract,
    NeverEarlyContract,
    NextWakeContract,
    StartContract,
)
from postroom.testing.contract.expiry import EvictionContract, ExpiryContract, KeepDoneContract
from postroom.testing.contract.groups import GroupsContract
from postroom.testing.contract.health import ClockContract, InspectContract
from postroom.testing.contract.history import CounterContract, LogContract
from postroom.testing.contract.inspect import FindContract, FindDeadContract, GetContract, StoredContract
from postroom.testing.contract.lease import CheckpointContract, ExtendContract, LeaseContract, OverdueContract
from postroom.testing.contract.lifetime import CloseContract, DurableContract, SharedContract, ThreadContract
from postroom.testing.contract.operate import MoveContract, PauseContract, PurgeContract, ReplayContract
from postroom.testing.contract.order import AgingContract, PlaceContract, PriorityContract
from postroom.testing.contract.policy_limits import CapacityContract, MaxInFlightContract, RateContract
from postroom.testing.contract.put import (
    DeadOnArrivalContract,
    IdempotenceContract,
    JoinContract,
    PutContract,
    UniqueKeyContract,
)
from postroom.testing.contract.queues import DeclareContract, DropContract, QueuesContract, StatsContract
from postroom.testing.contract.records import RecordsContract, TakeContract
from postroom.testing.contract.settle import (
    FailureContract,
    SettleContract,
    StaleReceiptContract,
    TurnContract,
)
from postroom.testing.contract.suspects import SuspectContract
from postroom.testing.contract.sweep import GraceContract, ReclaimContract, SweepContract, SweepLogContract
from postroom.testing.contract.tally import TallyContract
from postroom.testing.contract.topics import TopicContract
from postroom.testing.contract.waiting import HerdContract, RingContract, TopicRingContract, WaiterContract


class EngineContract(
    # the way of a message
    PutContract,
    JoinContract,
    IdempotenceContract,
    UniqueKeyContract,
    DeadOnArrivalContract,
    ClaimContract,
    ClaimBytesContract,
    StartContract,
    NeverEarlyContract,
    NextWakeContract,
    PriorityContract,
    PlaceContract,
    AgingContract,
    SettleContract,
    FailureContract,
    StaleReceiptContract,
    TurnContract,
    LeaseContract,
    ExtendContract,
    CheckpointContract,
    OverdueContract,
    # what time does
    ReclaimContract,
    SuspectContract,
    SweepContract,
    SweepLogContract,
    GraceContract,
    ExpiryContract,
    EvictionContract,
    KeepDoneContract,
    # what a policy limits
    CapacityContract,
    RateContract,
    MaxInFlightContract,
    # waiting
    RingContract,
    HerdContract,
    WaiterContract,
    TopicRingContract,
    # looking and operating
    GetContract,
    StoredContract,
    FindContract,
    FindDeadContract,
    GroupsContract,
    TallyContract,
    BacklogContract,
    MoveContract,
    ReplayContract,
    PauseContract,
    PurgeContract,
    QueuesContract,
    DeclareContract,
    DropContract,
    StatsContract,
    LogContract,
    CounterContract,
    # beside the queues
    RecordsContract,
    TakeContract,
    TopicContract,
    # the engine itself
    ClockContract,
    InspectContract,
    BadInputContract,
    CloseContract,
    ThreadContract,
    DurableContract,
    SharedContract,
):
    """Everything an engine promises. Implement `make_engine`; see `postroom.testing`."""


def _defined_twice() -> list[str]:
    """Names that two groups define: one would hide the other, and its tests would never run."""
    groups = EngineContract.__bases__
    names = Counter(name for group in groups for name in vars(group) if not name.startswith("__"))
    return sorted(name for name, count in names.items() if count > 1)


if _defined_twice():
    raise TypeError(f"defined in two groups of the contract: {', '.join(_defined_twice())}")
