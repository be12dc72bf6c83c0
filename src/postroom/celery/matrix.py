"""The queue matrix, applied to a Celery app: what `postroom.celery.setup` does.

What a task or the app's own configuration says wins over the matrix, and the matrix over Celery's defaults.
The matrix speaks for the queues that it names; tasks of any other queue stay as Celery has them.
"""

from __future__ import annotations

import os
from typing import Any

from postroom.celery.options import Breakers, name_config
from postroom.config import Config, load

#: The queue of what beat sends and nobody gave a queue of its own.
BEAT = "beat"
#: Acked when done, given back when its process died, and dead, not acked, when it failed for good.
_DEFAULTS = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "task_acks_on_failure_or_timeout": False,
}
_REQUEST = "postroom.celery.request:Request"


def setup(
    app: Any,
    config: Config | str | os.PathLike[str] | None = None,
    *,
    breakers: Breakers | None = None,
) -> Config:
    """Apply the queue matrix to the tasks of this app; returns it.

    `config` is a file, or what `postroom.config.load` gave; without it, what every room is configured by.
    `breakers`, by queue: while one is open a worker takes nothing from its queue, and half open its probes.
    With a pool of processes each must be shared through a room, or the worker does not hear of it.
    Call it once, where the app is made. Raises ConfigError.
    """
    loaded = (config if isinstance(config, Config) else load(config)).for_tasks()
    import postroom.celery.control  # noqa: F401  (its commands register themselves)

    app.postroom = loaded
    app.add_defaults(_defaults(loaded))
    _when(app.configured, app.on_after_configure, lambda **_: _configure(app, loaded, breakers))
    _when(app.finalized, app.on_after_finalize, lambda **_: apply(app, loaded))
    _listen(app, loaded)
    return loaded


def _defaults(config: Config) -> dict[str, Any]:
    if config.origin_of(None, "url") == "default":
        return dict(_DEFAULTS)
    return {**_DEFAULTS, "broker_url": f"postroom+{config.url}"}


def _when(now: bool, signal: Any, act: Any) -> None:
    if now:
        act()
    else:
        signal.connect(act, weak=False)


def _listen(app: Any, config: Config) -> None:
    """What an app learns later: tasks made after it was finished, and what beat is to send."""
    from celery import signals

    def on_worker(sender: Any = None, **_: Any) -> None:
        apply(app, config)

    def on_beat(sender: Any = None, **_: Any) -> None:
        if sender.app is app and BEAT in config.declared:
            send_to_beat(app, sender.scheduler)

    signals.worker_init.connect(on_worker, weak=False)
    signals.beat_init.connect(on_beat, weak=False)


def _configure(app: Any, config: Config, breakers: Breakers | None) -> None:
    conf = app.conf
    name = name_config(config, breakers)
    conf.broker_transport_options = {"config": name, **(conf.broker_transport_options or {})}
    if config.routes:
        own = conf.task_routes or ()
        own = own if isinstance(own, list | tuple) else [own]
        conf.task_routes = [*own, {task: {"queue": queue} for task, queue in config.routes.items()}]
        app.amqp.flush_routes()


def apply(app: Any, config: Config) -> None:
    """Have every task of the app retried, limited and given up as the matrix says; twice is fine."""
    from postroom.celery.retrying import Retries, given

    for name, task in app.tasks.items():
        if name.startswith("celery.") or task.Request == _REQUEST or given(task, "Request"):
            continue
        task.Request = _REQUEST
        Retries(task, config).attach()


def send_to_beat(app: Any, scheduler: Any) -> None:
    """Have whatever has no queue of its own go to the queue of beat."""
    for entry in scheduler.schedule.values():
        task = app.tasks.get(entry.task)
        own = {"queue", "exchange", "routing_key"} & entry.options.keys() or getattr(task, "queue", None)
        if not own and not app.amqp.router.lookup_route(entry.task, (), {}, {}):
            entry.options["queue"] = BEAT
