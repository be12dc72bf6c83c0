"""The API for people: a page of our own that draws openapi.json, without a script from anywhere else."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from litestar import Request, Response, get
from litestar.openapi.plugins import OpenAPIRenderPlugin

_FOLDER = Path(__file__).parent / "page"


@cache  # three small files
def _file(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()


def _answer(name: str, kind: str) -> Response[bytes]:
    return Response(_file(name), headers={"content-type": kind, "cache-control": "no-cache"})


class Page(OpenAPIRenderPlugin):
    """The page itself, at the root of the document; Litestar knows it as one way to draw that."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return _file("index.html")


@get("/schema/page.js", opt={"action": "schema.show"}, include_in_schema=False, sync_to_thread=False)
def script() -> Response[bytes]:
    """What it does."""
    return _answer("page.js", "text/javascript; charset=utf-8")


@get("/schema/page.css", opt={"action": "schema.show"}, include_in_schema=False, sync_to_thread=False)
def style() -> Response[bytes]:
    """How it looks."""
    return _answer("page.css", "text/css; charset=utf-8")


ROUTES = [script, style]
