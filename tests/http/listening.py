"""A server of nothing but live events, as a process: python -m tests.http.listening URL"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn

import postroom
from postroom.engine import Engine
from postroom.http import stream
from postroom.http.auth import Access
from tests.http import tiny


def application(engine: Engine, **options: Any) -> Any:
    app = tiny.application(engine, Access(required=False), routes=[stream.events])
    app.state.hub = stream.Hub(engine, **options)
    return app


async def _serve(url: str) -> None:
    with postroom.open(url) as room, socket.create_server(("127.0.0.1", 0)) as listener:
        app = application(room.engine, heartbeat=0.2, window=0.05)
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=5)
        await uvicorn.Server(config).serve([listener])
        await app.state.hub.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
