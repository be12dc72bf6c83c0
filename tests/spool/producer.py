"""A process that puts until it is killed, and writes down what was accepted: URL, spool, ledger."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from postroom.engines.redis import connect
from postroom.engines.redis.faults import is_uncertain
from postroom.engines.spool import SpoolEngine
from postroom.engines.sqlite import SqliteEngine
from postroom.engines.sqlite.file import File
from postroom.model import NewMessage


def main(url: str, spool: str, ledger: str) -> None:
    engine = SpoolEngine(
        lambda: connect(urlsplit(url), 2**20), SqliteEngine(File(spool)), uncertain=is_uncertain
    )
    with Path(ledger).open("a", encoding="ascii", buffering=1) as accepted:
        while True:
            accepted.write(engine.put("q", [NewMessage()]).puts[0].id + "\n")
            time.sleep(0.002)


if __name__ == "__main__":
    main(*sys.argv[1:])
