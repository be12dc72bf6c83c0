"""What every route has to say about itself, so that who may do what can hang on it."""

from __future__ import annotations

import re
from typing import Any

import postroom
from postroom.http import app

NAME = re.compile(r"[a-z]+(\.[a-z_]+)?")


def test_every_route_says_what_it_does() -> None:
    with postroom.open("memory://") as room:
        made: Any = app(room, keeper=False)
    ours = {
        route.path: [handler.opt.get("action", "") for handler in route.route_handlers if handler.opt]
        for route in made.routes
    }
    assert len(ours) > 40
    assert [
        path for path, actions in ours.items() if not actions or not all(map(NAME.fullmatch, actions))
    ] == []
