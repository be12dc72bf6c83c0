"""`postroom mark`: moments for the charts."""

from __future__ import annotations

from postroom.room import Room
from tests.cli.inside import Inside


def test_what_is_marked_is_listed(inside: Inside, seen: Room) -> None:
    assert inside.run("mark", "add", "deploy 1.2").out == "marked: deploy 1.2\n"
    assert inside.run("mark", "add", "the bank moved", "--cause", "note", "--json").json["cause"] == "note"
    assert [mark["text"] for mark in inside.run("mark", "ls", "--json").json] == [
        "deploy 1.2",
        "the bank moved",
    ]
    lines = inside.run("mark", "ls", "--over", "1h").out.splitlines()
    assert lines[0].split() == ["at", "cause", "what", "by"]
    assert "deploy 1.2" in lines[1]
    assert inside.run("mark", "add", " ", code=2)
