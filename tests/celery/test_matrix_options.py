"""Who wins: what a task says of itself, the matrix, Celery's defaults. Without any worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Retry
from kombu import Connection, Queue

import postroom.celery
from postroom.celery.matrix import send_to_beat
from postroom.celery.retrying import Again, Retries, policy_for, queue_of
from postroom.config import Config, load
from postroom.errors import ConfigError

MATRIX = """
url = "sqlite:///matrix.db"

[queues.fast]
tasks = ["fast.*", "webhooks.send"]
retries = 3
backoff = "2^n * 5s"
jitter = false

[queues.slow]
retries = 6
backoff = "2^n * 90s"
backoff_cap = "2h"
jitter = false

[queues.beat]
retries = 0

[queues.spread]
tasks = ["spread.*"]
backoff = "2^n * 100s"
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "postroom.toml"
    file.write_text(MATRIX, encoding="utf-8")
    return load(file, environ={})


@pytest.fixture
def app(config: Config) -> Celery:
    app = Celery("options", set_as_current=False)
    postroom.celery.setup(app, config)
    return app


def a_task(app: Celery, name: str, **options: Any) -> Any:
    @app.task(bind=True, name=name, shared=False, **options)
    def work(self: Any) -> None:
        raise OSError("away")

    return app.tasks[name]


def retries(app: Celery, config: Config, name: str, queue: str = "", **options: Any) -> Retries:
    task = a_task(app, name, **options)
    made = Retries(task, config)
    if queue:
        task.push_request(delivery_info={"routing_key": queue}, called_directly=False)
    return made


def test_the_matrix_wins_over_celerys_defaults(app: Celery, config: Config) -> None:
    made = retries(app, config, "fast.a")
    assert (made.queue(), made.limit()) == ("fast", 3)
    assert [made.wait(n) for n in range(4)] == [5, 10, 20, 40]


@pytest.mark.parametrize(
    ("name", "options"),
    [("spread.a", {}), ("fast.jittery", {"retry_backoff": 100, "retry_jitter": True})],
    ids=["as the matrix has it by default", "as the task says"],
)
def test_waits_are_spread(app: Celery, config: Config, name: str, options: dict[str, Any]) -> None:
    made = retries(app, config, name, **options)
    for earlier, most in ((0, 100), (2, 400)):
        waits = [made.wait(earlier) for _ in range(200)]
        assert 0 <= min(waits) < most * 0.2 < most * 0.8 < max(waits) <= most
    still = retries(app, config, "spread.still", retry_jitter=False)
    assert [still.wait(n) for n in range(3)] == [100, 200, 400]


def test_a_task_s_own_list_of_errors_wins(app: Celery) -> None:
    task = a_task(app, "fast.own_list", autoretry_for=(KeyError,))
    task.push_request(
        id="1", args=(), kwargs={}, retries=0, called_directly=False, postroom_queue="fast", postroom_left=1
    )
    with pytest.raises(OSError, match="away") as error:
        task.run()
    assert not isinstance(error.value, Retry)


def test_no_task_is_stopped_by_the_time_that_handlers_have(app: Celery, tmp_path: Path) -> None:
    """The queue `slow` says nothing about time, nor which tasks it has: also then it is not 30 s."""
    with Connection(f"postroom+sqlite:///{tmp_path}/jobs.db", transport_options=transport_options(app)) as to:
        for queue in ("fast", "slow"):
            Queue(queue)(to.default_channel).declare()
        infos = to.default_channel.office.room.engine.queues(["fast", "slow"])
    assert [(info.policy.ack_timeout, info.policy.backoff.unit) for info in infos] == [
        (None, 5_000),
        (None, 90_000),
    ]
    told = policy_for(app.postroom, "slow")
    assert told is not None
    assert told.ack_timeout is None


def transport_options(app: Celery) -> dict[str, Any]:
    options: dict[str, Any] = app.conf.broker_transport_options
    return options


def test_a_task_wins_over_the_matrix(app: Celery, config: Config) -> None:
    made = retries(
        app, config, "fast.b", max_retries=5, retry_backoff=7, retry_backoff_max=20, retry_jitter=False
    )
    assert made.limit() == 5
    assert [made.wait(n) for n in range(3)] == [7, 14, 20]


def test_each_option_wins_by_itself(app: Celery, config: Config) -> None:
    """The wait that it says, with the end of the matrix; the number of the matrix, with its own wait."""
    made = retries(app, config, "fast.c", retry_backoff=400)
    assert (made.limit(), [made.wait(n) for n in range(5)]) == (3, [400, 800, 1_600, 3_200, 3_600])
    fixed = retries(app, config, "fast.d", default_retry_delay=17)
    assert (fixed.limit(), fixed.wait(2)) == (3, 17)
    forever = retries(app, config, "fast.e", max_retries=None)
    assert (forever.limit(), forever.wait(0)) == (None, 5)


def test_ten_minutes_are_not_the_longest_wait_where_the_matrix_needs_more(
    app: Celery, config: Config
) -> None:
    made = retries(app, config, "anything", queue="slow")
    assert [made.wait(n) for n in range(7)] == [90, 180, 360, 720, 1_440, 2_880, 5_760]


def test_the_queue_of_the_message_decides_not_that_of_the_task(app: Celery, config: Config) -> None:
    made = retries(app, config, "fast.f", queue="slow")
    assert (made.queue(), made.limit()) == ("slow", 6)


def test_a_queue_that_the_matrix_does_not_name_stays_celerys(app: Celery, config: Config) -> None:
    made = retries(app, config, "elsewhere.g")
    assert made.queue() == "celery"
    assert policy_for(config, "celery") is None
    assert (made.limit(), made.wait(0)) == (3, 180)


def test_tasks_go_where_the_matrix_says_unless_the_app_says_otherwise(config: Config) -> None:
    app = Celery("routes", set_as_current=False)
    app.conf.task_routes = {"fast.own": {"queue": "mine"}}
    postroom.celery.setup(app, config)
    names = ("fast.a", "fast.own", "webhooks.send", "other")
    assert [queue_of(a_task(app, name)) for name in names] == ["fast", "mine", "fast", "celery"]


def test_defaults_that_survive_a_crash_unless_the_app_says_otherwise(config: Config) -> None:
    plain, own = Celery("plain", set_as_current=False), Celery("own", set_as_current=False)
    own.conf.update(task_acks_late=False, broker_url="memory://")
    for app in (plain, own):
        postroom.celery.setup(app, config)
    assert (plain.conf.task_acks_late, plain.conf.task_reject_on_worker_lost) == (True, True)
    assert plain.conf.broker_url == "postroom+sqlite:///matrix.db"
    assert (own.conf.task_acks_late, own.conf.broker_url) == (False, "memory://")


def test_what_beat_sends_without_a_queue_goes_to_its_own(app: Celery) -> None:
    app.conf.beat_schedule = {
        "tick": {"task": "ticks", "schedule": 10},
        "routed": {"task": "fast.a", "schedule": 10},
        "told": {"task": "ticks", "schedule": 10, "options": {"queue": "slow"}},
    }
    scheduler = app.Beat().Service(app=app, scheduler_cls="celery.beat:Scheduler").scheduler
    send_to_beat(app, scheduler)
    queues = {name: entry.options.get("queue") for name, entry in scheduler.schedule.items()}
    assert {name: queues[name] for name in ("tick", "routed", "told")} == {
        "tick": "beat", "routed": None, "told": "slow",
    }  # fmt: skip


def test_a_message_is_tried_again_itself_only_while_its_queue_allows_it(app: Celery, config: Config) -> None:
    task = a_task(app, "fast.h")
    task.push_request(
        id="1", args=(), kwargs={}, retries=0, called_directly=False, delivery_info={},
        postroom_queue="fast", postroom_left=1,
    )  # fmt: skip
    with pytest.raises(Again) as again:
        task.run()
    assert again.value.failure is not None
    assert (again.value.when, again.value.failure[:2]) == (5, ("OSError", "away"))
    task.request.postroom_left = 0
    published: list[Any] = []

    def publish(*args: Any, **options: Any) -> None:
        published.append(options)
        raise LookupError("there is no broker")

    task.signature_from_request = publish
    with pytest.raises(LookupError):
        task.run()
    assert [options["countdown"] for options in published] == [5]


def test_called_like_a_function_it_raises_what_it_raises(app: Celery) -> None:
    with pytest.raises(OSError, match="away"):
        a_task(app, "fast.i")()


def test_applied_twice_it_is_applied_once(app: Celery, config: Config) -> None:
    task = a_task(app, "fast.j")
    postroom.celery.setup(app, config)
    task.push_request(called_directly=False, retries=3, id="1", args=(), kwargs={}, postroom_queue="fast")
    with pytest.raises(OSError, match="away") as error:
        task.run()
    assert not isinstance(error.value, Retry)


def test_a_list_of_tasks_must_be_one(tmp_path: Path) -> None:
    file = tmp_path / "postroom.toml"
    file.write_text('[queues.q]\ntasks = "all"', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"\[queues.q\] tasks: expected names of tasks"):
        load(file, environ={})
