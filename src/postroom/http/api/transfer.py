"""Dead letters as lines of JSON, in streams: as many as there are, a page in memory at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
from litestar import Request, get, post
from litestar.params import FromPath, FromQuery
from litestar.response import Stream

from postroom import audit
from postroom.deadletters import DeadLetters, Filter, Imported
from postroom.errors import BodyTooLarge
from postroom.http.api.dead import Condition, letters_of
from postroom.http.service import AtDesk, Desk
from postroom.limits import MAX_PUT_BYTES

MEDIA = "application/x-ndjson"
#: A whole file, which is never in memory as a whole.
_LARGEST_FILE = 2**32
#: Brought in together: so many lines, or so many bytes, and at least one line.
_LINES, _BYTES = 500, 4 * 2**20
#: The largest body as base64, and what is said beside it.
_LONGEST_LINE = MAX_PUT_BYTES * 4 // 3 + 2**20


class ImportedView(msgspec.Struct):
    """How many lines were read, and how many letters they made; the others were there already."""

    read: int
    created: int


@get("/dead/{name:str}/export", opt={"action": "dead.export"}, media_type=MEDIA)
async def export_letters(desk: AtDesk, name: FromPath[str], where: Condition = None) -> Stream:
    """Letters that match as they are, a line of JSON each, for `import`. What breaks off is not whole.

    They are raw, so that they can come back; the audit says so, with the filter, before the first is sent.
    """
    letters, filter = letters_of(desk, name), Filter.parse(where or [])
    pages = await desk.work(letters.pages, filter)
    await desk.call(audit.note, desk.room.engine, "raw", letters.name or "", export=filter.as_dict())
    return Stream(streamed(desk, pages), media_type=MEDIA)


async def streamed(desk: Desk, pages: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (page := await desk.work(next, pages, None)) is not None:
        if page:
            yield page


@post("/dead/import", opt={"action": "dead.import"}, status_code=200, request_max_body_size=_LARGEST_FILE)
async def import_letters(
    desk: AtDesk,
    request: Request[Any, Any, Any],
    to: FromQuery[str | None] = None,
    dry_run: FromQuery[bool] = False,
) -> ImportedView:
    """Make dead letters of exported lines, in their own queues or in one; those that are here stay.

    A line that is none ends it; those before it may be here by then, and the same file again is safe.
    """
    if dry_run:
        audit.nothing_to_note()
    letters, total = DeadLetters(desk.room), ImportedView(0, 0)
    first = 1
    async for lines in _portions(request):
        done: Imported = await desk.work(letters.bring_in, lines, to=to, dry_run=dry_run, first=first)
        first += len(lines)
        total.read, total.created = total.read + done.read, total.created + done.created
    return total


async def _portions(request: Request[Any, Any, Any]) -> AsyncIterator[list[bytes]]:
    """Whole lines, some at a time."""
    lines, size = list[bytes](), 0
    async for line in _lines(request.stream()):
        lines.append(line)
        size += len(line)
        if len(lines) == _LINES or size >= _BYTES:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Line by line; a long one is put together once."""
    parts, size = list[bytes](), 0
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > _LONGEST_LINE:
            raise BodyTooLarge(f"a line of more than {_LONGEST_LINE:,} bytes is no dead letter of ours")
        if others:
            for line in (b"".join(parts), *others[:-1]):
                yield line
            parts, size = [others[-1]], len(others[-1])
    if size:
        yield b"".join(parts)


ROUTES = [export_letters, import_letters]
