"""What a Celery app on Redis has today, on Postroom: shutdowns, beat, events, results, several brokers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.engine import ClaimRequest
from postroom.model import Entry, Settlement, State, Verb
from postroom.room import Room
from tests.celery.workers import LEASE, Opener, Shop, pool
from tests.redis import servers

pytestmark = pytest.mark.timeout(600)

on_redis = pytest.mark.parametrize("broker", ["redis"], indirect=True)
on_sqlite = pytest.mark.parametrize("broker", ["sqlite"], indirect=True)


# ---- pools ----------------------------------------------------------------------------------------


@on_redis
def test_autoscale_takes_as_much_as_it_has_hands(open_shop: Opener, tmp_path: Path) -> None:
    shop = open_shop(worker_prefetch_multiplier=1)
    go = tmp_path / "go"
    shop.worker("--autoscale", "3,1")
    for n in range(5):
        shop.send("until", str(go), str(n))
    shop.until(lambda: len(shop.lines("begin")) == 3, "the pool does not grow, or gets nothing to do")
    go.touch()
    shop.until(lambda: len(shop.lines("end")) == 5)
    assert len(shop.lines("begin")) == 5


def test_children_that_are_replaced_after_each_task(open_shop: Opener, room: Room) -> None:
    """Each new child is forked from a process that is using its store; every second one publishes there."""
    shop = open_shop()
    worker = shop.worker(*pool("prefork"), "--max-tasks-per-child", "1")
    for n in range(3):
        shop.send("flaky", str(n), 1)
    shop.until(lambda: room.engine.stats("shop").counters["acked"] == 6)
    tries = [(line["label"], line["retries"]) for line in shop.lines("try")]
    assert sorted(tries) == [(str(n), retries) for n in range(3) for retries in (0, 1)]
    assert len({line["pid"] for line in shop.lines("try")}) == 6
    assert worker.stop() == 0


@on_redis
def test_a_soft_shutdown_lets_tasks_end_and_hands_back_what_does_not(
    open_shop: Opener, room: Room, tmp_path: Path
) -> None:
    """The worker's main thread sleeps for two leases then, and still nobody else may have its tasks."""
    shop = open_shop(
        worker_soft_shutdown_timeout=2 * LEASE, broker_transport_options={"visibility_timeout": LEASE}
    )
    soon, never = tmp_path / "soon", tmp_path / "never"
    for path in (soon, never):
        shop.send("until", str(path), path.name)
    worker = shop.worker(*pool("prefork"), REMAP_SIGTERM="SIGQUIT")
    shop.until(lambda: len(shop.lines("begin")) == 2)
    shop.worker(*pool("prefork"))
    worker.ask_to_stop()
    soon.touch()
    worker.wait()
    never.touch()
    shop.until(lambda: shop.lines("end", "never"), "what was interrupted does not run again")
    shop.until(lambda: room.engine.stats("shop").counters["acked"] == 2)
    assert "Soft Shutdown" in worker.log()
    assert len(shop.lines("begin", "soon")) == 1
    assert len(shop.lines("begin", "never")) == 2
    assert room.engine.stats("shop").counters["reclaimed"] == 0


@on_redis
def test_a_soft_shutdown_of_threads_lets_tasks_end(open_shop: Opener, room: Room, tmp_path: Path) -> None:
    """What would not end is not tried: Celery cannot interrupt a thread, and does not stop then."""
    shop = open_shop(worker_soft_shutdown_timeout=3)
    go = tmp_path / "go"
    shop.send("until", str(go), "begun")
    shop.send("note", "fetched")
    worker = shop.worker(*pool("threads", 1), REMAP_SIGTERM="SIGQUIT")
    shop.until(lambda: shop.lines("begin") and room.engine.stats("shop").processing == 2)
    worker.ask_to_stop()
    shop.until(lambda: "Soft Shutdown" in worker.log())
    go.touch()
    worker.wait()
    done = 1 + len(shop.lines("note"))  # the thread may take what was fetched while there is time
    stats = room.engine.stats("shop")
    assert (stats.counters["acked"], stats.processing, stats.ready, stats.dead) == (done, 0, 2 - done, 0)
    assert len(shop.lines("end")) == len(shop.lines("begin")) == 1


def _begun(room: Room) -> list[Entry]:
    """What a worker has told the store to have begun: its parent knows of it."""
    return [entry for entry in room.engine.find("shop", State.PROCESSING).entries if entry.started_at]


@on_redis
def test_a_cold_shutdown_hands_back_at_once(open_shop: Opener, room: Room, tmp_path: Path) -> None:
    shop = open_shop(worker_prefetch_multiplier=2)  # with the lease of a minute
    go = tmp_path / "go"
    for n in range(4):
        shop.send("until", str(go), str(n))
    worker = shop.worker(*pool("prefork"))
    # Celery cancels what its parent knows to have begun, and waits for what a child has just begun.
    shop.until(lambda: len(_begun(room)) == 2)
    worker.process.send_signal(signal.SIGQUIT)
    worker.wait()
    stats = room.engine.stats("shop")
    assert (stats.processing, stats.ready, stats.dead) == (0, 4, 0)
    assert shop.lines("end") == []


# ---- commands, beat, events -----------------------------------------------------------------------


@on_redis
def test_beat_and_events(open_shop: Opener, tmp_path: Path) -> None:
    schedule = {"often": {"task": "tests.celery.shop.note", "schedule": 0.5, "args": ["tick"]}}
    shop = open_shop(beat_schedule=schedule)
    shop.worker(*pool("threads"), "-E")
    watcher = shop.background("events", "--dump")
    shop.background("beat", "-s", str(tmp_path / "beat"), "--pidfile", "")
    shop.until(lambda: len(shop.lines("note", "tick")) >= 3)
    words = ("heartbeat", "task received", "task started", "task succeeded")
    shop.until(lambda: all(word in watcher.log() for word in words), "events are missing")


@on_redis
def test_a_rate_limit_is_kept_and_holds_up_nobody_else(open_shop: Opener, room: Room) -> None:
    """Celery takes what it may not begin yet into its memory; it stays leased and is not lost with it."""
    shop = open_shop(
        task_annotations={"tests.celery.shop.note": {"rate_limit": "1/h"}},
        broker_transport_options={"visibility_timeout": LEASE},
    )
    worker = shop.worker(*pool("prefork"))
    for n in range(3):
        shop.send("note", str(n))
    shop.until(lambda: shop.lines("note"))
    shop.send("nap", 0, "beside")
    shop.until(lambda: shop.lines("end", "beside"), "another task waits for the limit")
    shop.until(lambda: room.engine.stats("shop").processing == 2)
    assert len(shop.lines("note")) == 1
    worker.kill()
    shop.worker(*pool("prefork"), SHOP_CONFIG="{}")
    shop.until(lambda: sorted(shop.labels("note")) == ["0", "1", "2"], "they went with their worker")


def asked(port: int, path: str, body: object = None) -> Any:
    """What flower answers; nothing, if it is not ready to."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/{path}", data, timeout=60) as answer:
            return json.loads(answer.read())
    except OSError:
        return {}


def tab(port: int, name: str) -> tuple[int, str]:
    """A page of flower's, as a browser gets it."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@on_redis
def test_flower_sees_our_workers_and_their_tasks(open_shop: Opener) -> None:
    shop = open_shop()
    worker = shop.worker(*pool("threads"), "-E")
    me, note = f"{worker.name}@shop", "tests.celery.shop.note"
    shop.environ["FLOWER_UNAUTHENTICATED_API"] = "true"
    port, claim = servers.claimed_port()
    with claim:
        shop.background("flower", f"--port={port}", "--address=127.0.0.1")
        seen = shop.until(lambda: asked(port, "workers?refresh=1").get(me), "flower sees no worker")
        assert note in seen["registered"]
        assert {queue["name"] for queue in seen["active_queues"]} >= {"shop", "second"}
        id = asked(port, f"task/async-apply/{note}", {"args": ["by flower"]})["task-id"]
        shop.until(lambda: shop.lines("note", "by flower"))
        told = {"state": "SUCCESS", "name": note, "worker": me}
        shop.until(lambda: told.items() <= asked(port, "tasks").get(id, {}).items(), "it hears of no task")
        assert tab(port, "workers")[0] == 200
        status, page = tab(port, "broker")
        assert (status, "broker is not supported" in page) == (404, True), "the how-to says so"


@on_redis
def test_celery_amqp(open_shop: Opener) -> None:
    shop = open_shop()
    shop.send("note", "a")
    assert "queue:shop messages:1" in shop.celery("amqp", "queue.declare", "shop").replace(", ", " ")
    assert '[["a"], {}' in shop.celery("amqp", "basic.get", "shop")
    assert "1 messages deleted" in shop.celery("amqp", "queue.purge", "shop")


@on_sqlite
def test_a_task_that_has_expired_is_revoked_by_the_worker(open_shop: Opener, room: Room) -> None:
    shop = open_shop()
    shop.send("note", "late", expires=0.01)
    shop.send("note", "in time")
    worker = shop.worker(*pool("threads"))
    shop.until(lambda: room.engine.stats("shop").counters["acked"] == 2)
    assert shop.labels("note") == ["in time"]
    assert "Discarding revoked task" in worker.log()


@pytest.mark.parametrize(
    ("broker", "name"), [("sqlite", "threads"), ("redis", "prefork")], indirect=["broker"]
)
def test_results_by_rpc(broker: str, tmp_path: Path, name: str) -> None:
    with Shop(broker, tmp_path, backend="rpc://") as shop:
        shop.worker(*pool(name))
        code = "print(add.delay(1, 2).get(timeout=90), [add.delay(n, n).get(timeout=90) for n in range(3)])"
        assert shop.python(code) == "3 [0, 2, 4]"


CANVAS = """
import json
from celery import chain, chord, group
from celery.result import AsyncResult, GroupResult
def got(result):
    return result.get(timeout=90)
saved = group(add.s(n, n) for n in range(5))()
saved.save()
failed = chord([add.s(1, 1), fail.s("one of two")], total.s())().get(timeout=90, propagate=False)
single = add.delay(1, 2)
print(json.dumps([
    got(single), AsyncResult(single.id).state, got(GroupResult.restore(saved.id)),
    got(chord([add.s(n, n) for n in range(20)], total.s())()),
    got(chain(add.s(1, 1), group(add.s(n) for n in range(3)), total.s(), add.s(10))()),
    got(chord([chord([add.s(1, n) for n in range(3)], total.s()) for _ in range(2)], total.s())()),
    type(failed).__name__, "one of two" in str(failed),
    fail.delay("alone").get(timeout=90, propagate=False).args,
]))
"""


def test_results_in_redis_beside_the_broker(
    broker: str, redis_server: servers.Server, room: Room, tmp_path: Path
) -> None:
    """As most apps have it: their broker's Redis, even the same database, has the results too."""
    with Shop(broker, tmp_path, backend=redis_server.url()) as shop:
        worker = shop.worker(*pool("prefork"))
        assert json.loads(shop.python(CANVAS)) == [
            3, "SUCCESS", [0, 2, 4, 6, 8], 380, 19, 12, "ChordError", True, ["alone"],
        ]  # fmt: skip
        shop.until(lambda: room.engine.stats("shop").processing == 0)
        assert worker.stop() == 0
        keys = {key.decode() for key in redis_server.ask("KEYS", "*")}
        assert {key for key in keys if not key.startswith(("celery-task", "postroom:"))} == set()
        assert any(key.startswith("postroom:") for key in keys) == broker.startswith("postroom+redis")


@on_redis
def test_a_task_that_is_delivered_again_and_has_succeeded_does_not_run_again(
    open_shop: Opener, redis_server: servers.Server, room: Room
) -> None:
    """`worker_deduplicate_successful_tasks` believes what a delivery says of itself."""
    shop = open_shop(worker_deduplicate_successful_tasks=True, backend=redis_server.url(path="/1"))
    for label in ("first", "delivered again"):
        shop.send("note", label, task_id="one id")
    # Both were delivered before when the second one begins, but there is no result yet when the first does.
    taken = room.engine.claim("shop", ClaimRequest(n=2)).deliveries
    room.engine.settle("shop", [Settlement(delivery.receipt, Verb.RELEASE) for delivery in taken])
    shop.worker(*pool("solo"))
    shop.until(lambda: room.engine.stats("shop").counters["acked"] == 2)
    assert shop.labels("note") == ["first"]


@on_redis
@pytest.mark.parametrize(
    ("strategy", "order"),
    [
        ("priority", ["shop", "shop", "shop", "second", "second", "second"]),
        ("sorted", ["second", "second", "second", "shop", "shop", "shop"]),
        ("round_robin", ["shop", "second", "shop", "second", "shop", "second"]),
    ],
)
def test_queues_in_the_order_given(open_shop: Opener, strategy: str, order: list[str]) -> None:
    shop = open_shop(
        broker_transport_options={"queue_order_strategy": strategy}, worker_prefetch_multiplier=1
    )
    for queue in ["shop", "second"] * 3:
        shop.send("note", queue, queue=queue)
    shop.worker(*pool("solo"), "-Q", "shop,second")
    shop.until(lambda: len(shop.lines("note")) == 6)
    assert shop.labels("note") == order


# ---- stores ---------------------------------------------------------------------------------------


def test_two_apps_and_a_fork_in_one_process(redis_server: servers.Server, tmp_path: Path) -> None:
    brokers = [f"postroom+{redis_server.url()}", f"postroom+sqlite:///{tmp_path}/jobs.db"]
    with Shop(brokers[0], tmp_path) as first, Shop(brokers[1], tmp_path) as second:
        first.python(f"""
other = Celery("other", broker={brokers[1]!r}, set_as_current=False)
other.conf.task_default_queue = "shop"
def send(label):
    note.delay(f"{{label}} redis")
    other.send_task("tests.celery.shop.note", [f"{{label}} sqlite"])
send("parent")
if (child := os.fork()) == 0:
    send("child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
send("again")
""")
        for shop, kind in ((first, "redis"), (second, "sqlite")):
            with postroom.open(shop.broker.removeprefix("postroom+")) as room:
                assert room.engine.stats("shop").ready == 3, kind
            shop.worker(*pool("solo"))
        wanted = sorted(
            f"{who} {kind}" for who in ("parent", "child", "again") for kind in ("redis", "sqlite")
        )
        first.until(lambda: sorted(first.labels("note")) == wanted)


IN_MEMORY = """
import json, sys
import postroom.celery
from celery import Celery, group
from celery.contrib.testing import tasks
from celery.contrib.testing.worker import start_worker
app = Celery("here", broker="postroom+memory://", backend="cache+memory://")
@app.task
def add(x, y):
    return x + y
def got(result):
    return result.get(timeout=90)
with start_worker(app, pool=sys.argv[1], concurrency=2, shutdown_timeout=90):
    later = add.apply_async((2, 2), countdown=0.2)
    print(json.dumps([got(add.delay(1, 2)), got(group(add.s(n, n) for n in range(3))()), got(later)]))
"""


@pytest.mark.parametrize("name", ["solo", "threads"])
def test_a_worker_beside_the_tests_of_an_app(name: str) -> None:
    """As Celery's pytest plugin starts one: in a thread, with the broker in memory."""
    ran = subprocess.run(
        [sys.executable, "-c", IN_MEMORY, name], capture_output=True, text=True, timeout=300, check=False
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "[3, [0, 2, 4], 4]"), ran.stderr


def test_a_worker_by_the_name_of_the_transport(redis_server: servers.Server, tmp_path: Path) -> None:
    """For apps that cannot change their URL, or import anything of ours. With options, as on kombu's own."""
    name = "postroom.celery:Transport"
    options = {"global_keyprefix": "mine", "socket_connect_timeout": 30, "health_check_interval": 1}
    options |= {"socket_keepalive": True, "retry_on_timeout": True}
    with Shop(redis_server.url(), tmp_path, broker_transport=name, broker_transport_options=options) as shop:
        worker = shop.worker(*pool("prefork"))
        shop.send("note", "now")
        shop.send("note", "soon", countdown=1)
        shop.until(lambda: len(shop.lines("note")) == 2)
        me = f"{worker.name}@shop"
        assert "pong" in shop.celery("inspect", "ping", "--timeout", "30", "--destination", me)
        keys = {key.decode() for key in redis_server.ask("KEYS", "*")}
        assert {key for key in keys if not key.startswith("mine:")} == set(), "somebody uses kombu's own"


def test_a_worker_turns_to_the_next_broker(tmp_path: Path) -> None:
    with servers.single() as one, servers.single() as other:
        urls = f"postroom+{one.url()};{other.url()}"  # the second without our prefix
        with Shop(urls, tmp_path) as shop:
            shop.worker(*pool("threads"))
            shop.send("note", "one")
            shop.until(lambda: shop.lines("note", "one"))
            one.kill()
            shop.send("note", "other")
            shop.until(lambda: shop.lines("note", "other"), "the worker stays with the broker that is away")
        assert other.ask("KEYS", "postroom:*"), "it did not stay on Postroom"


def test_tls(tmp_path: Path) -> None:
    with servers.single(tls=True) as server, Shop(f"postroom+{server.url()}", tmp_path) as shop:
        shop.worker(*pool("prefork"))
        shop.send("note", "secret")
        shop.until(lambda: shop.lines("note", "secret"))
