"""The room, its breakers, schedules, topics and audit over HTTP, and what every route says about itself."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

import postroom
from postroom import staff
from postroom.breaker import Breaker
from postroom.errors import ConfigError
from postroom.http import app
from postroom.http.server import listen
from postroom.staff import Attendance, this_process
from tests.http.servers import PATIENCE, Served, served_here, serving
from tests.http.test_waiting import until


def test_the_room_says_how_it_stands(http: httpx.Client) -> None:
    http.post("/queues/emails/messages", json={"body": 1})
    stats = http.get("/stats").json()
    assert stats["ok"] and [queue["ready"] for queue in stats["queues"]] == [1]
    assert http.get("/sla", params={"over": "10m"}).status_code == 200
    assert http.get("/config").json()["settings"]["lease"] == {"value": "30s", "origin": "default"}
    assert http.post("/keeper/sweep", json={"queues": ["emails"]}).json()["emails"]["reclaimed"] == 0
    assert http.post("/keeper/sweep", json={"queues": ["nobody"]}).status_code == 404


def test_the_doctor_says_what_it_finds(http: httpx.Client) -> None:
    http.post("/queues/emails/messages", json={"body": 1})
    http.post("/queues/emails/pause", json={"reason": "repair, password=hunter2"})
    found = {each["check"]: each for each in http.get("/doctor").json()}
    assert found["release"]["level"] == "ok"
    assert found["queue emails"]["level"] == "warn"
    assert "hunter2" not in found["queue emails"]["text"]


def test_a_keeper_leads_and_is_told(http: httpx.Client) -> None:
    until(lambda: http.get("/stats").json()["keeper"])
    stats = http.get("/stats").json()
    assert (stats["engine"] in {"memory", "sqlite", "redis"}, stats["sweep_interval"]) == (True, 5_000)
    assert stats["keeper_name"]

    def is_to_come() -> bool:
        stats = http.get("/stats").json()
        return bool(0 < stats["next_sweep"] - stats["now"] <= stats["sweep_interval"])

    until(is_to_come)  # a busy machine may let it be late


def test_a_policy_says_where_its_settings_come_from(http: httpx.Client) -> None:
    http.put("/queues/emails", json={"max_attempts": 7})
    shown = http.get("/queues/emails").json()
    assert (shown["origins"]["max_attempts"], shown["origins"]["lease"]) == ("queue", "default")


def test_a_message_is_found_without_its_queue(http: httpx.Client) -> None:
    for queue in ("emails", "a/b", "bills"):
        put = http.post(f"/queues/{queue.replace('/', '%2F')}/messages", json={"body": queue}).json()
    http.post("/queues/emails/messages", json={"body": 2, "id": put["id"]})
    found = http.get(f"/messages/{put['id']}").json()["messages"]
    assert {each["queue"]: each["body"] for each in found} == {"bills": "bills", "emails": 2}
    assert http.get("/messages/0123456789abcdef0123456789abcdef").json()["messages"] == []


def test_the_audit_knows_who_did_it(http: httpx.Client) -> None:
    http.post("/queues/emails/messages", json={"body": 1})
    http.post("/queues/emails/pause", json={"reason": "repair"})
    acts = http.get("/audit", params={"limit": 1000}).json()["acts"]
    pause = [act for act in acts if act["event"] == "pause"][-1]
    assert (pause["by"], pause["queue"], pause["info"]) == ("local", "emails", {"reason": "repair"})


def test_breakers_are_opened_and_closed(http: httpx.Client) -> None:
    assert http.post("/breakers/nobody/close").status_code == 404
    opened = http.post("/breakers/psp/open", json={"reason": "maintenance"}).json()
    assert (opened["state"], opened["forced"], opened["reason"]) == ("open", True, "maintenance")
    assert http.get("/breakers").json()["psp"]["state"] == "open"
    assert http.post("/breakers/psp/close").json()["state"] == "closed"
    told = http.get("/breakers/history", params={"name": "psp"}).json()
    assert [(each["after"], each["reason"]) for each in told["changes"]] == [
        ("open", "maintenance"),
        ("closed", "closed by hand"),
    ]


def test_a_breaker_tells_what_it_holds_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with (
        serving(url, tmp_path) as served,
        postroom.open(url) as room,
        httpx.Client(base_url=served.api, timeout=PATIENCE) as http,
    ):
        bank = Breaker("bank", room=room)
        bank.open("they called")
        room.queue("pay").put_many([1, 2, 3])
        with postroom.Worker(room, {"pay": print}, breakers={"pay": bank}):
            until(lambda: http.get("/breakers").json()["bank"]["queues"] == ["pay"])
            assert http.get("/breakers").json()["bank"]["held"] == 3
            bank.close()
            until(lambda: http.get("/queues/pay/stats").json()["ready"] == 0)
            assert http.get("/breakers").json()["bank"]["held"] == 0


def test_topics_are_listed_page_by_page(http: httpx.Client) -> None:
    for topic in ("news", "alarms", "prices/eu"):
        assert http.post(f"/topics/{quote(topic, safe='')}", json={"entries": [1]}).status_code == 204
    named: list[str] = []
    page = http.get("/topics", params={"limit": 1}).json()
    while page["cursor"]:
        named += page["topics"]
        page = http.get("/topics", params={"limit": 1, "after": page["cursor"]}).json()
    assert {"alarms", "news", "prices/eu"} <= set(named)
    assert named == sorted(named)
    assert "audit" not in named
    assert http.get("/topics", params={"limit": 0}).status_code == 400


def test_topics_tell_who_is_known_to_read_them() -> None:
    with postroom.open("memory://") as room, served_here(app(room, keeper=False)) as address:
        begin = room.engine.read("news").cursor
        room.engine.publish("news", [b"1"])
        info = msgspec.structs.replace(this_process("web-1"), reads=(("news", begin),))
        Attendance(room.engine, lambda: info).beat()
        said = httpx.get(f"{address}/api/v1/topics", timeout=PATIENCE).json()
        (worker,) = room.workers()
        waited = worker.last_seen - room.engine.read("news", after=begin).entries[0].at
        slowest = "web-1" if waited else ""
        told = {"count": 1, "behind": waited, "slowest": slowest, "missed": 0, "complete": True}
        assert (said["topics"], said["readers"]) == (["news"], {"news": told})


def test_a_topic_is_read_from_a_cursor(http: httpx.Client) -> None:
    begin = http.get("/topics/news").json()["cursor"]
    assert http.post("/topics/news", json={"entries": [{"n": 1}, "x"]}).status_code == 204
    page = http.get("/topics/news", params={"after": begin}).json()
    assert [entry["data"] for entry in page["entries"]] == [{"n": 1}, "x"]
    assert http.get("/topics/news", params={"after": page["cursor"]}).json()["entries"] == []
    assert http.post("/topics/audit", json={"entries": [1]}).status_code == 400


def test_an_entry_of_a_topic_may_be_anything(own_server: Served, tmp_path: Path) -> None:
    with postroom.open(f"sqlite:///{tmp_path}/jobs.db") as room:
        room.engine.publish("news", [b"[" * 100_000, b"\xff"])
    found = httpx.get(f"{own_server.api}/topics/news?after=", timeout=PATIENCE)
    assert (found.status_code, len(found.json()["entries"])) == (200, 2)


def test_schedules_are_paused_and_run_now(tmp_path: Path) -> None:
    text = '[schedule.nightly]\nqueue = "reports"\ncron = "0 3 * * *"\n'
    (tmp_path / "postroom.toml").write_text(text)
    url = f"sqlite:///{tmp_path}/jobs.db"
    with serving(url, tmp_path) as served, httpx.Client(base_url=served.api, timeout=PATIENCE) as http:
        (schedule,) = http.get("/schedules").json()
        assert schedule["name"] == "nightly" and schedule["next_slot"]
        assert http.post("/schedules/nightly/pause", json={"reason": "move"}).json()["paused"] is True
        assert http.post("/schedules/nightly/resume").json()["paused"] is False
        answer = http.post("/schedules/nightly/run-now")
        assert answer.status_code == 201, answer.text
        put = answer.json()
        assert http.get(f"/queues/reports/messages/{put['id']}").json()["state"] == "ready"
        assert http.post("/schedules/nobody/run-now").status_code == 404


def test_machines_are_answered(server: Served, http: httpx.Client) -> None:
    assert httpx.get(f"{server.address}/healthz", timeout=PATIENCE).json()["ok"] is True
    assert httpx.get(f"{server.address}/readyz", timeout=PATIENCE).status_code == 200
    http.post("/queues/emails/messages", json={"body": 1})
    text = httpx.get(f"{server.address}/metrics", timeout=PATIENCE).text
    assert 'postroom_messages{queue="emails",state="ready"} 1.0' in text
    assert "postroom_sse_clients 0.0" in text
    with http.stream("GET", "/events") as events:
        lines = events.iter_lines()
        next(lines)
        assert "postroom_sse_clients 1.0" in httpx.get(f"{server.address}/metrics", timeout=PATIENCE).text


def test_openapi_describes_every_route_without_another_host(http: httpx.Client) -> None:
    answer = http.get("/schema/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    document = answer.json()
    assert document["openapi"].startswith("3.1")
    assert "/api/v1/queues/{queue}/claim" in document["paths"]
    assert "http://" not in answer.text.replace("http://json-schema.org", "")
    operations = [each for path in document["paths"].values() for each in path.values()]
    assert len(operations) > 80
    for operation in operations:
        told = {status for status in operation["responses"] if not status.startswith("2")}
        assert told == {"default"}, operation["operationId"]
        (media,) = operation["responses"]["default"]["content"]
        assert media == "application/problem+json"
    problem = http.get("/queues/nobody").json()
    described = document["components"]["schemas"]["Problem"]
    assert set(described["required"]) == set(problem) <= set(described["properties"])
    named = {each["name"] for each in document["paths"]["/api/v1/events"]["get"]["parameters"]}
    assert named == {"topics", "queue", "Last-Event-ID"}


def test_a_page_draws_the_document_without_another_host(http: httpx.Client) -> None:
    page = http.get("/schema")
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "<style" not in page.text and " on" not in re.findall(r"<body.*", page.text, re.DOTALL)[0]
    linked = re.findall(r'(?:src|href)="(schema/[^"]+)"', page.text)
    assert sorted(linked) == ["schema/openapi.json", "schema/page.css", "schema/page.js"]
    for path in linked:
        answer = http.get(f"/{path}")
        assert answer.status_code == 200
        assert "//cdn" not in answer.text and "https://" not in answer.text
    assert "innerHTML" not in http.get("/schema/page.js").text


def test_the_dashboard_says_its_charset_once(server: Served) -> None:
    answer = httpx.get(f"{server.address}/", timeout=PATIENCE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("name", ["%ff", "caf%e9"])
def test_a_name_that_is_no_text_is_refused(http: httpx.Client, name: str) -> None:
    """Taken for any other that is not, all of them would be one queue."""
    answer = http.post(f"/queues/{name}/messages", json={"body": 1})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert http.get("/queues").json()["queues"] == []


def test_a_request_keeps_a_sane_id_and_gets_one_otherwise(http: httpx.Client) -> None:
    assert http.get("/queues", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert http.get("/queues", headers={"X-Request-Id": 'a"b'}).headers["x-request-id"] != 'a"b'


def test_a_line_of_the_log_says_who_asked_what_and_how_it_ended(own_server: Served, tmp_path: Path) -> None:
    """For people too: what comes and goes is on record nowhere else."""
    message, mine = {"body": 1}, {"x-request-id": "mine-7"}
    httpx.post(f"{own_server.api}/queues/q/messages", json=message, headers=mine, timeout=PATIENCE)
    own_server.terminate()
    (told,) = [line for line in (tmp_path / "serve.log").read_text().splitlines() if "mine-7" in line]
    words = r"POST /api/v1/queues/q/messages 201 in [\d.]+ ms by local from 127\.0\.0\.1, request mine-7"
    assert re.search(words, told), told


def test_no_request_writes_lines_of_the_log_itself(own_server: Served, tmp_path: Path) -> None:
    with httpx.Client(timeout=PATIENCE) as client:
        client.get(f"{own_server.api}/queues/a%0A2026-01-01%20INFO%20forged%1B%5B2J%C2%85/stats")
        client.get(f"{own_server.api}/queues")
    own_server.terminate()
    lines = (tmp_path / "serve.log").read_text().splitlines()
    (told,) = [line for line in lines if "forged" in line]
    assert "GET /api/v1/queues/a%0A2026-01-01 INFO forged%1B[2J%85/stats" in told


def test_a_request_that_is_too_large_is_refused(http: httpx.Client) -> None:
    answer = http.post("/queues/emails/messages", content=b'{"body": "' + b"x" * 27_000_000 + b'"}')
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_a_parameter_that_nobody_knows_is_refused(http: httpx.Client) -> None:
    answer = http.get("/queues/emails/messages", params={"stat": "dead"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert "stat: unknown parameter; did you mean state?" in answer.json()["detail"]
    assert http.post("/queues/emails/purge", params={"dryrun": True}).status_code == 400
    for path in ("/events", "/session", "/tokens", "/stats"):
        assert http.get(path, params={"topic": "news"}).status_code == 400, path


def test_the_probe_of_readiness_asks_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    with postroom.open("memory://") as room:
        monkeypatch.setattr(room.engine, "stats", None)
        assert room.health().ok
    assert not room.health().ok


def test_samples_are_columns_for_a_chart(http: httpx.Client) -> None:
    """The keeper samples every ten seconds; the first may have come before the queue, which is its own."""
    http.post("/queues/charted/messages", json={"body": 1})

    def sampled() -> Any:
        found = http.get("/samples", params={"queue": "charted", "over": "10m"}).json()
        return found if found["at"] else None

    found = until(sampled)
    assert (found["step"], found["standing"]["ready"][-1], found["rates"]["put"][0]) == (10_000, 1, None)
    assert {len(column) for column in found["standing"].values()} == {len(found["at"])}
    assert http.get("/samples").json()["queue"] == ""
    assert http.get("/samples", params={"queue": "nobody"}).status_code == 404


def test_marks_are_made_and_read(http: httpx.Client) -> None:
    made = http.post("/marks", json={"text": "deploy 1.2"})
    assert (made.status_code, made.json()["cause"]) == (201, "deploy")
    assert made.json() in http.get("/marks", params={"over": "10m"}).json()["marks"]
    assert http.post("/marks", json={"text": ""}).status_code == 400


def test_a_table_of_queues_has_its_last_hour_in_one_answer(http: httpx.Client) -> None:
    http.post("/queues/charted/messages", json={"body": 1})
    found = http.get("/samples/queues").json()
    assert found["step"] == 60_000
    assert found["done"]["charted"] in ([], [None]), "a rate takes two samples"


def test_what_waits_is_counted_by_priority_and_by_whether_it_retries(http: httpx.Client) -> None:
    for priority in (5, "high", 255, 5):
        http.post("/queues/mixed/messages", json={"body": 1, "priority": priority})
    (taken,) = http.post("/queues/mixed/claim", json={}).json()["deliveries"]
    http.post(f"/deliveries/{taken['receipt']}/retry", json={"after": "1h"})
    http.post("/queues/a%2Fb/messages", json={"body": 1, "delay": "1h"})
    found = http.get("/backlogs", params={"queue": ["mixed", "a/b", "nobody"]}).json()["backlogs"]
    levels = [{"priority": 10, "count": 1}, {"priority": 5, "count": 2}]
    assert found == [
        {"queue": "mixed", "levels": levels, "levels_whole": True, "retrying": 1, "retrying_whole": True},
        {"queue": "a/b", "levels": [], "levels_whole": True, "retrying": 0, "retrying_whole": True},
        {"queue": "nobody", "levels": [], "levels_whole": True, "retrying": 0, "retrying_whole": True},
    ]
    assert "nobody" not in {each["queue"] for each in http.get("/queues").json()["queues"]}


def test_more_backlogs_than_a_screen_has_rows_are_refused(http: httpx.Client) -> None:
    names = [f"q{number}" for number in range(101)]
    assert http.get("/backlogs", params={"queue": names[:100]}).status_code == 200
    assert http.get("/backlogs", params={"queue": names}).json()["code"] == "invalid_input"
    assert http.get("/backlogs").status_code == 400
    assert http.get("/backlogs", params={"queue": "no{brace"}).status_code == 400


def test_what_is_due_is_counted_by_time(http: httpx.Client) -> None:
    for delay in ("5m", "5m", "30m"):
        http.post("/queues/coming/messages", json={"body": 1, "delay": delay})
    found = http.get("/upcoming", params={"queue": "coming", "over": "10m", "bars": 2}).json()
    assert (sum(found["counts"]), found["overdue"], found["later"], found["whole"]) == (2, 0, 1, True)
    assert found["until"] - found["now"] == 600_000
    every = http.get("/upcoming").json()
    assert (len(every["counts"]), every["later"]) == (48, 0)
    assert sum(every["counts"]) >= 3
    assert http.get("/upcoming", params={"queue": "nobody"}).status_code == 404
    assert http.get("/upcoming", params={"bars": 501}).status_code == 400


def test_a_default_port_that_is_taken_gives_way_to_the_next() -> None:
    with listen("127.0.0.1", None) as first, listen("127.0.0.1", None) as second:
        taken = first.getsockname()[1]
        assert second.getsockname()[1] != taken
        assert first.proto == socket.IPPROTO_TCP, "else asyncio leaves Nagle's delay on: 40 ms an answer"
        with pytest.raises(ConfigError, match="cannot listen"):
            listen("127.0.0.1", taken)


@pytest.mark.parametrize(("port", "where"), [(None, "no.invalid: "), (80, "no.invalid:80: ")])
def test_where_nobody_can_listen_is_told(port: int | None, where: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen at {where}"):
        listen("no.invalid", port)


def test_workers_are_told_wherever_they_run(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with serving(url, tmp_path) as served, postroom.open(url) as room:
        worker = postroom.Worker(room, {"emails": print}, concurrency=3, name="ada")
        worker.start()
        try:
            told = httpx.get(f"{served.api}/workers", timeout=PATIENCE).json()
            (shown,) = until(lambda: httpx.get(f"{served.api}/workers", timeout=PATIENCE).json()["workers"])
        finally:
            worker.stop()
        assert (shown["queues"], shown["concurrency"], shown["lost"]) == (["emails"], 3, False)
        assert told["now"] > 0
        until(lambda: httpx.get(f"{served.api}/workers", timeout=PATIENCE).json()["workers"] == [])


def test_a_worker_is_told_to_be_quiet_to_resume_and_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staff, "BEAT", 50)
    url = f"sqlite:///{tmp_path}/jobs.db"
    with (
        serving(url, tmp_path) as served,
        postroom.open(url) as room,
        httpx.Client(base_url=served.api, timeout=PATIENCE) as http,
    ):
        worker = postroom.Worker(room, {"emails": print}, name="ada/the 1st")
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            (shown,) = until(lambda: http.get("/workers").json()["workers"])
            told = http.post(f"/workers/{quote('ada/the 1st', safe='')}/quiet", json={"reason": "deploy"})
            assert (told.status_code, told.json()["told"]) == (200, "quiet")
            until(lambda: worker.state == "quiet")
            until(lambda: http.get("/workers").json()["workers"][0]["state"] == "quiet")
            http.post(f"/workers/{shown['id']}/resume").raise_for_status()
            until(lambda: worker.state == "working")
            http.post(f"/workers/{shown['id']}/stop").raise_for_status()
            thread.join(PATIENCE)
        finally:
            worker.stop()
        gone = http.post(f"/workers/{shown['id']}/stop")
        assert (gone.status_code, gone.json()["code"]) == (404, "not_found")
        assert "has stopped" in gone.json()["detail"]
