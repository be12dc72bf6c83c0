"""`postroom celery`: what an app on Celery needs beside Celery's own commands."""

from __future__ import annotations

import typer

from postroom.cli import celery_worker

app = typer.Typer(no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="celery", help="Run Celery workers by role.")


@app.callback()
def celery() -> None:
    """Run Celery workers on the configured store, by role."""


celery_worker.register(app)
