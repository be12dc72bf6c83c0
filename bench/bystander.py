"""`python -m bench.bystander URL`: ping a server until the standard input ends, then say the longest wait.

Prints "ready", and at the end milliseconds as a JSON number.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from urllib.parse import urlsplit


def main(url: str) -> None:
    place = urlsplit(url)
    assert place.hostname and place.port
    ended = threading.Event()
    threading.Thread(target=_set_at_the_end, args=(ended,), daemon=True).start()
    with socket.create_connection((place.hostname, place.port), 30) as line:
        _wait(line)
        print("ready", flush=True)
        longest = 0.0
        while not ended.is_set():
            longest = max(longest, _wait(line))
            time.sleep(0.0005)
    print(json.dumps(longest * 1_000))


def _set_at_the_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _wait(line: socket.socket) -> float:
    """Seconds until the answer."""
    began = time.perf_counter()
    line.sendall(b"PING\r\n")
    assert line.recv(16)
    return time.perf_counter() - began


if __name__ == "__main__":
    main(*sys.argv[1:])
