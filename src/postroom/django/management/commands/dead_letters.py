"""`manage.py dead_letters [NAME]`."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand

from postroom.deadletters import DeadLetter, DeadLetters, Filter
from postroom.django.store import opened


class Command(BaseCommand):
    """As `postroom dead ls`."""

    help = "List dead letters: of a queue, of a dead-letter name such as dlq_fast, or all."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("name", nargs="?", help="a queue or a dead-letter name")
        conditions = "a condition, such as class=timeout; all must hold"
        parser.add_argument("--where", action="append", default=[], metavar="NAME=VALUE", help=conditions)
        parser.add_argument("--limit", type=int, default=100)
        parser.add_argument("--json", action="store_true", help="one JSON object a line, with everything")

    def handle(self, *args: Any, **options: Any) -> None:
        with opened() as room:
            letters = DeadLetters(room, options["name"])
            found = letters.find(Filter.parse(options["where"]), limit=options["limit"])
            advice = letters.on_dead(letter.queue for letter in found.letters)
        for letter in found.letters:
            self.stdout.write(json.dumps(letter.as_dict()) if options["json"] else _line(letter))
        for queue, words in advice.items():
            self.stderr.write(f"{queue}: {words}")
        if found.cursor:
            self.stderr.write("there are more: raise --limit, or add a condition")


def _line(letter: DeadLetter) -> str:
    call = letter.call
    return (
        f"{call.task_id}  {letter.queue}  {call.task_name}  {letter.classification}  "
        f"retries={letter.retries}  {letter.failure.summary}"
    )
