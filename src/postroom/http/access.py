"""Every request has an id and leaves a line in the log: who asked what, how it ended, how long it took."""

from __future__ import annotations

import logging
import re
import time
from typing import Any

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from postroom.http.problems import HUNG_UP, REQUEST_ID
from postroom.ids import new_token

log: logging.Logger = logging.getLogger(__name__)

HEADER = b"x-request-id"
#: What a client or a proxy may call a request; anything else gets a name of ours.
_SANE = re.compile(rb"[A-Za-z0-9._:-]{1,100}")
#: Asked every few seconds by machines: told at a lower level.
_QUIET = {"/healthz", "/readyz", "/metrics"}
#: What would end a line of the log, or draw on the terminal that shows it.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

#: uvloop's words for a connection that is gone. Of several requests that came together over one connection,
#: uvicorn tells only the last that its client has hung up; what the others answer is refused with this.
_CLOSED = "the handler is closed"


class Access:
    """ASGI: names requests (or keeps the name they have), answers with it, and logs their end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if str(scope["type"]) != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given(scope) or new_token()
        told: Any = scope
        told[REQUEST_ID] = request_id
        began, status = time.perf_counter(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (HEADER, request_id.encode())]
            try:
                await send(message)
            except RuntimeError as error:
                if _CLOSED not in str(error):
                    raise
                told[HUNG_UP] = True

        async def received() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                told[HUNG_UP] = True
            return message

        try:
            await self._app(scope, received, sent)
        finally:
            _log(scope, request_id, status, (time.perf_counter() - began) * 1_000)


def _given(scope: Scope) -> str:
    value = dict(scope["headers"]).get(HEADER, b"")
    return value.decode() if _SANE.fullmatch(value) else ""


def _log(scope: Any, request_id: str, status: int, took: float) -> None:
    client = scope.get("client")
    extra = {
        "method": scope["method"],
        "path": _safe(scope["path"]),
        "status": status,
        "ms": round(took, 1),
        "by": _safe(str(getattr(scope.get("user"), "name", ""))),
        "client": client[0] if client else "",
        "request_id": request_id,
    }
    level = logging.DEBUG if scope["path"] in _QUIET else logging.INFO
    # All of it in the line too: a log for people has nothing else, and it is the only record of the traffic.
    log.log(
        level,
        "%s %s %s in %s ms by %s from %s, request %s",
        *(value or "-" for value in extra.values()),
        extra={"event": "http.request", **extra},
    )


def _safe(text: str) -> str:
    return _CONTROL.sub(lambda found: f"%{ord(found[0]):02X}", text)
