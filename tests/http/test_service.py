"""What all requests share: who takes long holds up nobody else."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import postroom
from postroom.http.redaction import Redaction
from postroom.http.service import Service

CROWD = 100
PATIENCE = 20.0


def test_any_number_of_searches_holds_up_no_call(tmp_path: Path) -> None:
    """A search takes up to 5 s, and who may only look may search: puts and probes go on meanwhile."""

    async def story() -> None:
        with postroom.open(f"sqlite:///{tmp_path}/jobs.db") as room:
            service, ended = Service(room, Redaction()), threading.Event()
            searches = [asyncio.create_task(service.work(ended.wait)) for _ in range(CROWD)]
            try:
                await asyncio.sleep(0)  # all of them have asked for a thread
                assert await asyncio.wait_for(service.call(room.engine.now), PATIENCE)
            finally:
                ended.set()
            await asyncio.gather(*searches)
            service.close()

    asyncio.run(story())
