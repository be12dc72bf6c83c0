"""What Prometheus is told: every number from the engine, whichever process is asked."""

from __future__ import annotations

import gc
import json
import multiprocessing
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import postroom
from postroom import Bury, Delivery, Policy, Worker, telemetry
from postroom.breaker import Breaker
from postroom.delivery import working_on
from postroom.engine import Engine
from postroom.engines.memory import MemoryEngine
from postroom.errors import ConfigError, EngineUnavailable, PostroomError
from postroom.keeper import Keeper
from postroom.room import Room
from postroom.staff import KEPT, LOST
from postroom.stats import Memory
from postroom.telemetry import Observed
from postroom.telemetry.exporter import MetricsServer, collector
from tests.door.staging import Hire, Wire, eventually, room_on
from tests.spool.stage import Remote, opened

REPO = Path(__file__).parents[2]
PAGE = REPO / "docs" / "reference" / "metrics.md"

LABELS = ("queue", "name", "schedule", "state", "outcome", "le")
Scraped = dict[tuple[str, ...], float]


@pytest.fixture
def room() -> Iterator[Room]:
    with room_on(Observed(MemoryEngine())) as room:
        yield room


def scrape(room: Room) -> Scraped:
    """(name, label values …) → value, through the text that Prometheus reads."""
    with MetricsServer(room, 0) as server:
        return fetch(server.port)


def fetch(port: int) -> Scraped:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *(sample.labels[label] for label in LABELS if label in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_workers_are_counted(room: Room, hire: Hire) -> None:
    hire(room, {"a": print}, keeper=False)
    hire(room, {"b": print}, keeper=False)
    room.engine.records.put("worker", "c 1", b'{"name": "c"}', ttl=KEPT - LOST - 1)
    eventually(lambda: len(room.workers()) == 3)
    found = scrape(room)
    assert (found["postroom_workers", "live"], found["postroom_workers", "lost"]) == (2, 1)


# ---- The six insights of the specification ---------------------------------------------------------


def fail_sometimes(delivery: Delivery) -> None:
    if delivery.body == "bad":
        raise Bury("bad")


def test_the_six_insights_are_there(room: Room) -> None:
    queue = room.queue("jobs", policy=Policy(sla_p95="2s"))
    queue.put("good")
    queue.put("bad")
    Worker(room, {"jobs": fail_sometimes}).run(drain=True)
    queue.put("later", delay=60)
    queue.put("now")
    room.engine.records.put("breaker", "amazon", json.dumps({"state": "open"}).encode())
    found = scrape(room)
    # queue_depth
    assert found["postroom_messages", "jobs", "ready"] == 1
    assert found["postroom_messages", "jobs", "scheduled"] == 1
    # dequeue_latency_histogram, job_processing_duration
    assert found["postroom_wait_seconds_count", "jobs"] == 2
    assert found["postroom_process_seconds_count", "jobs"] == 2
    assert found["postroom_process_seconds_bucket", "jobs", "+Inf"] == 2
    # job_failures_total
    assert found["postroom_messages_settled_total", "jobs", "dead"] == 1
    assert found["postroom_messages_settled_total", "jobs", "acked"] == 1
    # breaker_state_gauge
    states = {state: found["postroom_breaker_state", "amazon", state] for state in ("closed", "open")}
    assert states == {"closed": 0, "open": 1}
    # redis_health
    assert found["postroom_engine_up",] == 1


def test_the_sla_is_told_beside_its_target(room: Room) -> None:
    room.queue("jobs", policy=Policy(sla_p95="10m")).put(1)
    Worker(room, {"jobs": fail_sometimes}).run(drain=True)
    found = scrape(room)
    assert found["postroom_sla_target_seconds", "jobs"] == 600
    assert 0 <= found["postroom_sla_p95_seconds", "jobs"] < 600


def test_a_timer_of_the_users_own_is_told(room: Room) -> None:
    @telemetry.timer("webhook.latency")
    def send() -> None:
        pass

    room.queue("jobs").put(1)
    Worker(room, {"jobs": lambda delivery: send()}).run(drain=True)
    send()  # outside a handler, and without a room: not measured
    with telemetry.timer("import", room), pytest.raises(ValueError, match="x"), telemetry.timer("bad", room):
        raise ValueError("x")
    found = scrape(room)
    assert found["postroom_timer_seconds_count", "webhook.latency"] == 1
    assert found["postroom_timer_seconds_count", "import"] == 1
    assert found["postroom_timer_seconds_count", "bad"] == 1, "what fails takes time too"


class Task:
    """The work in hand of a door whose handlers get no Delivery, as Celery's."""

    def __init__(self, engine: Engine | PostroomError) -> None:
        self._engine = engine

    @property
    def engine(self) -> Engine:
        if isinstance(self._engine, PostroomError):
            raise self._engine
        return self._engine


def test_a_timer_in_a_task_of_another_door_is_told(room: Room) -> None:
    with working_on(Task(room.engine)), telemetry.timer("webhook.latency"):  # type: ignore[arg-type]
        pass
    assert scrape(room)["postroom_timer_seconds_count", "webhook.latency"] == 1


def test_a_timer_fails_no_task_whose_store_is_away() -> None:
    away = Task(EngineUnavailable("away"))
    with working_on(away), telemetry.timer("webhook.latency"):  # type: ignore[arg-type]
        pass


def test_a_timer_costs_nothing_where_telemetry_is_off() -> None:
    with room_on() as room, telemetry.timer("import", room):
        pass
    with telemetry.timer("import"):
        pass


def test_the_keeper_and_schedules_are_told(room: Room) -> None:
    assert scrape(room)["postroom_keeper_up",] == 0
    room.engine.records.put("schedule", "nightly", b'{"paused": true, "last_slot": 1000, "skipped": 2}')
    keeper = Keeper(room)
    keeper.tick()
    found = scrape(room)
    assert found["postroom_keeper_up",] == 1
    assert abs(found["postroom_keeper_last_sweep_timestamp_seconds",] - room.engine.now() / 1_000) < 600
    assert found["postroom_schedule_paused", "nightly"] == 1
    assert found["postroom_schedule_last_slot_timestamp_seconds", "nightly"] == 1
    assert found["postroom_schedule_slots_skipped_total", "nightly"] == 2
    keeper.stop()


def test_a_store_that_does_not_answer_is_down_and_the_scrape_works() -> None:
    engine = MemoryEngine()
    wire = Wire(engine)
    with room_on(wire) as room:
        wire.fail(1, "queues")
        found = scrape(room)
        assert found["postroom_engine_up",] == 0
        assert ("postroom_keeper_up",) not in found
        assert scrape(room)["postroom_engine_up",] == 1


# ---- From a worker, and from several processes -----------------------------------------------------


def test_while_the_store_is_away_the_spool_is_told_of() -> None:
    remote = Remote()
    with opened(remote) as engine:
        room = room_on(engine)
        assert scrape(room)["postroom_redis_active",] == 1
        remote.refuse()
        room.queue("jobs").put("kept")
        found = scrape(room)
        assert found["postroom_redis_active",] == 0
        assert found["postroom_spooled_messages",] == 1


def test_the_memory_of_a_store_is_told_where_it_says_so(monkeypatch: pytest.MonkeyPatch, room: Room) -> None:
    assert ("postroom_memory_used_bytes",) not in scrape(room)
    monkeypatch.setattr(MemoryEngine, "memory", lambda engine: Memory(7, 9))
    found = scrape(room)
    assert (found["postroom_memory_used_bytes",], found["postroom_memory_max_bytes",]) == (7, 9)


def test_a_worker_serves_its_metrics_on_this_machine_only(room: Room, hire: Hire) -> None:
    room.queue("jobs").put(1)
    worker = hire(room, {"jobs": lambda delivery: None}, metrics_port=0)
    eventually(lambda: worker.metrics and room.queue("jobs").stats().counters["acked"] == 1, timeout=60)
    assert worker.metrics
    port = worker.metrics.port
    assert fetch(port)["postroom_messages_settled_total", "jobs", "acked"] == 1
    listening = subprocess.run(["cat", "/proc/net/tcp"], check=True, capture_output=True, text=True).stdout
    (line,) = [line for line in listening.splitlines() if f":{port:04X} 00000000:0000 0A" in line]
    assert line.split()[1].startswith("0100007F:"), "127.0.0.1"
    worker.stop()
    with pytest.raises(OSError, match="refused"):
        fetch(port)


def test_breakers_of_the_process_that_is_asked_are_told_too(room: Room, hire: Hire) -> None:
    """Shared ones are told by everybody, those of one process by that one."""
    own, shared = Breaker("own", threshold=1), Breaker("both", room=room)
    beside = Breaker("both", threshold=1)
    for breaker in (own, beside):
        breaker.failed("no answer")
    shared.close()
    worker = hire(room, {"jobs": lambda delivery: None}, metrics_port=0)
    eventually(lambda: worker.metrics, timeout=60)
    assert worker.metrics
    found = fetch(worker.metrics.port)
    states = [found["postroom_breaker_state", "own", state] for state in ("open", "closed")]
    assert states == [1, 0]
    assert found["postroom_breaker_state", "both", "closed"] == 1, "what all processes know goes first"
    del own, breaker, beside
    gc.collect()
    assert ("postroom_breaker_state", "own", "open") not in fetch(worker.metrics.port)


def test_a_port_that_is_taken_is_one_clear_error(room: Room) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            Worker(room, {"jobs": lambda delivery: None}, metrics_port=port).run(drain=True)


def test_a_worker_whose_port_is_taken_does_not_start_and_may_try_again(room: Room) -> None:
    room.queue("jobs").put(1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        worker = Worker(room, {"jobs": lambda delivery: None}, metrics_port=port)
        for _ in range(2):
            with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
                worker.start()
    with worker:
        eventually(lambda: room.queue("jobs").stats().counters["acked"] == 1, timeout=60)


def _work(url: str) -> None:
    with postroom.open(url, telemetry=True) as room:
        Worker(room, {"jobs": lambda delivery: None}).run(drain=True)


def test_whoever_is_scraped_tells_of_all_processes_also_of_those_that_ended(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with postroom.open(url) as bystander:
        bystander.queue("jobs").put_many(range(60))
        spawn = multiprocessing.get_context("spawn")
        children = [spawn.Process(target=_work, args=(url,)) for _ in range(3)]
        for child in children:
            child.start()
        for child in children:
            child.join(240)
            assert child.exitcode == 0
        found = scrape(bystander)
        assert found["postroom_messages_settled_total", "jobs", "acked"] == 60
        assert found["postroom_wait_seconds_count", "jobs"] == 60
        assert found["postroom_process_seconds_count", "jobs"] == 60


PREFORK = """
import os, sys, time
import postroom
from postroom import Worker

url = sys.argv[1]

def child():
    with postroom.open(url, telemetry=True) as room:
        Worker(room, {"jobs": lambda delivery: time.sleep(0.001)}).run(drain=True)
    os._exit(0)

children = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        child()
    children.append(pid)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
"""


def test_forked_children_need_no_port_of_their_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with postroom.open(url) as room:
        room.queue("jobs").put_many(range(40))
    subprocess.run([sys.executable, "-c", PREFORK, url], check=True, timeout=240)
    with postroom.open(url) as parent:
        found = scrape(parent)
    assert found["postroom_messages_claimed_total", "jobs"] == 40
    assert found["postroom_process_seconds_count", "jobs"] == 40
    assert found["postroom_process_seconds_sum", "jobs"] >= 0.04


# ---- The names -------------------------------------------------------------------------------------


def families(room: Room) -> dict[str, Any]:
    return {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in collector(room).collect()
    }


def test_every_metric_is_on_the_page_and_no_other(room: Room) -> None:
    rows = re.findall(r"^\| `(postroom_\w+)` \| (\w+) \|[^|]*\|", PAGE.read_text("utf-8"), re.MULTILINE)
    of_a_room = {name: kind for name, kind in rows if not name.startswith("postroom_events_")}
    assert of_a_room == {name: family.type for name, family in families(room).items()}


def test_the_names_keep_the_conventions(room: Room) -> None:
    for name, family in families(room).items():
        assert name.startswith("postroom_")
        assert (family.type == "counter") == name.endswith("_total")
        assert not re.search(r"_(ms|milliseconds|minutes|count)$", name)
        assert family.documentation


def test_a_scrape_of_many_queues_is_bounded(room: Room) -> None:
    for number in range(1_005):
        room.engine.declare(f"queue-{number}", Policy())

    assert len([key for key in scrape(room) if key[0] == "postroom_queue_paused"]) == 1_000
