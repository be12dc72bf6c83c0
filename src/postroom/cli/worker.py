"""`postroom worker`: work on the queues of a role."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli.options import File, Url, role_names
from postroom.errors import ConfigError

if TYPE_CHECKING:
    from postroom.config import Config
    from postroom.role import Role
    from postroom.worker import Handlers

log = logging.getLogger(__name__)

INTERRUPTED = 130

RoleName = Annotated[
    str, typer.Option("--role", "-r", metavar="NAME", help="The role.", autocompletion=role_names)
]
App = Annotated[
    str | None,
    typer.Option("--app", "-A", metavar="MODULE:VARIABLE", help="The handlers; else `app` as configured."),
]
Drain = Annotated[bool, typer.Option("--drain", help="Stop when nothing is ready any more.")]
JsonLog = Annotated[bool, typer.Option("--json", help="Log JSON, one object a line.")]


def register(root: typer.Typer) -> None:
    root.command()(worker)


def worker(
    role: RoleName,
    app: App = None,
    config: File = None,
    url: Url = None,
    drain: Drain = False,
    json: JsonLog = False,
) -> None:
    """Work on the queues of a role, with exactly the settings that postroom.toml gives it.

    \b
    Examples:
      postroom worker --role fast
      postroom worker --role heavy --app shop.payouts:handlers
      postroom worker --role fast --drain      until nothing is ready
      postroom config show --role fast         what it will do

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
    from postroom.cli import logs
    from postroom.config import load

    arguments: dict[str, Any] = {"url": url} if url else {}
    loaded = load(config, **arguments)
    wanted, handlers = loaded.role(role), find_handlers(app or loaded.app)
    logs.begin(as_json=json)
    _work(loaded, wanted, handlers, drain)


def _work(config: Config, role: Role, handlers: Mapping[str, Any] | Handlers, drain: bool) -> None:
    from postroom.room import open as open_room
    from postroom.worker import Worker

    with open_room(config=config) as room:
        made = Worker.for_role(room, role, handlers)
        _note("started", "%s works: %s", made.name, _summary(role))
        try:
            made.run(drain=drain)
        except KeyboardInterrupt:
            _note("interrupted", "%s stopped at once", made.name)
            raise typer.Exit(INTERRUPTED) from None
        _note("stopped", "%s stopped", made.name)


def _note(event: str, text: str, *args: str) -> None:
    log.info(text, *args, extra={"event": f"worker.{event}", "worker": args[0]})


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
    except ModuleNotFoundError as error:
        raise ConfigError(f"app: {module} cannot be imported: {error}") from error
    try:
        for name in variable.split("."):
            found = getattr(found, name)
    except AttributeError as error:
        raise ConfigError(f"app: {error}") from None
    if not isinstance(found, Mapping | Handlers):
        raise ConfigError(f"app: {app} is neither a dict of handlers nor postroom.Handlers: {found!r:.80}")
    return found


def _summary(role: Role) -> str:
    shares = {queue: share.concurrency for queue, share in role.shares.items()}
    queues = (f"{queue} ({shares[queue]})" if shares.get(queue) else queue for queue in role.queues)
    return f"{role.concurrency} hands on {', '.join(queues)}"
