"""A bare HTTP/1.1 client: what is measured is the server, so the client may cost next to nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self


def asking(method: str, path: str, body: Any = None, *more: str) -> bytes:
    """A request to the API as it goes over the line."""
    data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
    head = [f"{method} /api/v1{path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(data)}", *more]
    return "\r\n".join([*head, "", ""]).encode() + data


class Line:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self.reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._writer.close()

    def send(self, request: bytes) -> None:
        self._writer.write(request)

    async def ask(self, request: bytes) -> bytes:
        """The body of the answer, which must be a good one."""
        self._writer.write(request)
        return await self.answer()

    async def answer(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        body = await self.reader.readexactly(length)
        if head[9:10] != b"2":
            raise RuntimeError(f"{head[:20]!r} {body[:500]!r}")
        return body
