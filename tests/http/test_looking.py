"""No route tells a secret to somebody who only looks; raw is a right, and audited; work gets what was put."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from litestar.testing import TestClient

import postroom
from postroom import audit
from postroom.breaker import Breaker
from postroom.config import load
from postroom.deadletters import DeadLetters, Filter
from postroom.deadletters.letter import plain
from postroom.engine import ClaimRequest
from postroom.http import tokens
from postroom.http.auth import Access
from postroom.http.redaction import HIDDEN, Redaction
from postroom.http.roles import Action, Role
from postroom.http.security import secured
from postroom.jobs import Jobs
from postroom.model import Failure, NewMessage, Settlement, Verb
from postroom.room import Room
from postroom.schedule import Schedules
from tests.http.test_secured import litestar, routes

BASE = "http://testserver.local"
SECRET = "hunter2hunter2"
MINE = "cust-4711"
API = "/api/v1"
#: What was put: a secret under a name, one that only a rule of ours knows, and one inside a header's JSON.
BODY = {"user": "ada", "password": SECRET, "note": f"for {MINE}"}
HEADERS = {"Authorization": f"Bearer {SECRET}", "x-meta": f'{{"h":{{"api_key":"{SECRET}"}}}}', "x-shop": "7"}


@pytest.fixture
def room(tmp_path: Any) -> Iterator[Room]:
    file = tmp_path / "postroom.toml"
    file.write_text(
        'url = "memory://"\n[schedule.nightly]\nqueue = "reports"\nevery = "1h"\n'
        f'body = {{password = "{SECRET}"}}\n'
    )
    with postroom.open(config=load(file)) as room:
        Schedules(room).tick()
        yield room


@pytest.fixture
def client(room: Room) -> Iterator[TestClient[Any]]:
    app: Any = secured(
        room,
        Access(required=True),
        hosts=["testserver.local"],
        keeper=False,
        redaction=Redaction(patterns=[r"cust-\d+"]),
    )
    with TestClient(app, base_url=BASE) as client:
        yield client


def as_(room: Room, role: Role, *allow: Action) -> dict[str, str]:
    made = tokens.create(room.engine, str(role), role, allow=frozenset(allow))
    return {"authorization": f"Bearer {made.text}"}


def seed(room: Room) -> dict[str, str]:
    """Something with a secret behind every route that shows anything; what paths call it."""
    queue = room.queue("emails")
    ready = queue.put(BODY, kind="mail", headers=HEADERS, unique_key=f"token={SECRET}").id
    failure = Failure(type="PspError", text=f"pwd={SECRET} of {MINE}", traceback=f"f(token='{SECRET}')")
    room.queue("broken").put(BODY, kind="mail", headers=HEADERS)
    (leased,) = room.engine.claim("broken", ClaimRequest()).deliveries
    room.engine.settle("broken", [Settlement(leased.receipt, Verb.BURY, failure=failure)])
    dead = leased.message.id
    letters = DeadLetters(room, None)
    group = letters.find(Filter()).letters[0].group
    letters.note(group, f"password={SECRET}", cause=f"token={SECRET}")
    Breaker("psp", room=room).open(f"secret={SECRET}")
    room.engine.publish("news", [b'{"password": "%s"}' % SECRET.encode(), b"token=" + SECRET.encode()])
    job = Jobs(room).make("discard", None, Filter.parse([f"payload.password={SECRET}x"]))
    audit.note(room.engine, "purge", "emails", 1, password=SECRET)
    return {"ready": ready, "dead": dead, "group": group, "job": job.id}


def paths(room: Room, known: dict[str, str]) -> Iterator[str]:
    """Every path that can be looked at, filled with what is there."""
    for method, path, _ in routes(litestar(room)):
        if method != "GET" or path == f"{API}/events":
            continue
        for queue, id in (("emails", known["ready"]), ("broken", known["dead"])):
            given = {"queue": queue, "topic": "news", "name": "-" if "/dead/" in path else "psp"}
            given |= {"group": known["group"], "id": known["job"] if "/jobs/" in path else id}
            filled = path.format_map(defaultdict(lambda: "emails", given))
            yield filled
            if filled.endswith("/messages"):
                yield from (f"{filled}?state={state}" for state in ("scheduled", "processing", "dead"))
            if "/topics/" in path or path.endswith("/audit"):
                yield f"{filled}?after="


def test_no_route_tells_a_secret(room: Room, client: TestClient[Any]) -> None:
    known = seed(room)
    mine = as_(room, Role.VIEWER, Action.AUDIT, Action.CONFIG)
    seen: dict[str, str] = {}
    for path in paths(room, known):
        answer = client.get(path, headers=mine)
        assert answer.status_code < 500, (path, answer.text)
        assert SECRET not in answer.text and MINE not in answer.text, path
        if answer.status_code == 200:
            seen[path] = answer.text
    there = (
        f"/queues/emails/messages/{known['ready']}", f"/queues/broken/messages/{known['dead']}",
        "/queues/broken/messages?state=dead", "/dead/-", f"/dead/-/letters/{known['dead']}", "/dead/-/groups",
        "/dead/-/incidents", "/topics/news?after=", "/breakers", "/schedules", f"/jobs/{known['job']}",
        "/audit?after=",
    )  # fmt: skip
    assert [path for path in there if HIDDEN not in seen[API + path]] == []


def test_what_is_no_secret_is_shown(room: Room, client: TestClient[Any]) -> None:
    known = seed(room)
    mine = as_(room, Role.VIEWER)
    message = client.get(f"{API}/queues/emails/messages/{known['ready']}", headers=mine).json()
    assert message["body"] == {"user": "ada", "password": HIDDEN, "note": f"for {HIDDEN}"}
    assert (message["headers"]["x-shop"], message["kind"]) == ("7", "mail")
    letter = client.get(f"{API}/dead/-/letters/{known['dead']}", headers=mine).json()
    assert letter["args"] == [message["body"]]
    assert letter["exception"] == letter["last_error"] == f"PspError: pwd={HIDDEN} of {HIDDEN}"
    moved = client.post(
        f"{API}/queues/emails/messages/{known['ready']}/reschedule",
        json={"delay": 60},
        headers=as_(room, Role.OPERATOR),
    )
    assert (moved.status_code, moved.json()["body"]) == (200, message["body"])


def test_bytes_are_hidden_as_a_whole(room: Room, client: TestClient[Any]) -> None:
    id = room.queue("emails").put(SECRET.encode()).id
    message = client.get(f"{API}/queues/emails/messages/{id}", headers=as_(room, Role.VIEWER)).json()
    assert (message["body"], "body_base64" in message) == (HIDDEN, False)


@pytest.mark.parametrize("body", [SECRET.encode(), b"\xff" + SECRET.encode()], ids=["text", "no text"])
def test_bytes_of_a_letter_are_hidden_as_a_whole(room: Room, client: TestClient[Any], body: bytes) -> None:
    letter = NewMessage(body=body, content_type="application/octet-stream", failure=Failure(type="Declined"))
    room.engine.put("emails", [letter])
    mine = as_(room, Role.VIEWER)
    (listed,) = client.get(f"{API}/dead/-", headers=mine).json()["letters"]
    one = client.get(f"{API}/dead/-/letters/{letter.id}", headers=mine).json()
    assert listed["args"] == one["args"] == [HIDDEN]
    raw = client.get(f"{API}/dead/-/letters/{letter.id}?raw=true", headers=as_(room, Role.ADMIN)).json()
    assert raw["args"] == [plain(body)]


@pytest.mark.parametrize(
    "path", ["queues/emails/messages/{ready}", "queues/emails/messages", "dead/-", "dead/-/letters/{dead}"]
)
def test_raw_is_a_right_and_audited(room: Room, client: TestClient[Any], path: str) -> None:
    known = seed(room)
    where = f"{API}/{path.format(**known)}?raw=true"
    for role in (Role.VIEWER, Role.OPERATOR):
        refused = client.get(where, headers=as_(room, role))
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "raw" not in [act.event for act in audit.read(room.engine).acts]
    for headers in (as_(room, Role.ADMIN), as_(room, Role.VIEWER, Action.RAW)):
        shown = client.get(where, headers={**headers, "X-Postroom-Reason": "ticket 7"})
        assert SECRET in shown.text and MINE in shown.text
    acts = [act for act in audit.read(room.engine).acts if act.event == "raw"]
    id = known["dead" if path.startswith("dead") else "ready"]
    assert [act.by for act in acts] == ["admin", "viewer"]
    assert {(act.queue, act.count, tuple(act.info["ids"])) for act in acts} == {
        ("broken" if path.startswith("dead") else "emails", 1, (id,))
    }


def test_an_export_is_raw_so_it_takes_the_right_and_is_audited(room: Room, client: TestClient[Any]) -> None:
    seed(room)
    where = f"{API}/dead/broken/export?where=error=PspError"
    for role in (Role.VIEWER, Role.OPERATOR):
        refused = client.get(where, headers=as_(room, role))
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert SECRET not in refused.text
    why = {"X-Postroom-Reason": "ticket 7"}
    assert client.get(f"{API}/dead/nobody/export", headers=as_(room, Role.ADMIN) | why).status_code == 404
    assert "raw" not in [act.event for act in audit.read(room.engine).acts]
    shown = client.get(where, headers=as_(room, Role.VIEWER, Action.RAW) | why)
    assert SECRET in shown.text and MINE in shown.text
    (act,) = [act for act in audit.read(room.engine).acts if act.event == "raw"]
    assert (act.by, act.queue, act.info["reason"]) == ("viewer", "broken", "ticket 7")
    assert act.info["export"] == Filter.parse(["error=PspError"]).as_dict()


def test_who_works_gets_what_was_put(room: Room, client: TestClient[Any]) -> None:
    seed(room)
    worker = as_(room, Role.VIEWER, Action.WORK)
    (delivery,) = client.post(f"{API}/queues/emails/claim", json={}, headers=worker).json()["deliveries"]
    assert (delivery["body"], delivery["headers"]) == (BODY, HEADERS)


def test_who_subscribes_gets_what_was_published(room: Room, client: TestClient[Any]) -> None:
    seed(room)
    where = f"{API}/topics/news?after=&raw=true"
    assert client.get(where, headers=as_(room, Role.VIEWER)).status_code == 403
    page = client.get(where, headers=as_(room, Role.VIEWER, Action.WORK)).json()
    assert [each["data"] for each in page["entries"]] == [{"password": SECRET}, f"token={SECRET}"]


@pytest.mark.parametrize(
    "guess", [f"error=pwd={SECRET[:3]}", f"payload.password={SECRET}", f"error=of {MINE}"]
)
def test_what_is_hidden_is_not_found_by_guessing(room: Room, client: TestClient[Any], guess: str) -> None:
    """Else a viewer would read a secret letter by letter, out of how many were found."""
    seed(room)
    found = client.get(f"{API}/dead/-", params={"where": guess}, headers=as_(room, Role.VIEWER)).json()
    assert (found["letters"], found["complete"]) == ([], True)
    whole = client.get(f"{API}/dead/-", params={"where": guess}, headers=as_(room, Role.ADMIN)).json()
    assert len(whole["letters"]) == 1
    for harmless in ("error=psperror", "payload.user=ada"):
        seen = client.get(f"{API}/dead/-", params={"where": harmless}, headers=as_(room, Role.VIEWER)).json()
        assert len(seen["letters"]) == 1


def test_of_more_queues_than_fit_an_answer_the_others_are_counted(
    room: Room, client: TestClient[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.http.api.room.MAX_BATCH", 2)
    for name in "abc":
        room.queue(name).put(1)
    stats = client.get(f"{API}/stats", headers=as_(room, Role.VIEWER)).json()
    assert ([each["queue"] for each in stats["queues"]], stats["left_out"]) == (["a", "b"], 1)
