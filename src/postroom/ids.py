"""Message ids: made by the client, sortable, 128 bits, written as 32 hex digits.

48 bits of milliseconds, then 80 bits that start random and count up inside one millisecond:
ids of one process sort in the order they were made, ids of two processes do not collide.
The client's clock only decides how ids sort; no engine reads time from them.
"""

from __future__ import annotations

import os
import re
import threading
import time

_RANDOM_BYTES = 10
_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


class _Generator:
    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._lock = threading.Lock()
        self._at = 0
        self._prefix = ""
        self._count = 0

    def __call__(self) -> str:
        now = time.time_ns() // 1_000_000
        with self._lock:
            # A clock that stands still or steps back must not break the order.
            if now > self._at:
                self._at, self._prefix, self._count = now, f"{now:012x}", _entropy()
            else:
                self._count += 1
            return self._prefix + self._count.to_bytes(_RANDOM_BYTES, "big").hex()


def _entropy() -> int:
    # The top bit stays free, so that counting up never overflows.
    return int.from_bytes(os.urandom(_RANDOM_BYTES), "big") >> 1


new_id = _Generator()

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
