"""Message ids: made by the client, sortable, 128 bits, written as 32 hex digits.

48 bits of milliseconds, then 80 bits that start random in every process and count up: ids of one
thread sort in the order they were made, ids of two processes do not collide.
The client's clock only decides how ids sort; no engine reads time from them.
"""

from __future__ import annotations

import itertools
import os
import re
import time

_RANDOM_BYTES = 10
_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


class _Generator:
    """Needs no lock: reading and replacing the stamp, and counting, are one step each."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        # The top bit stays free, so that counting up never overflows.
        self._count = itertools.count(int.from_bytes(os.urandom(_RANDOM_BYTES), "big") >> 1)
        self._stamp = (0, "")

    def __call__(self) -> str:
        now = time.time_ns() // 1_000_000
        at, prefix = self._stamp
        # A clock that stands still or steps back must not break the order.
        if now > at:
            prefix = f"{now:012x}"
            self._stamp = (now, prefix)
        return prefix + next(self._count).to_bytes(_RANDOM_BYTES, "big").hex()


new_id: _Generator = _Generator()

# A child that went on counting from its parent's last id would make the parent's next ids.
os.register_at_fork(after_in_child=new_id.restart)


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def replay_id(old_id: str, number: int) -> str:
    """The id of the `number`-th replay of a dead letter: the same for everybody who asks."""
    import hashlib  # here and not above: most programs never fail, and it takes OpenSSL to load

    digest = hashlib.sha256(f"{old_id}:replay:{number}".encode()).hexdigest()
    return old_id[:12] + digest[:20]


def new_token() -> str:
    """A fence: random per claim, so that an old receipt never fits again."""
    return os.urandom(8).hex()
