"""The HTTP door: every verb of a room under `/api/v1`, for programs in any language and for people.

    postroom.http.app(room)                 an ASGI application, to serve or to mount in another
    postroom serve                          the same by uvicorn, with a keeper
    postroom.http.Client("http://…")        a thin typed client, and AsyncClient for coroutines

`asgi` puts it together, `api` has one module a noun, `views` says what goes over the wire, `problems` what an
error looks like there, `waiting` how many clients wait for messages without a thread each, `server` how a
process serves it, `connections` what one of its clients may send. Only this package imports
Litestar, uvicorn and httpx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroom.http.asgi import app
    from postroom.http.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "app"]

_HOMES = {"app": "asgi", "Client": "client", "AsyncClient": "client"}


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: a client needs no server, and a server no client."""
    if name not in _HOMES:
        raise AttributeError(name)
    from importlib import import_module

    from postroom.errors import MissingExtra

    try:
        return getattr(import_module(f"postroom.http.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("postroom"):
            raise
        raise MissingExtra(f"pip install 'postroom[http]' ({error})") from error
