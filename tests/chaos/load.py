"""What the producers put and the workers check: every body can be told from its id and its number."""

from __future__ import annotations

import os
import random
from typing import Any, NamedTuple

from postroom import Policy

#: Short, so that the messages of the dead come back while the test looks.
LEASE = 2.0
QUEUES = ("letters", "parcels")
#: Kills are no fault of a message, so attempts are many; `capacity` keeps what is left to drain small.
POLICY = Policy(lease=LEASE, ack_timeout="1m", max_attempts=50, backoff="50ms", capacity=400)
#: A poisonous message kills its workers until it has used up this many attempts.
POISON_ATTEMPTS = 2
#: Producers share these, so that some puts meet a message which is there already; so many of all have one.
KEYS = 40
KEYED = float(os.environ.get("BATTLE_KEYED", "0.1"))

#: Bodies above a kilobyte are kept in a table of their own.
_LARGE = 3_000


class Work(NamedTuple):
    """How the handler of one message spends its time (seconds), and how it ends."""

    seconds: float
    fails: bool = False
    poison: bool = False
    #: A file that has to be there before it ends.
    until: str = ""


def body_of(id: str, chance: random.Random) -> dict[str, Any]:
    pad = chance.randrange(1_200, _LARGE) if chance.random() < 0.1 else chance.randrange(20)
    return body_with(id, _work(chance)) | {"pad": id[-1] * pad, "size": pad}


def body_with(id: str, work: Work) -> dict[str, Any]:
    return {"id": id, "work": work._asdict(), "pad": "", "size": 0}


def _work(chance: random.Random) -> Work:
    dice = chance.random()
    if dice < 0.003:
        return Work(1.25 * LEASE)  # only a heartbeat keeps it
    if dice < 0.03:
        return Work(0.2)
    return Work(chance.uniform(0, 0.012), fails=dice > 0.98)


def work_of(body: Any, id: str) -> Work | None:
    """What to do; None if this is not the body that was put under this id."""
    if body["id"] != id or body["pad"] != id[-1] * body["size"]:
        return None
    return Work(**body["work"])
