"""A process that somebody started for a while ends when that one does, however it does."""

from __future__ import annotations

import os
import threading


def end_with_parent() -> None:
    """Our stdin is a pipe from the parent that nothing is written to: its end is the parent's."""

    def watch() -> None:
        # Not through sys.stdin: a thread that holds its lock would keep Python from ending.
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
