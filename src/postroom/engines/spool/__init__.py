"""Redis with a local durable spool: what is put while Redis is away is kept, worked on here, moved later.

`open("redis://…", spool="sqlite:///spool.db")`. The parts: `line` is the way to Redis and knows whether it
is open, `errands` bounds every call over it, `debts` keeps what Redis is still to be told, `doubts` what it
may have, `mirror` what queues promise; `mover` empties the spool, `watch` is the thread that looks for the
return. The decisions (why: docs/decisions/0006):

- **Away** is an EngineUnavailable, or no answer within `timeout`. QueueFull, InvalidInput, Conflict,
  Uncertain and ConfigError are answers, and go to the caller. A server of the wrong kind is away until
  it is put right, except at the start, where it is the ConfigError it is without a spool.
- **What Redis may hold already is only moved**: a put without an answer, and a put that its producer may be
  repeating (`remember`, a `dedupe_window`, an error that asked for it). It is *held*: kept in the spool, not
  claimable. All other puts are worked on here. A unique key cannot be promised here: EngineUnavailable.
- **Moving** parks a message first (no local claim can have it any more), puts it to Redis under its own id,
  remembered for 24 h, and then removes it: a crash in between repeats a put, which changes nothing.
- **Kept by a move**: id, body, headers, kind, priority, due time, expiry, correlation id, and what is left of
  its attempts. Order as in the spool; a process returns when its spool is all but moved, so what it put
  before comes before what it puts after. **Not kept**: the time of the put, checkpoints, and the notes on
  attempts made here. A dead letter moves as a dead letter, with its failure.
- **A settle goes to the side that gave the delivery.** While Redis is away it is answered `ok` and owed: told
  first of all on return, in this process, at most 10,000 of them. A start is answered `lost` and the
  message released on return. A renewal is answered `ok` and made good on return.
- **Several processes** may share the spool; a record in it lets one move at a time, which only saves work.
- **While Redis is away** stats and queues are those of the spool. Records, topics, looks and operators'
  moves are about what is in Redis and raise EngineUnavailable.
- **What Redis lost is lost**: a server that comes back empty has lost what it had, not what is in the spool.
  Its queues get back the policies that this process knows.
"""

from __future__ import annotations

from postroom.engines.spool.engine import SpoolEngine
from postroom.engines.spool.line import Side, Switch

__all__ = ["Side", "SpoolEngine", "Switch"]
