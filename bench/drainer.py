"""`python -m bench.drainer SYSTEM URL COUNT`: work on so many jobs, then say how fast it was and end.

Prints jobs a second as a JSON number. The first tenth is not counted, in which a process warms up.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time

from bench.systems import Body, Nobody, kind_of

#: Whoever takes longer than this has lost something (seconds).
_PATIENCE = 100


class _Count(Nobody):
    """Called by every job; the last one ends the process."""

    def __init__(self, count: int) -> None:
        self._warm, self._count = count // 10, count
        self._done = 0
        self._began = 0.0
        self._lock = threading.Lock()

    def begin(self, body: Body) -> None:
        with self._lock:
            self._done += 1
            if self._done == self._warm:
                self._began = time.perf_counter()
            elif self._done == self._count:
                spent = time.perf_counter() - self._began
                print(json.dumps((self._count - self._warm) / spent), flush=True)
                os._exit(0)


def main(system: str, url: str, count: str) -> None:
    faulthandler.dump_traceback_later(_PATIENCE, exit=True)
    kind_of(system)(url, _Count(int(count))).work()


if __name__ == "__main__":
    main(*sys.argv[1:])
