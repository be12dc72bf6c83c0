"""The archives of services over HTTP: a real server, a real RabbitMQ, and the same on an engine."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import postroom
from postroom.celery import close_offices
from postroom.celery.events import EventsApp, archive, events_app
from postroom.http import tokens
from postroom.http.roles import Role
from tests.celery.workers import REPO
from tests.events.rabbit import Rabbit, running
from tests.events.stage import Stage
from tests.events.test_archive import EVENT, die, service
from tests.http.servers import PATIENCE, Served, serving
from tests.http.test_dead import ended
from tests.http.test_waiting import until

pytestmark = pytest.mark.timeout(300)


@contextmanager
def served(broker: str, name: str, folder: Path, *options: str, **config: Any) -> Iterator[Served]:
    """A server that was given the service of tests.events.service under this name, and a store of its own."""
    path = os.pathsep.join([str(REPO / "src"), str(REPO)])
    told = {
        "SERVICE": name,
        "SERVICE_BROKER": broker,
        "SERVICE_LEDGER": f"{folder}/ledger",
        "PYTHONPATH": path,
    }
    told["SERVICE_CONFIG"] = json.dumps(config)
    url = f"sqlite:///{folder}/notes.db"
    with serving(url, folder, "--service", "tests.events.service", *options, **told) as server:
        yield server


def client(server: Served, token: str = "") -> httpx.Client:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=server.api, timeout=PATIENCE, headers=headers)


@pytest.fixture
def app(rabbit: Rabbit, request: pytest.FixtureRequest) -> Iterator[EventsApp]:
    """The service, declared; its handler is the one that the server's process knows too."""
    name = request.node.name.replace("test_", "")[:50]
    app = service(rabbit, name)
    yield app
    app.publisher.close()


def fail(app: EventsApp, number: int, text: str = "it failed", **told: Any) -> str:
    return die(app, number, text, task="tests.events.service.on_placed", **told)


@pytest.fixture
def http(rabbit: Rabbit, app: EventsApp, tmp_path: Path) -> Iterator[httpx.Client]:
    with served(rabbit.url, app.service, tmp_path) as server, client(server) as http:
        yield http


def archived(http: httpx.Client, name: str) -> int:
    return int(http.get(f"/services/{name}/stats").json()["archived"])


def test_looking_tells_all_and_changes_nothing(app: EventsApp, rabbit: Rabbit, http: httpx.Client) -> None:
    name = app.service
    ids = [fail(app, number, "no" if number % 3 else "password=hunter2") for number in range(30)]
    listed = {"service": name, "broker": "rabbitmq", "archive": True}
    assert http.get("/services").json() == {"services": [listed]}
    standing = http.get(f"/services/{name}/stats").json()
    assert (standing["archived"], standing["filled"] > 0) == (30, True)
    assert standing["delayed"][app.names.rung(1_000)] == 0
    assert standing["ready"][app.handlers.queue_of(EVENT)] == 0
    base = f"/services/{name}/archive"
    found = http.get(base, params={"limit": 20}).json()
    rest = http.get(base, params={"cursor": found["cursor"]}).json()
    letters = found["letters"] + rest["letters"]
    assert sorted(each["args"][0] for each in letters) == list(range(30))
    assert (len(found["letters"]), rest["complete"], rest["unread"]) == (20, True, 0)
    names = "failed_at last_error task_id args kwargs exception retries payload_hash"
    assert set(names.split()) <= set(letters[0])
    one = http.get(f"{base}/letters/{ids[3]}").json()
    assert (one["args"], one["retries"]) == ([3], 3)
    assert "hunter2" not in http.get(base, params={"limit": 1_000}).text
    groups = http.get(f"{base}/groups").json()["groups"]
    assert [each["count"] for each in groups] == [20, 10]
    noted = http.post(f"{base}/groups/{groups[0]['group']}/note", json={"status": "acknowledged"})
    assert (noted.status_code, noted.json()["author"]) == (200, "local")
    assert http.get(f"{base}/groups").json()["groups"][0]["incident"]["status"] == "acknowledged"
    assert len(http.get(f"{base}/incidents").json()["incidents"]) == 1
    lines = http.get(f"{base}/export").text.splitlines()
    assert len(lines) == 30 and sum("hunter2" in line for line in lines) == 10
    acts = [(act["event"], act["by"]) for act in http.get("/audit").json()["acts"]]
    assert ("raw", "local") in acts
    assert archived(http, name) == 30
    until(lambda: rabbit.count(app.names.archive) == 30)  # those that were looked at are given back


def test_a_job_replays_to_this_service_alone(app: EventsApp, rabbit: Rabbit, http: httpx.Client) -> None:
    other = service(rabbit, "watcher")
    base = f"/services/{app.service}/archive"
    for number in range(5):
        fail(app, number, "no" if number else "never")
    chosen = {"where": ["error=no"]}
    dry = http.post(f"{base}/replay", json={**chosen, "dry_run": True}).json()
    assert (dry["eligible"], dry["done"]) == (4, 0)
    job = http.post(f"{base}/replay", json=chosen, headers={"x-postroom-reason": "mended"})
    assert (job.status_code, job.json()["service"]) == (202, app.service)
    done = ended(http, job.json()["id"])
    assert (done["state"], done["done"], done["by"]) == ("done", 4, "local")
    assert rabbit.count(app.handlers.queue_of(EVENT)) == 4
    assert rabbit.count(other.handlers.queue_of(EVENT)) == 0
    # What was seen before the job is forgotten with it.
    assert [each["args"] for each in http.get(base).json()["letters"]] == [[0]]
    gone = http.post(f"{base}/discard", json={"where": []}).json()
    assert ended(http, gone["id"])["done"] == 1
    assert (archived(http, app.service), rabbit.count(app.names.archive)) == (0, 0)
    acts = http.get("/audit").json()["acts"]
    assert [act["event"] for act in acts if act["event"].startswith("archive.")] == [
        "archive.replay",
        "archive.discard",
    ]
    assert acts[0]["info"]["reason"] == "mended"
    other.publisher.close()


def test_one_letter_is_replayed_or_discarded(app: EventsApp, rabbit: Rabbit, http: httpx.Client) -> None:
    base = f"/services/{app.service}/archive"
    first, second, third = (fail(app, number) for number in range(3))
    fourth = die(app, 4, task="gone.handler")
    body = [[7], {}, {}]
    replayed = http.post(f"{base}/letters/{first}/replay", json={"body": body})
    assert replayed.status_code == 200 and replayed.json()["replayed_as"]
    (event,) = rabbit.peek(app.handlers.queue_of(EVENT))
    assert (json.loads(event.body), event.headers["event_id"]) == (body, first)
    assert http.post(f"{base}/letters/{second}/discard").status_code == 204
    assert http.post(f"{base}/letters/{second}/discard").status_code == 404
    refused = http.post(f"{base}/letters/{fourth}/replay")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "gone.handler handles shop.order.placed no more" in refused.json()["detail"]
    left = {each["task_id"] for each in http.get(base).json()["letters"]}
    assert len(left) == 2 and http.get(f"{base}/letters/{third}").status_code == 200
    acts = [act["event"] for act in http.get("/audit").json()["acts"]]
    assert acts == ["replay", "replay", "discard", "discard", "replay", "replay"]


def test_what_cannot_be_is_said(app: EventsApp, http: httpx.Client) -> None:
    base = f"/services/{app.service}/archive"
    unknown = http.get("/services/nobody/archive")
    assert (unknown.status_code, app.service in unknown.json()["detail"]) == (404, True)
    canary = http.post(f"{base}/replay", json={"where": [], "canary": True})
    assert (canary.status_code, "canary" in canary.json()["detail"]) == (400, True)
    assert http.post(f"{base}/replay", json={}).status_code == 400
    assert http.post(f"{base}/replay", json={"where": [], "to": "elsewhere"}).status_code == 400
    assert http.get(base, params={"limit": 1_001}).status_code == 400
    assert http.get(f"{base}/letters/nobody").status_code == 404


def test_rights_and_raw(app: EventsApp, rabbit: Rabbit, tmp_path: Path) -> None:
    id = fail(app, 1, "token=hunter2")
    with postroom.open(f"sqlite:///{tmp_path}/notes.db") as store:
        made = {role: tokens.create(store.engine, role, role).text for role in Role}
    base = f"/services/{app.service}/archive"
    with served(rabbit.url, app.service, tmp_path) as server, ExitStack() as stack:
        viewer, operator, admin = (stack.enter_context(client(server, made[role])) for role in Role)
        with client(server) as stranger:
            assert stranger.get("/services").status_code == 401
        assert "hunter2" not in viewer.get(base).text
        assert viewer.get(base, params={"raw": True}).status_code == 403
        assert "hunter2" in admin.get(base, params={"raw": True}).text
        assert viewer.post(f"{base}/letters/{id}/replay").status_code == 403
        assert operator.post(f"{base}/discard", json={"where": []}).status_code == 403
        assert operator.get(f"{base}/export").status_code == 403
        assert operator.post(f"{base}/letters/{id}/replay").status_code == 200
        (act, *_) = admin.get("/audit").json()["acts"]
        assert (act["event"], act["by"], act["info"]["ids"]) == ("raw", "admin", [act["info"]["ids"][0]])


def test_a_rabbitmq_that_is_away_is_a_problem_of_its_own(tmp_path: Path) -> None:
    """Nothing else waits for it, nothing shows its password, and a job goes on when it is back."""
    with running() as node, ExitStack() as stack:
        app = service(node, "lonely")
        fail(app, 1)
        app.publisher.close()
        app.pool.force_close_all()
        server = stack.enter_context(served(node.url, "lonely", tmp_path))
        http = stack.enter_context(client(server))
        assert archived(http, "lonely") == 1
        node.kill()
        answers: list[httpx.Response] = []
        asking = [
            threading.Thread(target=lambda: answers.append(http.get("/services/lonely/archive")))
            for _ in range(40)  # more than the server has threads
        ]
        for each in asking:
            each.start()
        job = http.post("/services/lonely/archive/replay", json={"where": []}).json()
        assert http.post("/queues/emails/messages", json={"body": 1}).status_code == 201
        assert http.get("/services").json()["services"][0]["service"] == "lonely"
        for each in asking:
            each.join()
        assert {each.status_code for each in answers} == {503}
        assert {each.json()["code"] for each in answers} == {"engine_unavailable"}
        stats = until(lambda: (now := http.get("/services/lonely/stats")).status_code == 503 and now)
        assert "guest" not in stats.text and str(node.port) not in stats.text
        waiting = until(lambda: (now := http.get(f"/jobs/{job['id']}").json())["reason"] and now)
        assert "RabbitMQ" in waiting["reason"]
        node.start()
        job = ended(http, job["id"])
        assert (job["state"], job["done"], job["reason"]) == ("done", 1, ""), job
        assert node.count(app.handlers.queue_of(EVENT)) == 1
        assert server.terminate() == 0


def test_a_job_survives_the_server(app: EventsApp, rabbit: Rabbit, tmp_path: Path) -> None:
    """Killed in the middle, at a pace that leaves it no chance to end before: the next one does the rest."""
    for number in range(30):
        fail(app, number)
    base = f"/services/{app.service}/archive"
    with served(rabbit.url, app.service, tmp_path) as server, client(server) as http:
        job = http.post(f"{base}/replay", json={"where": [], "rate": "10/s"}).json()
        until(lambda: rabbit.count(app.handlers.queue_of(EVENT)) > 3)
        server.kill()
    with served(rabbit.url, app.service, tmp_path) as server, client(server) as http:
        done = ended(http, job["id"])
        assert (done["state"], done["done"]) == ("done", 30)
        assert archived(http, app.service) == 0
    numbers = [json.loads(event.body)[0][0] for event in rabbit.peek(app.handlers.queue_of(EVENT))]
    assert set(numbers) == set(range(30))


def test_a_job_waits_for_another_reader_and_can_be_cancelled(
    app: EventsApp, rabbit: Rabbit, http: httpx.Client, tmp_path: Path
) -> None:
    fail(app, 1)
    base = f"/services/{app.service}/archive"
    with archive.opened(app, f"sqlite:///{tmp_path}/other.db"):
        busy = http.get(base)
        assert (busy.status_code, busy.json()["code"]) == (409, "conflict")
        job = http.post(f"{base}/discard", json={"where": []}).json()
        assert http.post(f"/jobs/{job['id']}/cancel").status_code == 202
        assert ended(http, job["id"])["state"] == "cancelled"
        other = http.post(f"{base}/discard", json={"where": []}).json()
        until(lambda: http.get(f"/jobs/{other['id']}").json()["reason"])
    assert ended(http, other["id"])["done"] == 1
    assert rabbit.count(app.names.archive) == 0


def test_the_same_on_an_engine(tmp_path: Path) -> None:
    """A service on a file of its own: its letters are there, and the server's audit knows of the acts."""
    broker = f"postroom+sqlite:///{tmp_path}/broker.db"
    with Stage(broker, tmp_path, max_retries=0) as stage:
        stage.worker("billing")
        for number in (1, 2, 3):
            stage.publish(EVENT, number, fail_in=stage.name("billing"))
        name = stage.name("billing")
        base = f"/services/{name}/archive"
        with served(broker, name, tmp_path, max_retries=0) as server, client(server) as http:
            assert http.get("/services").json()["services"][0]["broker"] == "engine"
            until(lambda: archived(http, name) == 3)
            letters = http.get(base).json()["letters"]
            first, second, third = sorted(letters, key=lambda each: int(each["args"][0]))
            assert http.get(f"{base}/groups").json()["groups"][0]["count"] == 3
            assert http.post(f"{base}/letters/{first['id']}/replay").status_code == 200
            until(lambda: len(stage.lines("placed", number=1)) == 2)
            assert http.post(f"{base}/letters/{first['id']}/replay").status_code == 409
            job = http.post(f"{base}/replay", json={"ids": [second["id"]]}).json()
            assert ended(http, job["id"])["done"] == 1
            until(lambda: len(stage.lines("placed", number=2)) == 2)
            assert http.post(f"{base}/letters/{third['id']}/discard").status_code == 204
            assert http.get(f"{base}/letters/{third['id']}").status_code == 404
            acts = [act["event"] for act in http.get("/audit").json()["acts"]]
            assert acts == ["archive.replay", "archive.replay", "archive.discard"]
            unknown = http.get("/services/nobody/stats")
            assert unknown.status_code == 404


def test_a_mounted_application_takes_services_too(rabbit: Rabbit) -> None:
    from litestar.testing import TestClient

    from postroom.errors import InvalidInput
    from postroom.http import app as application

    one = events_app("mounted", broker_url=rabbit.url, archive=False)
    with postroom.open("memory://") as room:
        with TestClient(application(room, services=[one])) as http:
            told = {"service": "mounted", "broker": "rabbitmq", "archive": False}
            assert http.get("/api/v1/services").json() == {"services": [told]}
            refused = http.get("/api/v1/services/mounted/archive")
            assert (refused.status_code, "archive=False" in refused.json()["detail"]) == (400, True)
            job = http.post("/api/v1/services/mounted/archive/discard", json={"where": []})
            assert job.status_code == 400
        with pytest.raises(InvalidInput, match="two services"):
            application(room, services=[one, one])
    close_offices()
