"""One connection of a client, by uvicorn: what it may send before it has said anything whole is bounded.

A body is bounded by whoever reads it. What comes before it, between its chunks and behind it, nobody reads
until it is complete: without an end to that, one client who has shown no token fills the memory with it; and
without an end to the time, the table of open files with requests that never become whole.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from postroom.http.problems import MEDIA, document
from postroom.ids import new_token

log: logging.Logger = logging.getLogger(__name__)

#: The first line with all headers; and what may stand between two parts of a body (bytes).
LONGEST_HEAD = 64 * 2**10
#: A head has so long to become whole, and a body so long to go on (seconds).
PATIENCE = 60.0


class Connection(HttpToolsProtocol):
    """Ends with a 431 when a head has no end, and without a word when its client says no more."""

    _unheeded = 0
    _since = 0.0
    #: Whether it is the client's turn to speak.
    _owed = True

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._heard()

    def data_received(self, data: bytes) -> None:
        self._owed = True
        self._unheeded += len(data)
        super().data_received(data)
        if self._unheeded > LONGEST_HEAD and not self.transport.is_closing():
            self._refuse()

    def on_message_begin(self) -> None:
        self._since, self._owed = self.loop.time(), True  # what came with it is a part of its head
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._heard(owed=True)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._heard(owed=True)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._heard(owed=False)
        super().on_message_complete()

    def end_if_stuck(self, patience: float) -> None:
        """Hang up on a client that began something, or nothing, and did not go on for so long.

        While we take nothing because we have enough to do, it is not the client who is slow.
        """
        now = self.loop.time()
        if self.flow.read_paused:
            self._since = now
        elif self._owed and now - self._since > patience:
            self.transport.close()

    def _heard(self, *, owed: bool = True) -> None:
        self._unheeded, self._since, self._owed = 0, self.loop.time(), owed

    def _refuse(self) -> None:
        """Say why, unless an answer to something else is being written."""
        client = self.client[0] if self.client else "-"
        log.info("a head without an end from %s", client, extra={"event": "http.endless", "client": client})
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_too_long())
        self.transport.close()


def _too_long() -> bytes:
    detail = f"The head of a request has at most {LONGEST_HEAD:,} bytes."
    body = msgspec.json.encode(document(431, "head_too_large", detail, new_token()))
    headers = f"Content-Type: {MEDIA}\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"HTTP/1.1 431 Request Header Fields Too Large\r\n{headers}\r\n\r\n".encode() + body
