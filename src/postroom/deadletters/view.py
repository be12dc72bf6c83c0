"""Dead letters under one name: those of a queue, of all queues that share a dead-letter name, or of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from postroom import audit
from postroom.deadletters import groups as grouping
from postroom.deadletters import incidents, transfer
from postroom.deadletters.bulk import Choice, Chosen, Discard, OnProgress, OnStep, Place, Result, run
from postroom.deadletters.canary import Canary
from postroom.deadletters.filter import Filter, Seen
from postroom.deadletters.finding import Found, Scan, find
from postroom.deadletters.groups import Groups
from postroom.deadletters.incidents import Incident
from postroom.deadletters.letter import DeadLetter
from postroom.deadletters.replay import Edit, Replay
from postroom.deadletters.transfer import Imported
from postroom.duration import Duration
from postroom.engine import QueueInfo
from postroom.errors import InvalidInput, NotFound
from postroom.limits import check_between
from postroom.model import Accepted, NewMessage
from postroom.policy import Rate
from postroom.room import Room

_EVERYTHING = Filter()
#: So many names that one may have meant are told.
_MOST_NAMED = 10


class DeadLetters:
    """A view: `DeadLetters(room, "dlq_fast")` are the dead letters of every queue whose policy names it.

    The name of a queue means that queue, and no name all of them, or all of `queues`. Nothing moves
    between queues.
    """

    #: Whether a letter that is replayed stays, marked; else it is gone.
    replayed_stay: bool = True

    def __init__(self, room: Room, name: str | None = None, *, queues: Sequence[str] | None = None) -> None:
        self.room = room
        self.name = name
        self._among = queues

    @property
    def queues(self) -> list[str]:
        """The queues that are meant, as things are now. Raises NotFound for a name that means none."""
        return [info.name for info in self._meant()]

    def _meant(self) -> list[QueueInfo]:
        infos = self.room.engine.queues(self._among)
        if self.name is None:
            return infos
        meant = [info for info in infos if self.name in (info.name, info.policy.dead_letter)]
        if not meant:
            raise NotFound(f"{self.name!r} is neither a queue nor a dead-letter name; {_there_are(infos)}")
        return meant

    # --- looking ----------------------------------------------------------------------------

    def find(
        self,
        filter: Filter = _EVERYTHING,
        *,
        limit: int = 100,
        cursor: str | None = None,
        as_seen: Seen | None = None,
        **bounds: Any,
    ) -> Found:
        """Letters that match, oldest first within each queue, at most `limit`.

        Looks at 100,000 letters (`max_rows`) and for 5 s (`max_seconds`) at most, and says so.
        With `as_seen`, conditions look at what it makes of errors and payloads.
        """
        check_between("limit", limit, 1, 100_000)
        scan = Scan(self.room.engine, self.queues, self._exact(filter), as_seen)
        return find(scan, cursor, limit, **bounds)

    def get(self, id: str) -> DeadLetter:
        """The letter of this message id, or the newest of this task or correlation id. Raises NotFound."""
        found = self.find(Filter(task=id)).letters
        exact = [letter for letter in found if letter.id == id]
        if not found:
            raise NotFound(f"there is no dead letter {id}{f' in {self.name}' if self.name else ''}")
        return exact[0] if exact else max(found, key=lambda letter: letter.died_at)

    def groups(self, limit: int = 100) -> Groups:
        """Letters that failed alike, the largest groups first, with what people noted about them."""
        check_between("limit", limit, 1, grouping.MOST)
        return grouping.gather(self.room.engine, self.queues, limit)

    def evicted(self) -> int:
        """How many letters retention has taken, since the queues came into being."""
        return sum(self.room.engine.stats(queue).counters["evicted"] for queue in self.queues)

    def on_dead(self, queues: Iterable[str] | None = None) -> dict[str, str]:
        """What an operator should do about a letter, by queue: in the words of the policies that say so.

        With `queues`, of no others: those whose letters somebody looks at.
        """
        wanted = None if queues is None else set(queues)
        meant = (info for info in self._meant() if wanted is None or info.name in wanted)
        return {info.name: info.policy.on_dead for info in meant if info.policy.on_dead}

    # --- incidents --------------------------------------------------------------------------

    def note(self, group: str, text: str = "", **changes: str | None) -> Incident:
        """Note what is known about a group: `status`, `bucket`, `cause`, `fix`, `link`, or only a text.

        Raises NotFound when there is no such group and nothing is known about it.
        """
        engine = self.room.engine
        name = self.group_name(group)
        last = grouping.newest(engine, [info.name for info in self.room.queues()], name)
        known = incidents.get(engine, name)
        if last is None and known is None:
            raise NotFound(f"there is no group {group}")
        return incidents.note(engine, name, last or (known.seen if known else 0), text, **changes)

    def incident(self, group: str) -> Incident | None:
        """What is known about a group, reopened if a letter has died since its resolution."""
        name = self.group_name(group)
        known = incidents.get(self.room.engine, name)
        if known is None:
            return None
        return known.beside(grouping.newest(self.room.engine, self.queues, name) or 0)

    def incidents(self) -> list[Incident]:
        """The incident log: everything that is known about any group, at most 1,000 of them."""
        engine = self.room.engine
        lasts: dict[str, int] = {}
        for group in (each for queue in self.queues for each in grouping.pages(engine, queue)):
            lasts[group.fingerprint] = max(group.last, lasts.get(group.fingerprint, 0))
        return [known.beside(lasts.get(known.group, 0)) for known in incidents.every(engine, limit=1_000)]

    def group_name(self, name: str) -> str:
        """The group that begins like this; a name that fits none, or only itself, stays."""
        found = {
            group.fingerprint for queue in self.queues for group in grouping.pages(self.room.engine, queue)
        }
        if name in found:
            return name
        fitting = sorted(group for group in found if name and group.startswith(name))
        if len(fitting) > 1:
            raise InvalidInput(f"group {name}: {len(fitting)} groups begin like this, such as {fitting[0]}")
        return fitting[0] if fitting else name

    def _exact(self, filter: Filter) -> Filter:
        return filter if filter.group is None else filter.with_group(self.group_name(filter.group))

    # --- replay and discard -----------------------------------------------------------------

    def replay(
        self,
        chosen: Chosen,
        *,
        to: str | None = None,
        edit: Edit | None = None,
        rate: str | None = None,
        canary: bool = False,
        canary_timeout: Duration = "1m",
        again: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        until: int | None = None,
        check: Callable[[], object] | None = None,
        on_step: OnStep | None = None,
        place: Place | None = None,
    ) -> Result:
        """Put letters again, chosen by a filter or by their ids; see `Replay` for the options.

        Letters that die meanwhile are not meant, or those that died after the instant `until`. It ends
        early, saying why (`stopped`), when a queue is full or the canary did not succeed; the same call
        again goes on where it ended. Whoever keeps what `on_step` is told before each step can go on from
        that `place` after a crash, and the result counts everything once.
        """
        engine = self.room.engine
        choice = self._choice(chosen, until, place)
        if to is not None:
            self._check_target(to)
        work = Replay(
            engine,
            to=to,
            edit=edit,
            again=again,
            rate=None if rate is None else Rate.parse(rate),
            canary=Canary(engine, canary_timeout) if canary else None,
            check=check,
            schemas=self.room.config.schemas,
        )
        return run(engine, self.name or "", choice, work, dry_run, on_progress, on_step)

    def _check_target(self, to: str) -> None:
        """A queue that exists or is configured: a name that is only mistyped would swallow everything."""
        if not self.room.engine.queues([to]) and to not in self.room.config.declared:
            raise NotFound(f"there is no queue {to!r} to replay into")
        self.room.policy(to)

    def discard(
        self,
        chosen: Chosen,
        *,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        until: int | None = None,
        on_step: OnStep | None = None,
        place: Place | None = None,
    ) -> Result:
        """Let go of letters, chosen by a filter or by their ids; with `until`, of no later ones.

        For `on_step` and `place` see `replay`.
        """
        engine, choice = self.room.engine, self._choice(chosen, until, place)
        return run(engine, self.name or "", choice, Discard(engine), dry_run, on_progress, on_step)

    def _choice(self, chosen: Chosen, until: int | None = None, place: Place | None = None) -> Choice:
        if isinstance(chosen, str) or not isinstance(chosen, Filter | Sequence):
            raise InvalidInput("choose by a Filter, or by a list of ids")
        exact = self._exact(chosen) if isinstance(chosen, Filter) else chosen
        return Choice(self.room.engine, self.queues, exact, until, place, replayed_stay=self.replayed_stay)

    # --- files ------------------------------------------------------------------------------

    def export(
        self,
        write: Callable[[bytes], object],
        filter: Filter = _EVERYTHING,
        on_progress: Callable[[int], object] | None = None,
    ) -> int:
        """Write a line of JSON for each letter that matches, such as with `file.write`; how many."""
        return transfer.export(self._choice(filter).batches(), write, on_progress)

    def pages(self, filter: Filter = _EVERYTHING) -> Iterator[bytes]:
        """The same page by page, for whoever asks for the next one when the last one is gone."""
        return map(transfer.lines_of, self._choice(filter).batches())

    def bring_in(
        self,
        lines: Iterable[bytes],
        *,
        to: str | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], object] | None = None,
        first: int = 1,
    ) -> Imported:
        """Make dead letters of exported lines, in their own queues or in one; those that are here stay.

        Their groups and their history are the same; when they died is now, and retention counts from
        then. Raises InvalidInput for a line that is no letter; those before it may be here by then. A
        dry run only reads. `first` is the number of the first line, for who brings a file in portions.
        """

        def put(queue: str, messages: list[NewMessage]) -> Accepted:
            if dry_run:
                return Accepted([], None)
            self.room.policy(queue)
            return self.room.engine.put(queue, messages)

        imported = transfer.bring_in(lines, put, to, on_progress, first)
        if not dry_run:
            audit.note(self.room.engine, "import", to or "", imported.created, read=imported.read)
        return imported


def _there_are(infos: list[QueueInfo]) -> str:
    """The names to choose from, quoted: "dead" is one that reads like a word of the sentence."""
    if not infos:
        return "there are no queues yet"
    queues = _listed([info.name for info in infos])
    return (
        f"there are the queues {queues} and the names {_listed([info.policy.dead_letter for info in infos])}"
    )


def _listed(names: Iterable[str]) -> str:
    found = sorted(set(names))
    more = f" and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(map(repr, found[:_MOST_NAMED])) + more
