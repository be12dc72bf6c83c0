"""`postroom serve`: every verb of the room over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli import INTERRUPTED
from postroom.cli.options import File, Url
from postroom.errors import MissingExtra

if TYPE_CHECKING:
    from postroom.celery.events import EventsApp
    from postroom.config import Config

Host = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen; else as configured.")
]
Port = Annotated[
    int | None, typer.Option("--port", metavar="N", help="Exactly this one; else 8025 or the next free one.")
]
Certificate = Annotated[
    str | None, typer.Option("--tls-cert", metavar="FILE", help="Serve https with this certificate.")
]
Key = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its key, if in another file.")]
NoKeeper = Annotated[bool, typer.Option("--no-keeper", help="Be no candidate for the room's keeper.")]
ReadOnly = Annotated[
    bool | None,
    typer.Option("--read-only/--no-read-only", help="Let everybody look and nobody change."),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="Also answer under this name (repeatable)."),
]
Services = Annotated[
    list[str] | None,
    typer.Option(
        "--service", "-s", metavar="MODULE[:VARIABLE]",
        help="Also serve the archive of the service whose events app is there (repeatable).",
    ),
]  # fmt: skip
JsonLog = Annotated[bool, typer.Option("--json", help="Log JSON, one object a line.")]


def register(root: typer.Typer) -> None:
    root.command()(serve)


def serve(
    url: Url = None,
    host: Host = None,
    port: Port = None,
    tls_cert: Certificate = None,
    tls_key: Key = None,
    no_keeper: NoKeeper = False,
    read_only: ReadOnly = None,
    hosts: Hosts = None,
    services: Services = None,
    config: File = None,
    json: JsonLog = False,
) -> None:
    """Serve the room over HTTP until SIGTERM or Ctrl-C; prints its address first.

    Put, claim, settle, look and operate under /api/v1; what there is says /api/v1/schema/openapi.json.
    /healthz, /readyz and /metrics are for machines. It is a candidate for the room's keeper.

    \b
    Examples:
      postroom serve
      postroom serve --url redis://host/0 --port 8025
      postroom serve --service billing
      curl -X POST localhost:8025/api/v1/queues/emails/messages -d '{"body": 1}'

    Everybody needs a token as soon as there is one (postroom token create). Without any, it serves
    on loopback only, or --read-only. What no option says is in the table [http] of postroom.toml.

    \b
    SIGTERM or Ctrl-C: clients that wait for messages are answered at once, other
    requests have 10 s to end. Ctrl-C after that: at once, but for what a job is
    just doing; a third waits for nothing.
    Exit codes: 0 stopped gracefully, 130 at once.
    """
    installed()
    from postroom.cli import logs
    from postroom.config import load

    given: dict[str, Any] = {
        "url": url, "http_host": host, "http_port": port, "http_tls_cert": tls_cert, "http_tls_key": tls_key,
        "http_read_only": read_only, "http_allow_hosts": hosts, "http_services": services,
    }  # fmt: skip
    loaded = load(config, **{name: value for name, value in given.items() if value is not None})
    logs.begin(as_json=json)
    _serve(loaded, keeper=not no_keeper)


def _serve(config: Config, *, keeper: bool) -> None:
    from postroom.http import server
    from postroom.http.auth import Access
    from postroom.http.security import pace_for, secured
    from postroom.room import open as open_room

    http, required = config.http, config.http.auth == "required"
    tls = server.Tls(http.tls_cert, http.tls_key) if http.tls_cert else None
    services = [_service(each) for each in http.services or ()]
    with server.listen(http.host, http.port) as bound, open_room(config=config) as room:
        access = Access.decide(room.engine, http.host, read_only=http.read_only, required=required)
        pace = pace_for(access, http.rate)
        options: dict[str, Any] = {"keeper": keeper, "services": services}
        app = secured(room, access, hosts=http.allow_hosts or (), pace=pace, **options)
        running = server.Server(app, tls, on_stop=app.state.hub.dismiss)
        print(f"Postroom serves {server.address(bound, tls)}", flush=True)
        running.run(sockets=[bound])
    if running.force_exit:
        raise typer.Exit(INTERRUPTED)


def _service(where: str) -> EventsApp:
    """The service whose events app is there, with all of its handlers. No broker is asked yet."""
    from postroom.cli.events import events_app_at

    found = events_app_at(where)
    found.loader.import_default_modules()
    return found


def installed() -> None:
    """Raises MissingExtra without what serving needs."""
    try:
        import litestar  # noqa: F401 — only whether it is there
        import uvicorn  # noqa: F401 — the same
    except ModuleNotFoundError as error:
        raise MissingExtra(f"pip install 'postroom[http]' ({error})") from error
