"""What many commands take, said once."""

from __future__ import annotations

from typing import Annotated

import typer


def queue_names(incomplete: str) -> list[str]:
    """For completion: the queues of the configured room. A shell that completes must never see an error."""
    from postroom.cli.store import opened

    try:
        with opened(None) as room:
            return [info.name for info in room.queues() if info.name.startswith(incomplete)]
    except Exception:  # whatever it is, there is nothing to complete with
        return []


def role_names(incomplete: str) -> list[str]:
    from postroom.config import load

    try:
        return [name for name in load().roles if name.startswith(incomplete)]
    except Exception:  # as above
        return []


Url = Annotated[
    str | None,
    typer.Option("--url", "-u", metavar="URL", help="The store; else as configured (postroom config show)."),
]
File = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE", help="The file to read; see postroom config show."),
]
LOOPBACK = "127.0.0.1"
MetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", metavar="PORT", help="Serve /metrics for Prometheus there.", max=65_535),
]
MetricsHost = Annotated[
    str, typer.Option("--metrics-host", metavar="ADDRESS", help="Where: else on this machine only.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="Its name.", autocompletion=queue_names)]
Queues = Annotated[
    list[str] | None,
    typer.Argument(metavar="[QUEUE]...", help="Their names; all without any.", autocompletion=queue_names),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The message's id: 32 hex digits.")]
Within = Annotated[
    str | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="NAME",
        help="The queue it is in; without it, all are asked.",
        autocompletion=queue_names,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would be done.")]
