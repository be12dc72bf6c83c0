"""The API described: openapi.json, and for people a page of our own that draws it, without a script from
anywhere else.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.openapi.plugins import JsonRenderPlugin, OpenAPIRenderPlugin

from postroom.http.problems import MEDIA, Problem

_FOLDER = Path(__file__).parent / "page"
_PROBLEM = {
    "description": "What went wrong; the status is that of the problem.",
    "content": {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


@cache  # three small files
def _file(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()


def _answer(name: str, kind: str) -> Response[bytes]:
    return Response(_file(name), headers={"content-type": kind, "cache-control": "no-cache"})


class Document(JsonRenderPlugin):
    """The document itself. Every error is a problem, of every route; Litestar would tell of its own."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return self.render_json(request, with_problems(openapi_schema))


def with_problems(document: dict[str, Any]) -> dict[str, Any]:
    """The same document, in which every operation has a problem for all that is no success."""
    paths = {
        path: {method: _with_problem(operation) for method, operation in operations.items()}
        for path, operations in document["paths"].items()
    }
    components = document["components"]
    _, shapes = msgspec.json.schema_components([Problem], ref_template="#/components/schemas/{name}")
    return {
        **document,
        "paths": paths,
        "components": {**components, "schemas": {**components["schemas"], **shapes}},
    }


def _with_problem(operation: dict[str, Any]) -> dict[str, Any]:
    answers = {status: each for status, each in operation["responses"].items() if status.startswith("2")}
    return {**operation, "responses": {**answers, "default": _PROBLEM}}


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
