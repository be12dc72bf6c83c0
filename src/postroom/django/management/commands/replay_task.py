"""`manage.py replay_task ID [--queue NAME]`."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from postroom.deadletters import DeadLetters
from postroom.django.store import opened


class Command(BaseCommand):
    """As `postroom dead replay ID`."""

    help = "Replay a dead letter: by the id of its message, or the newest of a task."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("id", help="the id of a message or of a task")
        parser.add_argument("--queue", help="the queue to put it into; without it, its own")
        parser.add_argument("--again", action="store_true", help="although it was replayed before")

    def handle(self, *args: Any, **options: Any) -> None:
        with opened() as room:
            letters = DeadLetters(room)
            letter = letters.get(options["id"])
            result = letters.replay([letter.id], to=options["queue"], again=options["again"])
        if result.already:
            raise CommandError(f"{options['id']} was replayed before; --again does so once more")
        if not result.done:
            raise CommandError(result.stopped or "; ".join(refusal.reason for refusal in result.refusals))
        self.stdout.write(f"replayed {options['id']} as {result.last} in {options['queue'] or letter.queue}")
