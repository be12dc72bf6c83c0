"""`postroom demo`: the product at work on one machine, judged by a ledger of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def register(root: typer.Typer) -> None:
    # Not above: the processes of the demo live in this package too, and start faster without typer.
    from postroom.cli.demo.command import demo

    root.command()(demo)
