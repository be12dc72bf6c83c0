"""`/metrics` of a Celery worker, served by the process that consumes and not by the children of its pool.

Every number is read from the store when it is asked for, so that one process tells of all: prefork needs no
directory of files and no multiprocess mode. Only breakers that are not shared are told as far as they are in
this process, where the tasks of a pool of threads run.
"""

from __future__ import annotations

from typing import Any


def serve_metrics(app: Any, port: int, host: str = "127.0.0.1", *beside: Any) -> None:
    """Have the worker of this app serve `/metrics` there, as long as its process lives.

    `beside`: collectors of prometheus-client that are told beside those of the room.
    A worker that cannot listen there does not start. Raises MissingExtra without prometheus-client.
    """
    from celery import bootsteps

    from postroom.standing import states_here
    from postroom.telemetry.exporter import MetricsServer, Own

    class Serving(bootsteps.StartStopStep):
        """Not stopped with the connection: above all while the store is away it is asked."""

        requires = ("celery.worker.consumer:Connection",)
        server: MetricsServer | None = None

        def start(self, consumer: Any) -> None:
            if self.server is None:
                room = consumer.connection.transport.office.room
                self.server = MetricsServer(room, port, host, lambda: Own(states_here()), *beside)

        def stop(self, consumer: Any) -> None:
            pass

    app.steps["consumer"].add(Serving)
