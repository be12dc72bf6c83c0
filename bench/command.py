"""What `make bench`, `make race` and `make scaling` share: options, and how they tell what they do."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def some_of(names: dict[str, Any]) -> Callable[[str], list[str]]:
    """An option that takes several of these, with commas between them."""

    def parse(text: str) -> list[str]:
        chosen = [name.strip() for name in text.split(",") if name.strip()]
        if not chosen or not set(chosen) <= set(names):
            raise argparse.ArgumentTypeError(f"{text!r}: choose from {', '.join(names)}")
        return chosen

    return parse


def say(text: str) -> None:
    """What happens meanwhile, beside the result."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def add_options(parser: argparse.ArgumentParser, *, minutes: float, json: str) -> None:
    """What every command that goes in rounds takes."""
    take = parser.add_argument
    take("--rounds", type=int, default=3, metavar="N", help="rounds (default: 3)")
    take(
        "--minutes",
        type=float,
        default=minutes,
        metavar="N",
        help=f"no round begins after so long (default: {minutes:.0f})",
    )
    take("--quick", action="store_true", help="far less of everything")
    take("--dir", type=Path, default=Path("build"), help="make files below this folder (default: build)")
    take("--json", type=Path, default=Path(json), help=f"keep every value here (default: {json})")
    take("--resume", action="store_true", help="go on with the rounds that are in that file")
    take(
        "--publish",
        type=Path,
        nargs="?",
        const=Path(__file__).parents[1],
        metavar="DIR",
        help="write the tables and plots of the documentation; DIR: of a copy of it",
    )
