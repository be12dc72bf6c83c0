"""A redis-server for measurements alone: on a free loopback port, without persistence, gone afterwards."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measure import wait_until

#: Where Debian puts daemons is not in everybody's PATH.
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
#: The kernel ends it when we end, however we end.
_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
_SETTINGS = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--slowlog-log-slower-than", "1000")


@contextmanager
def redis_server(folder: Path, port: int = 0, *settings: str) -> Iterator[int]:
    """The port on which it listens: a free one, unless it is given. Settings are as on its command line."""
    program = shutil.which("redis-server", path=_PATH)
    assert program, "redis-server is missing: run tools/setup"
    port = port or _free_port()
    command = [*_DIES_WITH_US, program, "--port", str(port), *_SETTINGS, *settings]
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as server,
    ):
        try:
            wait_until(lambda: _answers(server, port), 30)
            yield port
        finally:
            server.kill()  # nothing in it is worth a goodbye


def _free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port: int = place.getsockname()[1]
        return port


def _answers(server: subprocess.Popen[bytes], port: int) -> bool:
    if server.poll() is not None:
        raise RuntimeError(f"redis-server ended with {server.returncode}")
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as line:
            line.sendall(b"PING\r\n")
            return line.recv(16).startswith(b"+PONG")
    except OSError:
        return False


class Books:
    """What a server says of itself."""

    def __init__(self, url: str) -> None:
        import redis  # here and not above: the other engines do without

        self._client: Any = redis.Redis.from_url(url)

    def __enter__(self) -> Books:
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.close()

    def spent(self) -> float:
        """Its processor time so far, of all threads (seconds)."""
        cpu = self._client.info("cpu")
        return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])

    def memory(self) -> int:
        return int(self._client.info("memory")["used_memory"])

    def has_freed(self) -> bool:
        """Whether nothing is left of what it frees in the background."""
        return int(self._client.info("memory")["lazyfree_pending_objects"]) == 0

    def round_trips(self) -> int:
        """How often a client sent something: a pipeline is one, and so is a script with all it does."""
        return int(self._client.info("stats")["total_reads_processed"])

    def slowest(self) -> float:
        """The longest command since `forget_slow` (milliseconds); 0 if none took a millisecond."""
        return max((entry["duration"] / 1_000 for entry in self._client.slowlog_get(1_000)), default=0.0)

    def forget_slow(self) -> None:
        self._client.slowlog_reset()
