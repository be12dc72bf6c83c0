"""Messages in this process's memory: the reference of the contract, for tests and small tools.

`memory://` is a room of one's own; `memory://NAME` is shared by everybody in this process who
opens that name, until the last of them closes it.
"""

from __future__ import annotations

import threading
from urllib.parse import SplitResult

from postroom.engines.memory.engine import MemoryEngine
from postroom.errors import ConfigError

__all__ = ["MemoryEngine", "connect"]

_lock = threading.Lock()
_shared: dict[str, MemoryEngine] = {}


def connect(url: SplitResult, max_body: int) -> MemoryEngine:
    """The engine of a `memory://` URL."""
    if url.path.strip("/") or url.query or url.fragment:
        raise ConfigError("url: memory:// takes a name and nothing else, such as memory://tests")
    name = url.netloc
    if not name:
        return MemoryEngine(max_body=max_body)
    with _lock:
        engine = _shared.get(name)
        if engine is None or not engine.share():
            engine = _shared[name] = MemoryEngine(max_body=max_body)
        return engine
