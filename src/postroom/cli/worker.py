"""`postroom worker`: work on the queues of a role; `ls`: who does; `quiet`, `resume`, `stop`: tell them."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli import INTERRUPTED, output
from postroom.cli.options import LOOPBACK, File, Json, MetricsHost, MetricsPort, Url, role_names
from postroom.errors import ConfigError, PostroomError

if TYPE_CHECKING:
    from postroom.config import Config
    from postroom.role import Role
    from postroom.staff import Word, WorkerInfo
    from postroom.worker import Handlers

log: logging.Logger = logging.getLogger(__name__)


RoleName = Annotated[
    str | None, typer.Option("--role", "-r", metavar="NAME", help="The role.", autocompletion=role_names)
]
App = Annotated[
    str | None,
    typer.Option("--app", "-A", metavar="MODULE:VARIABLE", help="The handlers; else `app` as configured."),
]
Drain = Annotated[bool, typer.Option("--drain", help="Stop when nothing is ready any more.")]
JsonLog = Annotated[bool, typer.Option("--json", help="Log JSON, one object a line.")]
Who = Annotated[str, typer.Argument(metavar="WORKER", help="Its name, or its id if several have that name.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for others to read.")]

app: typer.Typer = typer.Typer(invoke_without_command=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="worker")


@app.callback()
def worker(
    context: typer.Context,
    role: RoleName = None,
    handlers: App = None,
    config: File = None,
    url: Url = None,
    drain: Drain = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    json: JsonLog = False,
) -> None:
    """Work on the queues of a role, with exactly the settings that postroom.toml gives it.

    \b
    Examples:
      postroom worker --role fast
      postroom worker --role heavy --app shop.payouts:handlers
      postroom worker --role fast --drain      until nothing is ready
      postroom worker --role fast --metrics-port 9464
      postroom config show --role fast         what it will do
      postroom worker ls                       who works at present
      postroom worker stop NAME                have one of them end, wherever it is

    \b
    The role, in postroom.toml:
      app = "shop.jobs:handlers"
      [roles.fast]
      queues = ["chat", "emails"]
      concurrency = 20

    \b
    The handlers, in shop/jobs.py (installed, or in this folder): a function for
    each queue,
      handlers = {"chat": on_chat, "emails": send}
    or a register, which also knows kinds:
      handlers = postroom.Handlers()
      @handlers.handle("emails", kind="welcome")
      def welcome(delivery): ...

    \b
    SIGTERM or Ctrl-C: it claims no more, hands back what it has not begun, and
    waits for what runs (at most the role's stop_timeout). A second one: at once.
    Exit codes: 0 stopped gracefully, 130 at once.
    """
    if context.invoked_subcommand is not None:
        return
    if role is None:
        context.fail("Missing option '--role' / '-r'.")
    options = {"metrics_port": metrics_port, "metrics_host": metrics_host}
    _work(_load(config, url), role, handlers, drain, json, **options)


def _load(file: str | None, url: str | None) -> Config:
    from postroom.config import load

    arguments: dict[str, Any] = {"url": url} if url else {}
    return load(file, **arguments)


def _work(config: Config, name: str, app: str | None, drain: bool, json: bool, **options: Any) -> None:
    from postroom.cli import logs
    from postroom.room import open as open_room
    from postroom.worker import Worker

    role, handlers = config.role(name), find_handlers(app or config.app)
    logs.begin(as_json=json)
    with open_room(config=config) as room:
        made = Worker.for_role(room, role, handlers, **options)
        of = {"worker": made.name}
        log.info("%s works: %s", made.name, _summary(role), extra={"event": "worker.started", **of})
        try:
            made.run(drain=drain)
        except KeyboardInterrupt:
            log.info("%s stopped at once", made.name, extra={"event": "worker.interrupted", **of})
            raise typer.Exit(INTERRUPTED) from None
        log.info("%s stopped", made.name, extra={"event": "worker.stopped", **of})


def find_handlers(app: str | None) -> Mapping[str, Any] | Handlers:
    """The variable that `module:variable` names. Raises ConfigError when there is none, or no handlers."""
    from importlib import import_module

    from postroom.worker import Handlers

    module, colon, variable = (app or "").partition(":")
    if not (module and colon and variable):
        raise ConfigError('app: say where the handlers are: --app module:variable, or app = "…" in the file')
    if "" not in sys.path:
        sys.path.insert(0, "")  # like `python -m`: the folder where the command was started
    try:
        found: Any = import_module(module)
    except PostroomError:
        raise  # what it says is for whoever reads it
    except Exception as error:
        raise ConfigError(f"app: {module} cannot be imported: {_told(error)}") from error
    try:
        for name in variable.split("."):
            found = getattr(found, name)
    except AttributeError as error:
        raise ConfigError(f"app: {error}") from None
    if not isinstance(found, Mapping | Handlers):
        raise ConfigError(f"app: {app} is neither a dict of handlers nor postroom.Handlers: {found!r:.80}")
    return found


def _told(error: Exception) -> str:
    """An error of a module that is imported, and which line of the module it comes from."""
    if isinstance(error, ModuleNotFoundError | SyntaxError):
        return str(error)  # says the place itself, or there is none
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    frames = (frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "<module>")
    return next((f"{frame.filename}:{frame.lineno}: {said}" for frame in frames), said)


def _summary(role: Role) -> str:
    shares = {queue: share.concurrency for queue, share in role.shares.items()}
    queues = (f"{queue} ({shares[queue]})" if shares.get(queue) else queue for queue in role.queues)
    return f"{role.concurrency} hands on {', '.join(queues)}"


@app.command()
def ls(url: Url = None, json: Json = False) -> None:
    """List who works in the room: whichever program, process and machine it is.

    Every worker, also one of Celery's, shows itself every ten seconds. One that stops is gone at once;
    one that was killed is lost after 30 seconds and forgotten after 15 minutes.

    \b
    Examples:
      postroom worker ls
      postroom worker ls --json | jq '.[] | select(.lost) | .name'
    """
    import msgspec

    from postroom.cli.store import opened

    with opened(url) as room:
        workers, now = room.workers(), room.engine.now()
    if json:
        output.as_json(msgspec.to_builtins(workers))
    else:
        columns = ("worker", "id", "state", "role", "queues", "busy", "holds", "seen", "for", "release")
        output.table(columns, [_row(worker, now) for worker in workers])


def _row(worker: WorkerInfo, now: int) -> tuple[str, ...]:
    from postroom.cli.times import age

    return (
        worker.name,
        worker.id,
        _state(worker),
        worker.role or "-",
        ", ".join(worker.queues),
        f"{worker.busy} of {worker.concurrency}",
        str(worker.in_flight),
        age(now - worker.last_seen),
        age(now - worker.started),
        " ".join(f"{name} {version}" for name, version in worker.versions.items() if name != "python"),
    )


def _state(worker: WorkerInfo) -> str:
    if worker.lost:
        return "lost"
    state = {"working": "live"}.get(worker.state, worker.state)
    return f"{state}, told to {worker.told}" if worker.told else state


@app.command()
def quiet(who: Who, reason: Reason = "", url: Url = None, json: Json = False) -> None:
    """Have a worker claim no more; it hands back what it has not begun, finishes the rest, and stays.

    A worker of Celery's still does what it has fetched. Before a deployment, or to look at one in peace.

    \b
    Examples:
      postroom worker quiet host:4711/fast --reason "deploy"
      postroom worker resume host:4711/fast
    """
    _tell(who, "quiet", reason, url, json)


@app.command()
def resume(who: Who, reason: Reason = "", url: Url = None, json: Json = False) -> None:
    """Have a quiet worker claim again.

    \b
    Examples:
      postroom worker resume host:4711/fast
    """
    _tell(who, "resume", reason, url, json)


@app.command()
def stop(who: Who, reason: Reason = "", url: Url = None, json: Json = False) -> None:
    """Have a worker end as by SIGTERM, wherever it runs; whoever runs it may start another.

    \b
    Examples:
      postroom worker stop host:4711/fast
      postroom worker stop celery@host
    """
    _tell(who, "stop", reason, url, json)


def _tell(who: str, word: Word, reason: str, url: str | None, json: bool) -> None:
    import msgspec

    from postroom.cli.store import opened

    with opened(url) as room:
        told = room.tell_worker(who, word, reason)
    if json:
        output.as_json(msgspec.to_builtins(told))
    else:
        output.say(
            f"told {told.name} to {'be quiet' if word == 'quiet' else word}; it hears that within 10 s"
        )
