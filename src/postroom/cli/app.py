"""The command `postroom` itself: what every noun has in common."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from postroom.cli import complain
from postroom.errors import InvalidInput
from postroom.version import __version__

#: The modules beside this one that bring commands, in the order of the help. Each has
#: `register(app)`, and imports what it needs inside its commands, so that `--help` stays fast.
COMMANDS = (
    "queue", "message", "worker", "keeper", "dead", "schedule", "breaker", "mark", "celery", "events",
    "serve", "top", "sla", "event", "audit", "token", "doctor", "bench", "config", "completion", "demo",
)  # fmt: skip

app: typer.Typer = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: the same on a terminal and in a pipe, and three times as fast
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"postroom {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The delivery layer for Python jobs: on time, in order of urgency, at least once.

    Commands are noun and verb. Data goes to stdout, talk to stderr.

    \b
    Examples:
      postroom demo                          see it work, without any service
      postroom worker --role fast            work on the queues of a role
      postroom celery worker --role fast --app shop     the same by Celery
      postroom queue ls                      how every queue stands
      postroom message put emails '{"to": 1}'
      postroom dead groups                   what failed alike, and how often
      postroom top                           watch all queues
      postroom doctor                        what is wrong, and what to do
      postroom config show                   every setting, and where it comes from
      postroom config show --json | jq .     the same for programs
      postroom config check && deploy        stop when postroom.toml is wrong
      postroom breaker ls                    what is not called at present, and why
      postroom celery migrate --from redis://localhost/0 --dry-run

    \b
    Completion of words in your shell: postroom completion --help
    Settings: defaults < postroom.toml < POSTROOM_* variables < arguments.
    Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 conflict or lease lost,
      5 store unreachable, 6 unhealthy.
    """


for _module in COMMANDS:
    import_module(f"postroom.cli.{_module}").register(app)


#: What typer raises for wrong usage of whichever kind, and does not export.
_USAGE: Any = typer.BadParameter.__bases__


def run() -> int:
    """Run the command that the arguments name; returns its exit code. Wrong usage is one line, too."""
    try:
        return int(app(prog_name="postroom", standalone_mode=False) or 0)
    except typer.Abort:
        sys.stderr.write("Aborted!\n")
        return 1
    except _USAGE as error:
        return _explain(error)


def _explain(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # a noun alone: its help is what was asked for
        error.show()
        return int(error.exit_code)
    where = error.ctx.command_path if error.ctx else "postroom"
    return complain(InvalidInput(error.format_message()), f"usage: {where} -h")
