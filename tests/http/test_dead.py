"""Dead letters over HTTP: groups, notes, and bulk work as jobs that outlive the server."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import postroom
from postroom import audit
from postroom.config import load
from postroom.http import app
from postroom.http.api import dead
from postroom.model import Failure, NewMessage
from tests.http.servers import PATIENCE, served_here, serving
from tests.http.test_waiting import until


def bury(http: httpx.Client, count: int, queue: str = "pay") -> None:
    messages = [{"body": {"n": n}, "kind": "charge"} for n in range(count)]
    assert http.post(f"/queues/{queue}/messages/batch", json={"messages": messages}).status_code == 201
    claimed = http.post(f"/queues/{queue}/claim", json={"n": count}).json()["deliveries"]
    endings = [
        {"receipt": each["receipt"], "verb": "bury", "type": "PspError", "error": "declined"}
        for each in claimed
    ]
    answer = http.post("/deliveries/settle", json={"settlements": endings})
    assert answer.json()["outcomes"] == ["ok"] * count


def ended(http: httpx.Client, id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        job: dict[str, Any] = http.get(f"/jobs/{id}").json()
        return job if job["ended_at"] else None

    found: dict[str, Any] = until(look)
    return found


def test_letters_are_found_grouped_and_noted(http: httpx.Client) -> None:
    bury(http, 3)
    found = http.get("/dead/pay", params={"where": "error=declined"}).json()
    assert (len(found["letters"]), found["complete"]) == (3, True)
    assert (found["scanned"], found["stopped_by"]) == (3, None)
    some = http.get("/dead/pay", params={"limit": 2}).json()
    assert (len(some["letters"]), some["complete"], some["stopped_by"]) == (2, False, "limit")
    letter = found["letters"][0]
    names = "failed_at last_error task_id args kwargs exception retries payload_hash"
    assert set(names.split()) <= set(letter)
    payload = {"value": {"n": 0}, "is_call": False, "fixed": ""}
    assert http.get(f"/dead/-/letters/{letter['id']}").json() == {**letter, "payload": payload}
    (group,) = http.get("/dead/dead/groups").json()["groups"]
    assert (group["count"], group["exception"]) == (3, "PspError: declined")
    known = {"status": "acknowledged", "cause": "the bank"}
    noted = http.post(f"/dead/pay/groups/{group['group']}/note", json=known)
    assert (noted.json()["status"], noted.json()["author"]) == ("acknowledged", "local")
    assert http.get("/dead/nobody").status_code == 404
    assert http.get("/dead/pay", params={"where": "eror=x"}).status_code == 400


def test_a_replay_with_another_body_is_asked_for_first(tmp_path: Path) -> None:
    (tmp_path / "pay.json").write_text('{"properties": {"n": {"type": "integer"}}}')
    (tmp_path / "postroom.toml").write_text('[kinds.pay]\nschema = "pay.json"')
    config = load(tmp_path / "postroom.toml")
    with ExitStack() as stack:
        room = stack.enter_context(postroom.open("memory://", config=config))
        address = stack.enter_context(served_here(app(room, keeper=False)))
        letter = NewMessage(body=b"{}", kind="pay", failure=Failure(type="Declined"))
        room.engine.put("pay", [letter])
        there = f"{address}/api/v1/queues/pay/messages/{letter.id}/replay"
        for dry_run in (True, False):
            said = httpx.post(there, json={"body": {"n": "x"}, "dry_run": dry_run}, timeout=PATIENCE)
            assert (said.status_code, 'n: "x" is not of type' in said.json()["detail"]) == (400, True)
        asked = httpx.post(there, json={"body": {"n": 1}, "dry_run": True}, timeout=PATIENCE)
        assert (asked.json(), room.queue("pay").stats().ready) == ({"replayed_as": ""}, 0)
        assert audit.read(room.engine).acts == []
        assert httpx.post(there, json={"body": {"n": 1}}, timeout=PATIENCE).json()["replayed_as"]


def test_a_search_that_stops_at_its_bound_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead, "_ROWS", 200)
    with postroom.open("memory://") as room, served_here(app(room, keeper=False)) as address:
        room.engine.put("pay", [NewMessage(body=b"1", failure=Failure(type="Declined")) for _ in range(300)])
        where = {"where": "error=nothing"}
        found = httpx.get(f"{address}/api/v1/dead/pay", params=where, timeout=PATIENCE).json()
        said = found["letters"], found["scanned"], found["complete"], found["stopped_by"]
        assert said == ([], 200, False, "rows")


def test_all_that_match_are_replayed_by_a_job(http: httpx.Client) -> None:
    bury(http, 5)
    dry = http.post("/dead/pay/replay", json={"where": [], "dry_run": True}).json()
    assert (dry["eligible"], dry["done"]) == (5, 0)
    job = http.post("/dead/pay/replay", json={"where": []}).json()
    job = ended(http, job["id"])
    assert (job["state"], job["done"], job["result"]["done"], job["by"]) == ("done", 5, 5, "local")
    assert http.get("/queues/pay/stats").json()["ready"] == 5
    assert job["id"] in [each["id"] for each in http.get("/jobs", params={"limit": 1000}).json()["jobs"]]
    assert http.post(f"/jobs/{job['id']}/cancel").status_code == 409
    discarded = http.post("/dead/pay/discard", json={"where": ["replayed=yes"]}).json()
    assert ended(http, discarded["id"])["done"] == 5
    assert http.get("/queues/pay/stats").json()["dead"] == 0


def test_a_discard_that_waits_is_undone_by_cancelling_it(http: httpx.Client) -> None:
    bury(http, 2)
    job = http.post("/dead/pay/discard", json={"where": [], "after": "1h"}).json()
    assert (job["state"], job["begins"] - job["until"]) == ("waiting", 3_600_000)
    assert http.post(f"/jobs/{job['id']}/cancel").status_code == 202
    assert (ended(http, job["id"])["state"], ended(http, job["id"])["done"]) == ("cancelled", 0)
    assert http.get("/queues/pay/stats").json()["dead"] == 2
    assert http.post("/dead/pay/discard", json={"where": [], "after": "9d"}).status_code == 400


def test_to_choose_nothing_is_refused(http: httpx.Client) -> None:
    bury(http, 1)
    assert http.post("/dead/pay/discard", json={}).status_code == 400
    assert http.get("/queues/pay/stats").json()["dead"] == 1


def test_one_is_replayed_with_another_body(http: httpx.Client) -> None:
    bury(http, 1)
    id = http.get("/dead/pay").json()["letters"][0]["id"]
    first = http.post(f"/queues/pay/messages/{id}/replay", json={"body": {"n": 9}, "number": 1}).json()
    assert http.post(f"/queues/pay/messages/{id}/replay", json={"number": 1}).json() == first
    assert http.get(f"/queues/pay/messages/{first['replayed_as']}").json()["body"] == {"n": 9}


def test_a_slow_job_is_cancelled(http: httpx.Client) -> None:
    bury(http, 50)
    job = http.post("/dead/pay/replay", json={"where": [], "rate": "1/m"}).json()
    until(lambda: http.get("/queues/pay/stats").json()["ready"] >= 1)
    assert http.post(f"/jobs/{job['id']}/cancel").status_code == 202
    job = ended(http, job["id"])
    assert (job["state"], job["reason"]) == ("cancelled", "cancelled")
    assert http.get("/queues/pay/stats").json()["ready"] < 50


def test_a_slow_job_is_paused_and_goes_on(http: httpx.Client) -> None:
    bury(http, 20)
    why = {"X-Postroom-Reason": "mended"}
    job = http.post("/dead/pay/replay", json={"where": [], "rate": "1/m"}, headers=why).json()
    until(lambda: http.get("/queues/pay/stats").json()["ready"] >= 1)
    assert http.post(f"/jobs/{job['id']}/pause").json()["pause"] is True
    until(lambda: http.get(f"/jobs/{job['id']}").json()["state"] == "paused")
    assert http.post(f"/jobs/{job['id']}/resume").json()["pause"] is False
    until(lambda: http.get(f"/jobs/{job['id']}").json()["state"] == "running")
    assert http.post(f"/jobs/{job['id']}/cancel").status_code == 202
    assert ended(http, job["id"])["why"] == "mended"
    for word in ("pause", "resume"):
        assert http.post(f"/jobs/{job['id']}/{word}").status_code == 409


def test_a_job_goes_on_after_kill_9(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with serving(url, tmp_path) as served, httpx.Client(base_url=served.api, timeout=PATIENCE) as http:
        bury(http, 100)
        job = http.post("/dead/pay/replay", json={"where": [], "rate": "20/s"}).json()
        until(lambda: http.get("/queues/pay/stats").json()["ready"] >= 5)
        served.kill()
    with serving(url, tmp_path) as served, httpx.Client(base_url=served.api, timeout=PATIENCE) as http:
        job = ended(http, job["id"])
        assert (job["state"], job["done"]) == ("done", 100)
        stats = http.get("/queues/pay/stats").json()
        assert (stats["ready"], stats["counters"]["replayed"]) == (100, 100)


def test_letters_go_out_and_come_in_as_lines(http: httpx.Client) -> None:
    bury(http, 450)  # three pages
    with http.stream("GET", "/dead/pay/export", params={"where": "error=declined"}) as answer:
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        exported = list(answer.iter_lines())
    assert len(exported) == 450 and "PspError" in exported[0]
    text = "\n".join(exported)
    assert http.post("/dead/import", content=text).json() == {"read": 450, "created": 0}
    assert http.delete("/queues/pay", params={"force": True}).status_code == 200
    dry = http.post("/dead/import", params={"dry_run": True}, content=text)
    assert dry.json() == {"read": 450, "created": 0}
    brought = http.post("/dead/import", params={"to": "elsewhere"}, content=text.encode() + b"\n")
    assert brought.json() == {"read": 450, "created": 450}
    assert http.get("/queues/elsewhere/stats").json()["dead"] == 450
    assert http.get("/dead/nobody/export").status_code == 404
    refused = http.post("/dead/import", content=f"{exported[0]}\n" * 600 + "nonsense")
    assert (refused.status_code, "line 601" in refused.json()["detail"]) == (400, True)


def test_an_export_that_nobody_reads_to_the_end_holds_nobody_up(http: httpx.Client) -> None:
    bury(http, 450)
    for _ in range(40):  # more than there are threads
        with http.stream("GET", "/dead/pay/export") as answer:
            next(answer.iter_lines())
    assert http.get("/queues/pay/stats").json()["dead"] == 450
