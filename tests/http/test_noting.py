"""Whatever is changed over HTTP stands in the audit: who, what, when and why."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

import postroom
from postroom import audit
from postroom.breaker import Breaker
from postroom.config import load
from postroom.deadletters import DeadLetters
from postroom.engine import ClaimRequest
from postroom.http import tokens
from postroom.http.auth import Access
from postroom.http.roles import RIGHTS, Action, Role
from postroom.http.security import secured
from postroom.model import Failure, Settlement, Verb
from postroom.policy import Policy
from postroom.room import Room
from postroom.schedule import Schedules
from postroom.staff import Attendance, this_process
from tests.http.test_secured import litestar, routes

BASE = "http://testserver.local"
API = "/api/v1"
TRAFFIC = {Action.PUT, Action.WORK, Action.PUBLISH}
WHY = {"X-Postroom-Reason": "f%C3%BCr ticket 7"}


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    file = tmp_path / "postroom.toml"
    file.write_text('url = "memory://"\n[schedule.nightly]\nqueue = "reports"\nevery = "1h"\n')
    with postroom.open(config=load(file, environ={})) as room:
        Schedules(room).tick()
        yield room


@pytest.fixture
def client(room: Room) -> Iterator[TestClient[Any]]:
    app: Any = secured(room, Access(required=True), hosts=["testserver.local"], keeper=False)
    with TestClient(app, base_url=BASE) as client:
        text = tokens.create(room.engine, "ada", Role.ADMIN).text
        client.headers["authorization"] = f"Bearer {text}"
        yield client


def put(room: Room, **options: Any) -> str:
    return room.queue("emails").put({"n": 1}, **options).id


def held(room: Room) -> str:
    put(room, priority=255)
    (leased,) = room.engine.claim("emails", ClaimRequest()).deliveries
    return leased.message.id


def dead(room: Room) -> str:
    put(room, priority=255)
    (leased,) = room.engine.claim("emails", ClaimRequest()).deliveries
    failure = Failure(type="PspError", fingerprint="psp")
    room.engine.settle("emails", [Settlement(leased.receipt, Verb.BURY, failure=failure)])
    return leased.message.id


def opened(room: Room) -> str:
    Breaker("psp", room=room).open()
    return ""


def working(room: Room) -> str:
    Attendance(room.engine, lambda: this_process("psp"), print).beat()
    return room.workers()[0].id


def given(room: Room) -> str:
    return tokens.create(room.engine, "shop", Role.VIEWER).token.id


#: Each act: its route, what makes the id in its path, what is sent, and how the audit calls it.
ACTS: dict[tuple[str, str], tuple[Any, Any, str]] = {
    ("PUT", "/queues/{queue}"): (None, {"lease": "1m"}, "declare"),
    ("DELETE", "/queues/{queue}"): (None, None, "drop"),
    ("POST", "/queues/{queue}/pause"): (None, None, "pause"),
    ("POST", "/queues/{queue}/resume"): (None, None, "resume"),
    ("POST", "/queues/{queue}/purge"): (None, None, "purge"),
    ("POST", "/queues/{queue}/messages/{id}/cancel"): (put, None, "cancel"),
    ("POST", "/queues/{queue}/messages/{id}/reschedule"): (put, {"delay": 60}, "reschedule"),
    ("POST", "/queues/{queue}/messages/{id}/run-now"): (
        lambda room: put(room, delay=60), None, "run_now",
    ),
    ("POST", "/queues/{queue}/messages/{id}/release"): (held, None, "release"),
    ("POST", "/queues/{queue}/messages/{id}/bury"): (held, None, "bury"),
    ("POST", "/queues/{queue}/messages/{id}/extend"): (held, None, "extend"),
    ("POST", "/queues/{queue}/messages/{id}/replay"): (dead, None, "replay"),
    ("POST", "/queues/{queue}/messages/{id}/discard"): (dead, None, "discard"),
    ("POST", "/dead/{name}/groups/{group}/note"): (dead, {"text": "known"}, "note"),
    ("POST", "/dead/{name}/replay"): (dead, {"where": []}, "dead.replay"),
    ("POST", "/dead/{name}/discard"): (dead, {"where": []}, "dead.discard"),
    ("POST", "/breakers/{name}/open"): (None, None, "open_breaker"),
    ("POST", "/breakers/{name}/close"): (opened, None, "close_breaker"),
    ("POST", "/workers/{id}/quiet"): (working, None, "quiet_worker"),
    ("POST", "/workers/{id}/resume"): (working, None, "resume_worker"),
    ("POST", "/workers/{id}/stop"): (working, None, "stop_worker"),
    ("POST", "/schedules/{name}/pause"): (None, None, "pause_schedule"),
    ("POST", "/schedules/{name}/resume"): (None, None, "resume_schedule"),
    ("POST", "/schedules/{name}/run-now"): (None, None, "run_schedule"),
    ("POST", "/tokens"): (None, {"name": "shop"}, "token.create"),
    ("DELETE", "/tokens/{id}"): (given, None, "token.revoke"),
    ("POST", "/marks"): (None, {"text": "release 2"}, "mark"),
    ("POST", "/keeper/sweep"): (None, None, "keeper.sweep"),
    ("POST", "/session"): (None, None, "session.create"),
}  # fmt: skip


#: Acts with a test of their own: below, in test_operating.py, test_dead.py and in events/test_served.py.
ELSEWHERE = {
    ("DELETE", "/session"),
    ("POST", "/dead/import"),
    ("POST", "/jobs/{id}/cancel"),
    ("POST", "/jobs/{id}/pause"),
    ("POST", "/jobs/{id}/resume"),
    ("POST", "/services/{service}/archive/groups/{group}/note"),
    ("POST", "/services/{service}/archive/replay"),
    ("POST", "/services/{service}/archive/discard"),
    ("POST", "/services/{service}/archive/letters/{id}/replay"),
    ("POST", "/services/{service}/archive/letters/{id}/discard"),
}


def acts_of(room: Room) -> list[audit.Act]:
    return audit.read(room.engine, limit=1_000).acts


def path_of(template: str, id: str) -> str:
    names = {"/dead/": "-", "/schedules/": "nightly"}
    name = next((name for part, name in names.items() if part in template), "psp")
    return API + template.format(queue="emails", id=id, name=name, group="psp")


def queue_of(template: str) -> str:
    """The queue that an act is about; a schedule's is the one that it puts into."""
    if "/schedules/" in template:
        return "reports"
    return "emails" if "{queue}" in template else ""


@pytest.mark.parametrize(("method", "template"), list(ACTS))
def test_an_act_is_noted_with_who_what_and_why(
    room: Room, client: TestClient[Any], method: str, template: str
) -> None:
    make, body, event = ACTS[method, template]
    room.queue("emails", Policy())
    id = make(room) if make else ""
    before = len(acts_of(room))
    answer = client.request(method, path_of(template, id), json=body, headers=WHY)
    assert answer.status_code < 300, answer.text
    new = [act for act in acts_of(room)[before:] if act.event == event]
    assert [(act.by, act.info["reason"]) for act in new] == [("ada", "für ticket 7")]
    assert new[0].at and new[0].queue == queue_of(template)
    assert id in str(new[0].info) or "{id}" not in template


def test_a_queue_that_is_dropped_with_what_is_in_it_is_noted_once(
    room: Room, client: TestClient[Any]
) -> None:
    """The engine tells of it, in the same step; nobody else has to."""
    put(room)
    before = len(acts_of(room))
    assert client.delete(f"{API}/queues/emails?force=true", headers=WHY).json() == {"count": 1}
    (act,) = acts_of(room)[before:]
    assert (act.event, act.queue, act.count, act.by) == ("drop", "emails", 1, "ada")
    assert act.info == {"reason": "für ticket 7"}


def test_every_act_there_is_has_such_a_test(room: Room) -> None:
    there = {
        (method, path.removeprefix(API))
        for method, path, action in routes(litestar(room))
        if method not in ("GET", "HEAD") and RIGHTS[action] not in TRAFFIC
    }
    assert there - set(ACTS) == ELSEWHERE
    assert set(ACTS) - there == set()


def test_what_was_refused_or_only_tried_is_no_act(room: Room, client: TestClient[Any]) -> None:
    put(room)
    dead(room)
    letters = b"".join(DeadLetters(room).pages())
    before = len(acts_of(room))
    tried = client.post(f"{API}/dead/import?dry_run=true", content=letters)
    assert (tried.status_code, tried.json()["read"]) == (200, 1)
    assert client.post(f"{API}/queues/emails/messages/nobody/cancel").status_code in (400, 404)
    assert client.post(f"{API}/queues/emails/purge?dry_run=true").json() == {"count": 1}
    assert client.post(f"{API}/dead/-/discard", json={"where": [], "dry_run": True}).status_code == 202
    assert client.post(f"{API}/dead/-/replay", json={"where": [], "dry_run": True}).status_code == 202
    assert len(acts_of(room)) == before


def test_letters_that_are_brought_in_are_noted_once(room: Room, client: TestClient[Any]) -> None:
    dead(room)
    letters = b"".join(DeadLetters(room).pages())
    before = len(acts_of(room))
    brought = client.post(f"{API}/dead/import?to=elsewhere", content=letters, headers=WHY)
    assert brought.json() == {"read": 1, "created": 1}
    (act,) = acts_of(room)[before:]
    assert (act.event, act.queue, act.count, act.by) == ("import", "elsewhere", 1, "ada")
    assert act.info["reason"] == "für ticket 7"


def test_a_breaker_tells_the_reason_of_the_request_too(room: Room, client: TestClient[Any]) -> None:
    where = f"{API}/breakers/psp/open"
    assert client.post(where, headers=WHY).json()["reason"] == "für ticket 7"
    assert client.post(where, json={"reason": "repair"}, headers=WHY).json()["reason"] == "repair"
    assert client.post(where).json()["reason"] == "opened by hand"


def test_logging_out_is_noted_if_there_was_a_session(room: Room, client: TestClient[Any]) -> None:
    for _ in range(3):
        assert client.delete(f"{API}/session").status_code == 200
    assert acts_of(room) == []
    client.post(f"{API}/session")
    assert client.delete(f"{API}/session", headers=WHY).status_code == 200
    assert [(act.event, act.by) for act in acts_of(room)] == [
        ("session.create", "ada"), ("session.delete", "ada"),
    ]  # fmt: skip
    assert acts_of(room)[-1].info["reason"] == "für ticket 7"


def test_who_only_looks_cannot_wash_the_audit_away(room: Room, client: TestClient[Any]) -> None:
    """The audit keeps 10,000 acts, and logging in is one that everybody with a token can do."""
    text = tokens.create(room.engine, "bob", Role.VIEWER).text
    client.headers["authorization"] = f"Bearer {text}"
    answers = [client.post(f"{API}/session") for _ in range(70)]
    assert [each.status_code for each in answers] == [200] * 60 + [429] * 10
    assert answers[-1].json()["code"] == "rate_limited" and int(answers[-1].headers["retry-after"]) <= 60
    for _ in range(70):
        client.delete(f"{API}/session")  # of which one ends something: the last that was made
    assert len(acts_of(room)) == 61


def test_strangers_do_not_fill_the_audit(room: Room, client: TestClient[Any]) -> None:
    del client.headers["authorization"]
    assert client.delete(f"{API}/session").status_code == 200
    assert acts_of(room) == []


def test_traffic_is_in_the_access_log_and_not_in_the_audit(
    room: Room, client: TestClient[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "postroom.http.access")
    client.post(f"{API}/queues/emails/messages", json={"body": 1})
    (delivery,) = client.post(f"{API}/queues/emails/claim").json()["deliveries"]
    client.post(f"{API}/deliveries/{delivery['receipt']}/ack")
    client.post(f"{API}/topics/news", json={"entries": [1]})
    assert acts_of(room) == []
    lines = [record for record in caplog.records if record.name == "postroom.http.access"]
    assert [record.__dict__["by"] for record in lines] == ["ada"] * 4


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"sec-fetch-site": "cross-site"}])
def test_a_refusal_is_a_whole_problem_with_an_id_and_a_line_in_the_log(
    client: TestClient[Any], headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "postroom.http.access")
    del client.headers["authorization"]
    answer = client.post(f"{API}/queues/emails/purge", headers={"x-request-id": "mine-7", **headers})
    problem = answer.json()
    assert problem["type"] == f"urn:postroom:error:{problem['code']}"
    assert (problem["title"], problem["request_id"]) == (problem["code"].replace("_", " "), "mine-7")
    assert answer.headers["x-request-id"] == "mine-7"
    (line,) = [record for record in caplog.records if record.name == "postroom.http.access"]
    assert (line.__dict__["status"], line.__dict__["request_id"]) == (answer.status_code, "mine-7")


BROWSER = {"sec-fetch-site": "same-origin"}


@pytest.mark.parametrize("headers", [BROWSER, WHY], ids=["a browser", "who says why"])
def test_what_is_put_or_published_by_hand_is_noted(
    room: Room, client: TestClient[Any], headers: dict[str, str]
) -> None:
    one = client.post(f"{API}/queues/emails/messages", json={"body": 1}, headers=headers).json()["id"]
    many = {"messages": [{"body": n} for n in range(60)]}
    puts = client.post(f"{API}/queues/emails/messages/batch", json=many, headers=headers).json()["puts"]
    client.post(f"{API}/topics/news", json={"entries": [1, 2]}, headers=headers)
    acts = acts_of(room)
    assert [(act.event, act.queue, act.count, act.by) for act in acts] == [
        ("put", "emails", 1, "ada"), ("put", "emails", 60, "ada"), ("publish", "", 2, "ada"),
    ]  # fmt: skip
    assert acts[0].info["ids"] == [one]
    assert acts[1].info["ids"] == [put["id"] for put in puts[:50]]
    assert acts[2].info["topic"] == "news"
    assert {act.info.get("reason") for act in acts} == ({None} if headers is BROWSER else {"für ticket 7"})


def test_a_session_is_a_hand_too(room: Room, client: TestClient[Any]) -> None:
    client.post(f"{API}/session")
    del client.headers["authorization"]
    assert client.post(f"{API}/queues/emails/messages", json={"body": 1}).status_code == 201
    assert [act.event for act in acts_of(room)] == ["session.create", "put"]


def test_traffic_by_hand_does_not_wash_the_audit_away(room: Room, client: TestClient[Any]) -> None:
    """The audit keeps 10,000 acts: who may only put must not be able to push all others out."""
    for n in range(70):
        assert client.post(f"{API}/queues/emails/messages", json={"body": n}, headers=WHY).status_code == 201
    assert len(acts_of(room)) == 60


def test_a_reason_of_the_request_itself_is_kept(room: Room, client: TestClient[Any]) -> None:
    room.queue("emails", Policy())
    client.post(f"{API}/queues/emails/pause", json={"reason": "repair"}, headers=WHY)
    assert acts_of(room)[-1].info["reason"] == "repair"
    client.post(f"{API}/queues/emails/resume", headers={"X-Postroom-Reason": "x" * 10_000})
    assert acts_of(room)[-1].info["reason"] == "x" * 500
