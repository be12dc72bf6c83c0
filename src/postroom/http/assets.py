"""The dashboard's files, as they lie in the package: read once, compressed once, named by their content.

All of them are served below /assets/HASH/, where HASH is made of all their contents: a browser may keep them
for ever, and after an upgrade it asks for others. Only `/` is asked for again each time, which costs a 304.
A path is looked up in what was read, never in the file system.
"""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
from pathlib import Path
from typing import Any, NamedTuple

from litestar import Request, Response, get
from litestar.params import FromPath

from postroom.errors import NotFound

FOLDER = Path(__file__).parents[1] / "dashboard"
#: What the package's own files may be; whatever else lies there (notes, licences, types) is not served.
#: Litestar adds the charset to what is text.
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
INDEX = "index.html"
#: In index.html: where its files are, and what the browser may fetch before it has read who imports it.
_PLACE, _PRELOAD = b"{assets}", b"<!-- preload -->"
#: The styles, in the order in which they count: one file where they are served, so that a browser asks once.
_STYLES = "style/all.css"
_STYLE_PARTS = (
    "style/tokens.css", "style/base.css", "style/shell.css", "style/parts.css", "style/pages.css",
    "vendor/uplot.css",
)  # fmt: skip
#: The first script, and how one says at its beginning what it needs; import(…) is for later.
_FIRST = "app.js"
_IMPORT = re.compile(rb"""^(?:import|export|\})[^;"'()]*["'](\.[^"']+)["'];""", re.MULTILINE)
_FOREVER, _ASK = "public, max-age=31536000, immutable", "no-cache"
_HASH = 16

AnyRequest = Request[Any, Any, Any]


class Asset(NamedTuple):
    content: bytes
    compressed: bytes
    media: str
    etag: str


class Assets:
    """The files as they are now: what a developer changes is seen with the next `/`."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder, self._seen = folder, ""
        self.hash: str = ""
        self._files: dict[str, Asset] = {}

    def index(self) -> Asset:
        paths = self._paths()
        seen = repr(
            [(name, (found := path.stat()).st_mtime_ns, found.st_size) for name, path in paths.items()]
        )
        if seen != self._seen:
            self._read(paths)
            self._seen = seen
        if INDEX not in self._files or not any(name.startswith("vendor/") for name in self._files):
            raise NotFound("this installation has no dashboard: in a checkout, `make setup` completes it")
        return self._files[INDEX]

    def file(self, hash: str, name: str) -> Asset:
        if not self.hash:
            self.index()
        if hash != self.hash or name not in self._files:
            raise NotFound(f"the dashboard has no file {name!r:.200} in this release")
        return self._files[name]

    def _paths(self) -> dict[str, Path]:
        found = (path for path in self._folder.rglob("*") if path.suffix in TYPES and path.is_file())
        return {path.relative_to(self._folder).as_posix(): path for path in sorted(found)}

    def _read(self, paths: dict[str, Path]) -> None:
        contents = {name: path.read_bytes() for name, path in paths.items()}
        contents[_STYLES] = b"\n".join(contents.pop(name, b"") for name in _STYLE_PARTS)
        whole = hashlib.sha256()
        for name, content in contents.items():
            whole.update(f"{name}\0{len(content)}\0".encode() + content)
        self.hash = whole.hexdigest()[:_HASH]
        if INDEX in contents:
            contents[INDEX] = _with_places(contents[INDEX], f"assets/{self.hash}", contents)
        self._files = {name: _asset(content, Path(name).suffix) for name, content in contents.items()}


def _with_places(index: bytes, place: str, contents: dict[str, bytes]) -> bytes:
    # Only what is imported at once: a page that is imported when it is shown comes with what it alone needs.
    links = "\n".join(f'<link rel="modulepreload" href="{place}/{name}">' for name in _needed(contents))
    return index.replace(_PRELOAD, links.encode()).replace(_PLACE, place.encode())


def _needed(contents: dict[str, bytes]) -> list[str]:
    """The scripts that the first one imports, and those that they import, and so on."""
    found, open = {_FIRST}, [_FIRST]
    while open:
        name = open.pop()
        for match in _IMPORT.finditer(contents.get(name, b"")):
            imported = posixpath.normpath(posixpath.join(posixpath.dirname(name), match[1].decode()))
            if imported not in found and imported in contents:
                found.add(imported)
                open.append(imported)
    return sorted(found - {_FIRST})


def _asset(content: bytes, suffix: str) -> Asset:
    # mtime: the same content is the same answer, whichever process gives it.
    smaller = b"" if suffix == ".woff2" else gzip.compress(content, 9, mtime=0)
    return Asset(content, smaller, TYPES[suffix], f'"{hashlib.sha256(content).hexdigest()[:_HASH]}"')


def _answer(request: AnyRequest, asset: Asset, cache: str) -> Response[bytes]:
    headers = {"etag": asset.etag, "cache-control": cache, "vary": "accept-encoding"}
    known = (each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(","))
    if asset.etag in known:
        return Response(b"", status_code=304, headers=headers)
    content = asset.content
    if asset.compressed and "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["content-encoding"] = asset.compressed, "gzip"
    return Response(content, headers=headers, media_type=asset.media)


# Compressed already: so they are left out of what Litestar compresses.
@get("/", opt={"action": "dashboard.show", "no_compression": True}, include_in_schema=False)
async def dashboard(request: AnyRequest) -> Response[bytes]:
    """The dashboard's only page."""
    return _answer(request, request.app.state.assets.index(), _ASK)


@get(
    "/assets/{hash:str}/{name:path}",
    opt={"action": "dashboard.show", "no_compression": True},
    include_in_schema=False,
)
async def file(request: AnyRequest, hash: FromPath[str], name: FromPath[str]) -> Response[bytes]:
    """A file of the dashboard, of exactly this release."""
    return _answer(request, request.app.state.assets.file(hash, name.removeprefix("/")), _FOREVER)


ROUTES = [dashboard, file]
