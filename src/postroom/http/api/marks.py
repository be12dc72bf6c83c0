"""Marks on charts: deploys, incidents, and what else happened."""

from __future__ import annotations

import msgspec
from litestar import get, post
from litestar.params import FromQuery, JSONBody

from postroom import marks
from postroom.duration import milliseconds
from postroom.http.looking import texts
from postroom.http.service import AtDesk
from postroom.http.views import Request
from postroom.marks import Cause, Mark


class NewMark(Request):
    """What happened at this moment: a deploy, unless `cause` says otherwise."""

    text: str
    cause: Cause = Cause.DEPLOY


class Marks(msgspec.Struct):
    marks: list[Mark]


@get("/marks", opt={"action": "mark.list"})
async def list_marks(desk: AtDesk, over: FromQuery[str] = "1h") -> Marks:
    """What was marked, and noted about incidents, oldest first."""
    found = await desk.call(marks.read, desk.room.engine, milliseconds(over, "over"))
    return Marks([texts(desk.redaction, each) for each in found])


@post("/marks", opt={"action": "mark.add"})
async def add_mark(desk: AtDesk, data: JSONBody[NewMark]) -> Mark:
    """Mark this moment on every chart."""
    return await desk.call(marks.add, desk.room.engine, data.text, data.cause)


ROUTES = [list_marks, add_mark]
