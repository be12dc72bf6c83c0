"""`postroom celery worker`: Celery's own worker, with exactly the settings of a role."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli.options import LOOPBACK, File, MetricsHost, MetricsPort, Url, role_names

if TYPE_CHECKING:
    from postroom.config import Config

App = Annotated[
    str, typer.Option("--app", "-A", metavar="MODULE[:VARIABLE]", help="Where the Celery app is.")
]
RoleName = Annotated[
    str | None, typer.Option("--role", "-r", metavar="NAME", help="The role.", autocompletion=role_names)
]
JsonLog = Annotated[bool, typer.Option("--json", help="Log JSON, one object a line.")]


def register(app: typer.Typer) -> None:
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(worker)


def worker(
    context: typer.Context,
    application: App,
    role: RoleName = None,
    config: File = None,
    url: Url = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    json: JsonLog = False,
) -> None:
    """Start `celery worker` with exactly the settings of a role; further arguments are passed on.

    Its queues, the size of its pool, its prefetch, the order of its queues and how long a stop waits
    are the role's; what its tasks do is what postroom.celery.setup made of the matrix. An app that has
    not called it is set up here. An app without a broker works on the configured store.

    \b
    Examples:
      postroom celery worker --role heavy --app shop.tasks:app
      postroom celery worker --role fast --app shop --pool threads --loglevel INFO
      postroom celery worker --role fast --app shop --metrics-port 9464
      postroom config show --role heavy         what it will do
    """
    need_celery()
    from celery.bin.celery import celery as command

    # By the environment: the app reads it too, here and in the children of its pool.
    os.environ |= {
        name: value for name, value in (("POSTROOM_CONFIG", config), ("POSTROOM_URL", url)) if value
    }
    found = app_at(application)
    loaded = _matrix(found)
    if json:
        log_json()
    if metrics_port is not None:
        from postroom.celery.metrics import serve_metrics

        serve_metrics(found, metrics_port, metrics_host)
    given: list[str] = []
    if role is not None:
        from postroom.celery import staffing

        given = staffing.prepare(found, loaded.role(role))
    command.main(args=["-A", application, "worker", *given, *context.args], prog_name="celery")


def app_at(application: str, given_by: str = "--app") -> Any:
    """The Celery app in MODULE[:VARIABLE], as some argument named it. Raises InvalidInput."""
    from celery.app.utils import find_app

    from postroom.errors import InvalidInput

    try:
        return find_app(application)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{given_by}: there is no Celery app in {application!r} ({error})") from error


def log_json() -> None:
    """Have the worker of this process log one object a line."""
    from celery import signals

    from postroom.cli import logs

    # Who listens to this signal takes the place of Celery's own logging.
    signals.setup_logging.connect(lambda **_: logs.begin(as_json=True), weak=False)


def _matrix(app: Any) -> Config:
    """The matrix of an app, which is applied to it if it was not."""
    import postroom.celery

    config: Config = getattr(app, "postroom", None) or postroom.celery.setup(app)
    return config


def need_celery() -> None:
    """Raises MissingExtra, with what to install."""
    from postroom.errors import MissingExtra

    try:
        import celery  # noqa: F401  (only whether it is there)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"pip install 'postroom[celery]' ({error})") from error
