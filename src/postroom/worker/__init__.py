"""Running handlers: `handlers` says which code, `crew` has the threads, `pace` how far ahead to reach,
`listener` hears the rings, `dispatcher` talks to the engine, `heartbeat` shows that this process lives,
`worker` is what people use.
"""

from postroom.worker.handlers import Handlers
from postroom.worker.worker import Worker

__all__ = ["Handlers", "Worker"]
