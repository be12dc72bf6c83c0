"""`postroom events`: services that publish and handle events, and what they have on RabbitMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli.options import LOOPBACK, MetricsHost, MetricsPort

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from postroom.celery.events import EventsApp
    from postroom.celery.events.topology import Topology

app: typer.Typer = typer.Typer(no_args_is_help=True)

Application = Annotated[str, typer.Argument(metavar="MODULE[:VARIABLE]", help="Where the events app is.")]
#: What workers of events have no use for, and N² messages for N workers.
_QUIET = ("--without-mingle", "--without-gossip", "--without-heartbeat")


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="events", help="Run services that publish and handle events.")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def worker(
    context: typer.Context,
    application: Application,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    json: Annotated[bool, typer.Option("--json", help="Log JSON, one object a line.")] = False,
) -> None:
    """Start `celery worker` for a service, without mingle, gossip and heartbeat.

    Further arguments are passed on.

    \b
    Examples:
      postroom events worker billing
      postroom events worker billing.app:app --concurrency 4 --loglevel INFO
      postroom events worker billing --metrics-port 9464
    """
    found = events_app_at(application)
    from celery.bin.celery import celery as command

    from postroom.cli.celery_worker import log_json

    if json:
        log_json()
    if metrics_port is not None:
        _serve_metrics(found, metrics_port, metrics_host)
    command.main(args=["-A", application, "worker", *_QUIET, *context.args], prog_name="celery")


def _serve_metrics(found: EventsApp, port: int, host: str) -> None:
    """Served by this process, which becomes the worker's main one."""
    from postroom.celery.events.metrics import EventsCollector
    from postroom.celery.metrics import serve_metrics
    from postroom.telemetry.exporter import MetricsServer

    if found.on_rabbitmq:
        MetricsServer(EventsCollector(found), port, host)
    else:
        serve_metrics(found, port, host, EventsCollector(found))


@app.command()
def topology(
    application: Application,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print it; declare nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Declare what a service needs on RabbitMQ, and print it with the number of its queues.

    Workers do the same when they start. What exists already stays as it is; a difference is explained.

    \b
    Examples:
      postroom events topology billing --dry-run
      postroom events topology billing
    """
    found = events_app_at(application)
    found.loader.import_default_modules()
    if not dry_run:
        _need_rabbitmq(found)
    plan = found.topology
    _show(plan, json=json)
    if not dry_run:
        from postroom.celery.events.declaring import declare
        from postroom.celery.events.holding import as_unavailable, connected

        with as_unavailable(), connected(found) as connection:
            declare(connection, plan)


def _show(plan: Topology, *, json: bool) -> None:
    if json:
        import msgspec

        print(msgspec.json.encode(plan).decode())
        return
    for exchange in plan.exchanges:
        print(f"exchange  {exchange.name}  {exchange.type}{_arguments(exchange.arguments)}")
    for queue in plan.queues:
        print(f"queue     {queue.name}{_arguments(queue.arguments)}")
    for binding in plan.bindings:
        print(f"binding   {binding.source} -> {binding.target}  {binding.key}{_arguments(binding.arguments)}")
    print(f"{len(plan.queues)} queues, {len(plan.exchanges)} exchanges, {len(plan.bindings)} bindings")


@app.command()
def stats(
    application: Application,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """How many events wait: for the handlers of a service, for their time, and in its archive.

    On RabbitMQ the delayed ones are told by rung of the ladder, on an engine by queue.

    \b
    Examples:
      postroom events stats billing
      postroom events stats billing --json | jq .archived
    """
    found = events_app_at(application)
    found.loader.import_default_modules()
    from postroom.celery.events.standing import look

    standing = look(found)
    if json:
        import msgspec

        print(msgspec.json.encode(standing).decode())
        return
    kept = {found.names.archive: standing.archived} if found.given.archive is not None else {}
    for what, counts in (("ready", standing.ready), ("delayed", standing.delayed), ("archived", kept)):
        for queue, count in counts.items():
            print(f"{what:10}{queue}  {'not declared' if count is None else count}")
    if standing.archived is not None:
        print(f"the archive is {standing.filled:.0%} full")


@app.command()
def relay(
    application: Application,
    database: Annotated[str, typer.Option("--database", metavar="URL", help="As SQLAlchemy writes it.")],
    once: Annotated[bool, typer.Option("--once", help="Publish what waits, and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON, one object a line.")] = False,
) -> None:
    """Publish the events that wait in the outbox of a database, until Ctrl-C.

    \b
    Examples:
      postroom events relay billing --database postgresql+psycopg:///billing
      postroom events relay billing --database sqlite:///billing.db --once
    """
    found = events_app_at(application)
    found.loader.import_default_modules()
    from postroom.celery.events.outbox import Relay
    from postroom.cli import logs

    relaying = Relay(found, _outbox_at(database))
    if once:
        published = relaying.pass_on()
        print(f'{{"published": {published}}}' if json else f"published: {published:,}")
        return
    import signal

    logs.begin(as_json=json)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: relaying.stop())
    relaying.run()


def _outbox_at(database: str) -> Engine:
    """The database with the outbox, which must be there. Raises InvalidInput."""
    from sqlalchemy import create_engine, inspect
    from sqlalchemy.exc import SQLAlchemyError

    from postroom.celery.events.outbox import event_outbox
    from postroom.errors import InvalidInput

    try:
        engine = create_engine(database)
        has_outbox = inspect(engine).has_table(event_outbox.name)
    except (SQLAlchemyError, ImportError) as error:
        raise InvalidInput(
            f"--database: it cannot be opened: {getattr(error, 'orig', None) or error}"
        ) from error
    if not has_outbox:
        raise InvalidInput(
            f"--database: there is no table {event_outbox.name}; postroom.celery.events.outbox.ddl() makes it"
        )
    return engine


def events_app_at(application: str) -> EventsApp:
    """The events app in MODULE[:VARIABLE]. Raises InvalidInput."""
    from postroom.cli.celery_worker import app_at, need_celery
    from postroom.errors import InvalidInput

    need_celery()
    from postroom.celery.events import EventsApp

    found = app_at(application, "MODULE")
    if not isinstance(found, EventsApp):
        raise InvalidInput(f"{application}: this Celery app was not made by events_app()")
    return found


def _need_rabbitmq(found: EventsApp) -> None:
    from postroom.errors import InvalidInput

    if not found.on_rabbitmq:
        raise InvalidInput("this service is not on RabbitMQ; `postroom queue ls` shows its queues")


def _arguments(arguments: Any) -> str:
    return "".join(f"  {name}={value}" for name, value in arguments.items())
