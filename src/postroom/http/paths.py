"""Names in a path: a queue may be called "a/b", which comes as `a%2Fb` and must stay one name."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from litestar.types import ASGIApp, Receive, Scope, Send

from postroom.http.guardrails import Refusal

_NO_TEXT = Refusal(400, "invalid_input", "the path is not UTF-8, percent-encoded")


def keep_slashes(raw: str) -> str:
    """The path with everything decoded but a slash inside a name (and the sign that says so).

    Raises UnicodeDecodeError for what is no UTF-8: replaced, two names would be one.
    """
    parts = (unquote(part, errors="strict") for part in raw.split("/"))
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


class WholeNames:
    """ASGI: routes by the path as it was sent. Servers hand on one in which names have come apart."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: Any = scope.get("raw_path")
        if raw and b"%" in raw:
            try:
                scope["path"] = keep_slashes(raw.partition(b"?")[0].decode("ascii"))
            except UnicodeDecodeError:
                await _NO_TEXT(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)
