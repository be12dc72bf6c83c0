"""The guards of the domain in Celery's tasks, run by real workers: idempotency and verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest
from celery import Celery

from postroom.celery.working import broker_of, office_for
from postroom.deadletters import DeadLetters
from postroom.room import Room
from postroom.telemetry import samples
from tests.celery import workers
from tests.celery.workers import LEASE, Shop, pool

pytestmark = pytest.mark.timeout(600)

APP = "tests.celery.guard_app"
MATRIX = f"""
lease = "{LEASE}s"

[queues.pay]
tasks = ["pay.*"]
retries = 2
backoff = "20ms"

[queues.every]
tasks = ["every.*"]
"""

on_redis = pytest.mark.parametrize("broker", ["redis"], indirect=True)
on_sqlite = pytest.mark.parametrize("broker", ["sqlite"], indirect=True)


def configure(shop: Shop, more: str = "") -> None:
    Path(shop.environ["SHOP_MATRIX"]).write_text(MATRIX + more, encoding="utf-8")


def worker(shop: Shop, name: str, queues: str = "pay") -> workers.WorkerProcess:
    return shop.worker("--queues", queues, *pool(name))


# ---- several brokers -------------------------------------------------------------------------------


def test_what_is_known_of_a_task_is_where_its_message_is(tmp_path: Path) -> None:
    """Else nobody could ask that store whether the delivery that claimed the work still holds it."""
    first, second = (f"postroom+sqlite:///{tmp_path}/{name}.db" for name in ("first", "second"))
    app = Celery("brokers", broker=f"{first};{second}", set_as_current=False)
    with app.connection_for_read() as connection:
        for number, url in enumerate((first, second, first)):
            if number:
                connection.switch(url)
            office = connection.default_channel.office
            broker = broker_of(app, office)
            assert (broker, office.url) == (number % 2, url.removeprefix("postroom+"))
            assert office_for(app, broker) is office
    with Celery("one", broker=second, set_as_current=False) as alone:
        assert office_for(alone, broker_of(alone, office_for(app, 1))).url == office_for(app, 1).url
        assert broker_of(alone, office_for(app, 0)) == 0, "a broker that the app does not know"


# ---- idempotency -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker", "name"),
    [("redis", "prefork"), ("sqlite", "threads"), ("redis", "gevent")],
    indirect=["broker"],
)
def test_a_duplicate_gets_the_stored_result_and_nothing_runs(shop: Shop, name: str) -> None:
    worker(shop, name)
    code = """
first = pay.delay("INV-1")
print(first.id)
print([first.get(timeout=90), *[pay.delay("INV-1").get(timeout=90) for _ in range(2)]])
"""
    id, results = shop.python(code).splitlines()
    assert results == str([{"paid": "INV-1", "by": id}] * 3)
    (line,) = shop.lines("pay")
    assert (line["key"], line["deliveries"]) == (id, 1)


@on_redis
def test_a_duplicate_at_the_same_time_comes_again_and_costs_no_attempt(
    shop: Shop, room: Room, tmp_path: Path
) -> None:
    worker(shop, "prefork")
    gate = tmp_path / "gate"
    shop.python(f"pay.delay('INV-1', {str(gate)!r})")
    shop.until(lambda: shop.lines("pay"))
    shop.python(f"print(pay.apply_async(['INV-1', {str(gate)!r}], task_id='second').id)")
    shop.until(lambda: room.engine.stats("pay").counters["released"] >= 1, "it was not handed back")
    gate.touch()
    got = shop.python("print(app.AsyncResult('second').get(timeout=90)['paid'])")
    assert got == "INV-1"
    assert len(shop.lines("pay")) == len(shop.lines("paid")) == 1
    assert room.engine.stats("pay").counters["retried"] == 0


@pytest.mark.parametrize(
    ("broker", "name"), [("redis", "prefork"), ("sqlite", "threads")], indirect=["broker"]
)
def test_work_whose_worker_is_killed_is_done_again_once(
    shop: Shop, room: Room, tmp_path: Path, name: str
) -> None:
    """Its claim is worth as much as the delivery that made it: the redelivered message takes it over."""
    first = worker(shop, name)
    gate = tmp_path / "gate"
    id = shop.python(f"print(pay.delay('INV-1', {str(gate)!r}).id)")
    shop.until(lambda: shop.lines("pay"))
    first.kill()
    gate.touch()
    worker(shop, name)
    shop.python(f"app.AsyncResult({id!r}).get(timeout=90)")
    assert shop.python("print(pay.delay('INV-1').get(timeout=90)['by'])") == id
    assert [line["deliveries"] for line in shop.lines("pay")] == [1, 2]
    assert len(shop.lines("paid")) == 1


@on_sqlite
def test_a_task_that_was_acked_early_is_guarded_while_it_runs(shop: Shop, room: Room, tmp_path: Path) -> None:
    """Its message is gone by then, and its claim must not look like that of a dead worker."""
    worker(shop, "threads")
    gate = tmp_path / "gate"
    shop.python(f"early.delay('INV-1', {str(gate)!r})")
    shop.until(lambda: shop.lines("pay"))
    shop.until(lambda: room.engine.stats("pay").counters["acked"] == 1)
    shop.python(f"early.apply_async(['INV-1', {str(gate)!r}], task_id='second')")
    shop.until(lambda: room.engine.stats("pay").counters["put"] >= 3, "it did not come again")
    assert len(shop.lines("pay")) == 1
    gate.touch()
    assert shop.python("print(app.AsyncResult('second').get(timeout=90))") == "INV-1"
    assert len(shop.lines("paid")) == 1


@on_redis
def test_every_task_is_run_once_if_the_configuration_says_so(shop: Shop) -> None:
    configure(shop, "[idempotency]\nevery_task = true\n")
    worker(shop, "prefork", "every")
    code = """
results = [plain.apply_async(["a"], task_id="one"), plain.apply_async(["b"], task_id="two")]
results += [plain.apply_async(["other"], task_id="one")]
[result.get(timeout=90) for result in results]
plain.apply_async(["c"], headers={"idempotency-key": "one"}).get(timeout=90)
print(plain("called"))
"""
    assert shop.python(code) == "called"
    assert sorted(shop.labels("plain")) in (["a", "b", "called"], ["b", "called", "other"])


# ---- verdicts --------------------------------------------------------------------------------------


@on_sqlite
def test_a_task_may_raise_what_a_handler_may(shop: Shop, room: Room) -> None:
    worker(shop, "threads")
    shop.python("[verdict.delay(what) for what in ('later', 'retry', 'bury')]")
    shop.until(lambda: len(shop.lines("later")) == len(shop.lines("retry")) == 3 and shop.lines("bury"))
    shop.until(lambda: not room.engine.stats("pay").processing)
    assert [line["retries"] for line in shop.lines("later")] == [0, 0, 0]
    assert [line["retries"] for line in shop.lines("retry")] == [0, 1, 2]
    (letter,) = DeadLetters(room).find().letters
    assert (letter.call.args, letter.failure.text) == (["bury"], "no such customer")
    assert len(shop.lines("bury")) == 1


# ---- timers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("broker", "name"), [("redis", "prefork"), ("sqlite", "solo")], indirect=["broker"])
def test_a_timer_in_a_task_is_kept_in_the_store(shop: Shop, room: Room, name: str) -> None:
    """Also of a pool's child, which has an office of its own."""
    shop.environ["POSTROOM_TELEMETRY"] = "on"
    worker(shop, name, "every")
    shop.python("[timed.delay(label) for label in 'abc']")

    def told() -> bool:
        found = samples.read(room.engine, "timer:")
        return found.keys() == {"webhook.latency"} and found["webhook.latency"].all().count == 3

    shop.until(told)
