"""`postroom sla`: what the queues promise about waiting, and what they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli import UNHEALTHY, output, progress
from postroom.cli.options import Json, Url

if TYPE_CHECKING:
    from postroom.telemetry import Sla


def register(root: typer.Typer) -> None:
    root.command()(sla)


def sla(
    url: Url = None,
    over: Annotated[str, typer.Option(metavar="SPAN", help="The last so long, at most 1h.")] = "1h",
    json: Json = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 6 if a promise is not kept.")] = False,
) -> None:
    """How long first attempts wait in every queue, against its sla_p95.

    Measured by the workers that run with telemetry = true, and kept in the store: nothing else is needed.

    \b
    Examples:
      postroom sla
      postroom sla --over 10m --json
      postroom sla --check || page-somebody
    """
    from postroom.cli.store import opened

    with opened(url) as room, progress.patience("looking for"):
        found = room.sla(over)
    if json:
        output.as_json([_document(each) for each in found])
    else:
        columns = ("queue", "promised", "p95", "p50", "within", "measured", "verdict")
        output.table(columns, [_row(each) for each in found])
    if check and any(each.met is False for each in found):
        raise SystemExit(UNHEALTHY)


def _row(sla: Sla) -> tuple[str, ...]:
    within = "-" if sla.within is None else f"{100 * sla.within:.1f}%"
    spans = (_span(sla.target), _span(sla.p95), _span(sla.p50))
    return sla.queue, *spans, within, f"{sla.count:,}", _VERDICTS[sla.met]


_VERDICTS = {True: "kept", False: "MISSED", None: "-"}


def _span(span: int | None) -> str:
    return "-" if span is None else f"{span / 1_000:g}s"


def _document(sla: Sla) -> dict[str, Any]:
    import msgspec

    return {**msgspec.to_builtins(sla), "met": sla.met}
