"""Which messages Redis may have although nobody was told so."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from postroom.model import NewMessage

#: The most ids that are kept in mind; the oldest go.
MOST = 10_000


class Doubts:
    """Ids whose put failed in a way that asks for a repeat; repeated here, it is only moved. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: OrderedDict[str, None] = OrderedDict()

    def note(self, messages: Sequence[NewMessage]) -> None:
        with self._lock:
            self._ids.update((message.id, None) for message in messages)
            while len(self._ids) > MOST:
                self._ids.popitem(last=False)

    def about(self, messages: Sequence[NewMessage]) -> bool:
        """Whether any of these is in doubt."""
        return bool(self._ids) and any(message.id in self._ids for message in messages)

    def forked(self) -> None:
        self._lock = threading.Lock()
