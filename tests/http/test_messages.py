"""Messages over HTTP, by a real server on every engine: put, claim, settle, look, operate."""

from __future__ import annotations

from typing import Any

import httpx
import pytest


def put(http: httpx.Client, queue: str = "emails", **message: Any) -> str:
    answer = http.post(f"/queues/{queue}/messages", json=message)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def claim(http: httpx.Client, queue: str = "emails", **wanted: Any) -> list[dict[str, Any]]:
    answer = http.post(f"/queues/{queue}/claim", json=wanted)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["deliveries"])


def test_a_message_goes_its_way(http: httpx.Client) -> None:
    id = put(
        http, body={"to": "ada"}, kind="welcome", priority="high", headers={"a": "b"}, correlation_id="r1"
    )
    shown = http.get(f"/queues/emails/messages/{id}").json()
    assert (shown["state"], shown["body"], shown["priority"]) == ("ready", {"to": "ada"}, 10)
    (delivery,) = claim(http)
    assert delivery["id"] == id
    assert (delivery["body"], delivery["kind"], delivery["headers"]) == ({"to": "ada"}, "welcome", {"a": "b"})
    assert "token" not in http.get(f"/queues/emails/messages/{id}").json()
    assert http.post(f"/deliveries/{delivery['receipt']}/ack").status_code == 204
    again = http.post(f"/deliveries/{delivery['receipt']}/ack")
    assert (again.status_code, again.json()["outcome"]) == (410, "gone")
    assert http.get(f"/queues/emails/messages/{id}").status_code == 404


def test_a_lost_receipt_is_a_conflict(http: httpx.Client) -> None:
    put(http, body=1)
    (first,) = claim(http)
    assert http.post(f"/deliveries/{first['receipt']}/release").status_code == 204
    (second,) = claim(http)
    lost = http.post(f"/deliveries/{first['receipt']}/ack")
    assert (lost.status_code, lost.json()["code"], lost.json()["outcome"]) == (409, "lease_lost", "lost")
    assert http.post(f"/deliveries/{second['receipt']}/ack").status_code == 204


def test_a_dead_letter_is_lost_to_its_receipt_and_not_gone(http: httpx.Client) -> None:
    put(http, body=1)
    (delivery,) = claim(http)
    assert http.post(f"/deliveries/{delivery['receipt']}/bury").status_code == 204
    late = http.post(f"/deliveries/{delivery['receipt']}/ack")
    assert (late.status_code, late.json()["outcome"]) == (409, "lost")


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "application/xml"])
def test_a_body_is_json_whatever_its_content_type_says(http: httpx.Client, media: str) -> None:
    """As curl has it, unless it is told otherwise."""
    answer = http.post("/queues/emails/messages", content='{"body": 1}', headers={"content-type": media})
    assert answer.status_code == 201
    assert claim(http)[0]["body"] == 1


def test_retry_and_bury_keep_the_words_of_failures(http: httpx.Client) -> None:
    id = put(http, body={"n": 1})
    (delivery,) = claim(http)
    failed = {"error": "refused", "type": "SmtpError", "after": 0}
    assert http.post(f"/deliveries/{delivery['receipt']}/retry", json=failed).status_code == 204
    (delivery,) = claim(http, wait=30)
    assert delivery["attempt"] == 1
    assert http.post(f"/deliveries/{delivery['receipt']}/bury", json={"reason": "no"}).status_code == 204
    dead = http.get(f"/queues/emails/messages/{id}").json()
    assert (dead["state"], dead["last_error"], len(dead["attempts"])) == ("dead", "Rejected: no", 2)
    assert dead["failed_at"] > dead["put_at"] and dead["payload_hash"]


def test_extend_moves_the_deadline_and_keeps_a_checkpoint(http: httpx.Client) -> None:
    id = put(http, body=1)
    (delivery,) = claim(http)
    more = {"span": "1h", "checkpoint": {"page": 7}}
    assert http.post(f"/deliveries/{delivery['receipt']}/extend", json=more).status_code == 204
    assert http.get(f"/queues/emails/messages/{id}").json()["deadline"] > delivery["deadline"]
    assert http.post(f"/deliveries/{delivery['receipt']}/release").status_code == 204
    assert claim(http)[0]["checkpoint"] == {"page": 7}


def test_a_batch_is_put_claimed_and_settled_together(http: httpx.Client) -> None:
    answer = http.post("/queues/emails/messages/batch", json={"messages": [{"body": n} for n in range(20)]})
    assert answer.status_code == 201 and len(answer.json()["puts"]) == 20
    deliveries = claim(http, n=20)
    assert [each["body"] for each in deliveries] == list(range(20))
    endings = [{"receipt": each["receipt"]} for each in deliveries]
    assert http.post("/deliveries/settle", json={"settlements": endings}).json()["outcomes"] == ["ok"] * 20
    assert http.post("/deliveries/settle", json={"settlements": endings}).json()["outcomes"] == ["gone"] * 20


def test_the_same_idempotency_key_is_the_same_message(http: httpx.Client) -> None:
    key = {"Idempotency-Key": "order-7"}
    first = http.post("/queues/emails/messages", json={"body": 1}, headers=key).json()
    (delivery,) = claim(http)
    http.post(f"/deliveries/{delivery['receipt']}/ack")
    again = http.post("/queues/emails/messages", json={"body": 1}, headers=key).json()
    assert again == {"id": first["id"], "created": False}
    assert claim(http) == []


def test_an_idempotency_key_is_not_used_for_something_else(http: httpx.Client) -> None:
    """It would be lost, and who put it would think that it is safe."""
    key = {"Idempotency-Key": "order-7"}
    assert http.post("/queues/emails/messages", json={"body": 1}, headers=key).status_code == 201
    other = http.post("/queues/emails/messages", json={"body": 2}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    many = {"messages": [{"body": n} for n in (1, 3)]}
    assert http.post("/queues/many/messages/batch", json=many, headers=key).status_code == 201
    assert http.post("/queues/many/messages/batch", json=many, headers=key).status_code == 201
    many["messages"][1]["body"] = 4
    assert http.post("/queues/many/messages/batch", json=many, headers=key).status_code == 409
    assert [http.get(f"/queues/{queue}/stats").json()["ready"] for queue in ("emails", "many")] == [1, 2]


def test_bytes_come_back_as_they_were(http: httpx.Client) -> None:
    put(http, body_base64="AP8Q", content_type="application/octet-stream")
    assert claim(http)[0]["body_base64"] == "AP8Q"


def test_pages_go_on_where_the_last_one_ended(http: httpx.Client) -> None:
    http.post("/queues/emails/messages/batch", json={"messages": [{"body": n} for n in range(7)]})
    found, cursor = [], None
    for _ in range(4):
        page = http.get(
            "/queues/emails/messages", params={"limit": 3, **({"cursor": cursor} if cursor else {})}
        ).json()
        found += [each["body"] for each in page["messages"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert found == list(range(7))


def test_messages_are_searched_by_kind(http: httpx.Client) -> None:
    first = put(http, body={"secret": "x"}, kind="shop.pay")
    second = put(http, "later", kind="shop.Pay", delay=3_600)
    put(http, body=1, kind="mail.send")
    found = http.get("/messages", params={"kind": "pay"}).json()
    assert [(each["id"], each["queue"], each["state"]) for each in found["messages"]] == [
        (first, "emails", "ready"),
        (second, "later", "scheduled"),
    ]
    assert (found["scanned"], found["complete"], found["cursor"]) == (3, True, None)
    assert "body" not in found["messages"][0]
    page = http.get("/messages", params={"kind": "pay", "limit": 1}).json()
    assert (len(page["messages"]), page["complete"]) == (1, False)
    rest = http.get("/messages", params={"kind": "pay", "cursor": page["cursor"]}).json()
    assert [each["id"] for each in rest["messages"]] == [second]
    only = http.get("/messages", params={"kind": "pay", "queue": "later", "state": "dead"}).json()
    assert only["messages"] == []
    for wrong in ({"kind": " "}, {"kind": "x", "state": "lost"}, {"kind": "x", "cursor": "y"}, {}):
        assert http.get("/messages", params=wrong).status_code == 400, wrong
    assert http.get("/messages", params={"kind": "x", "queue": "emials"}).status_code == 404


def test_what_waits_can_be_moved_in_time_and_taken_out(http: httpx.Client) -> None:
    id = put(http, body=1, delay="1h")
    before = http.get(f"/queues/emails/messages/{id}").json()
    moved = http.post(f"/queues/emails/messages/{id}/reschedule", json={"delay": "2h"}).json()
    assert before["state"] == "scheduled" and moved["due"] > before["due"]
    assert http.post(f"/queues/emails/messages/{id}/run-now").status_code == 204
    assert http.post(f"/queues/emails/messages/{id}/cancel").status_code == 204
    assert http.post(f"/queues/emails/messages/{id}/cancel").status_code == 404
    (delivery_of,) = [put(http, body=2)]
    claim(http)
    assert http.post(f"/queues/emails/messages/{delivery_of}/cancel").status_code == 409


def test_what_is_worked_on_is_cancelled_if_it_is_said_from_whom(http: httpx.Client) -> None:
    put(http, body=1)
    (first,) = claim(http)
    there = f"/queues/emails/messages/{first['id']}"
    assert http.post(f"{there}/release").status_code == 204
    (second,) = claim(http, consumer="web-2")
    changed = http.post(f"{there}/cancel", json={"deliveries": 1})
    assert (changed.status_code, "now web-2 works on it" in changed.json()["detail"]) == (409, True)
    assert http.post(f"{there}/cancel", json={"deliveries": 2}).status_code == 204
    assert http.post(f"/deliveries/{second['receipt']}/ack").status_code == 410
    (entry,) = http.get("/queues/emails/history").json()["entries"]
    assert (entry["event"], entry["ids"]) == ("cancel", [first["id"]])
    put(http, body=2)
    (third,) = claim(http)
    assert (
        http.post(f"/queues/emails/messages/{third['id']}/cancel", json={"processing": True}).status_code
        == 204
    )


def test_a_consumer_has_no_cancel(http: httpx.Client) -> None:
    put(http, body=1)
    (delivery,) = claim(http)
    ending = {"receipt": delivery["receipt"], "verb": "cancel"}
    assert http.post("/deliveries/settle", json={"settlements": [ending]}).status_code == 400


def test_a_name_with_a_slash_stays_one_name(http: httpx.Client) -> None:
    id = put(http, queue="a%2Fb%25", body=1)
    assert http.get("/queues").json()["queues"][0]["queue"] == "a/b%"
    assert http.get(f"/queues/a%2Fb%25/messages/{id}").json()["queue"] == "a/b%"


def test_queues_are_declared_paused_purged_and_dropped(http: httpx.Client) -> None:
    declared = http.put("/queues/emails", json={"capacity": 2, "ack_timeout": "1m"}).json()
    assert (declared["policy"]["capacity"], declared["policy"]["ack_timeout"]) == (2, "1m")
    put(http, body=1)
    assert http.post("/queues/emails/pause", json={"reason": "repair"}).json()["pause_reason"] == "repair"
    assert claim(http) == []
    assert http.post("/queues/emails/resume").json()["paused"] is False
    put(http, body=2)
    full = http.post("/queues/emails/messages", json={"body": 3})
    assert (full.status_code, full.json()["code"], full.headers["retry-after"]) == (429, "queue_full", "1")
    assert http.delete("/queues/emails").status_code == 409
    assert http.post("/queues/emails/purge", params={"dry_run": True}).json() == {"count": 2}
    assert http.post("/queues/emails/purge").json() == {"count": 2}
    events = [entry["event"] for entry in http.get("/queues/emails/history").json()["entries"]]
    assert events == ["pause", "resume", "purge"]
    assert http.delete("/queues/emails").status_code == 200
    assert http.get("/queues/emails").status_code == 404
    assert http.post("/queues/emails/purge").status_code == 404


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"body": 1, "custom_ack_timeout": 60}', "did you mean ack_timeout?"),
        ('{"body": 1, "custom_max_attempts": 60}', "did you mean max_attempts?"),
        ('{"body": 1, "priorty": 3}', "did you mean priority?"),
        ('{"body": 1, "priority": 300}', "300 is not a label or a number"),
        ('{"body": 1, "delay": "soon"}', "is not a duration"),
        ('{"body": ', ""),
        ("[1]", "the body of the request: Expected `object`, got `array`"),
        (
            "",
            "a JSON object is expected, and there are the fields body, body_base64, kind",
        ),
        ('{"body": ' + "[" * 100_000, "nested too deeply"),
        ('{"body": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ],
    ids=lambda text: text[:40],
)
def test_bad_input_is_explained(http: httpx.Client, body: str, says: str) -> None:
    answer = http.post("/queues/emails/messages", content=body)
    assert answer.status_code == 400, answer.text
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["code"] == "invalid_input" and says in problem["detail"]
    assert problem["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("POST", "/dead/-/replay", "the fields where, ids, dry_run"),
        ("POST", "/deliveries/settle", "the fields settlements"),
        ("PUT", "/queues/emails", "a JSON object is expected"),
    ],
)
def test_a_body_that_is_missing_is_missed(http: httpx.Client, method: str, path: str, says: str) -> None:
    answer = http.request(method, path, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("the request has no body: ")
    assert says in answer.json()["detail"] and "data" not in answer.json()["detail"]
