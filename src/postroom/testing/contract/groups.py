"""groups: dead letters that failed alike, counted by the steps that bury and remove them."""

from __future__ import annotations

import pytest

from postroom.errors import InvalidInput
from postroom.logs import Group
from postroom.model import Action, Failure, State, Verb
from postroom.testing.contract.base import BOOM, ContractBase


class GroupsContract(ContractBase):
    """What `groups` says is what `find` would find."""

    def groups(self, **page: object) -> list[Group]:
        return self.engine.groups(self.queue, **page)  # type: ignore[arg-type]  # a page has after and limit

    def die(self, fingerprint: str) -> str:
        """A dead letter of this group."""
        return self.put(failure=Failure(type="Any", fingerprint=fingerprint))

    def test_an_unknown_queue_has_no_groups(self) -> None:
        assert self.groups() == []

    def test_a_queue_without_dead_letters_has_no_groups(self) -> None:
        self.put()
        assert self.groups() == []

    def test_a_group_has_its_count_its_times_and_the_newest_letter(self) -> None:
        first = self.clock()
        self.put_dead(kind="a")
        self.clock.advance("1s")
        self.put_dead(kind="a")
        self.clock.advance("1s")
        newest = self.put_dead(kind="a")
        (group,) = self.groups()
        failure = self.entry(newest).failure
        assert failure is not None
        assert group == Group(failure.fingerprint, 3, first, self.clock(), newest)

    def test_of_one_moment_the_highest_id_is_the_newest(self) -> None:
        ids = [self.die("a") for _ in range(3)]
        assert self.groups()[0].sample == max(ids)

    def test_letters_that_failed_otherwise_are_another_group(self) -> None:
        self.put_dead(kind="a")
        self.put_dead(kind="b")
        delivery = self.put_and_take(kind="a")
        self.bury(delivery, Failure(type="KeyError", text="boom"))
        assert [group.count for group in self.groups()] == [1, 1, 1]

    def test_every_way_to_die_leads_into_a_group(self) -> None:
        self.declare(max_attempts=1, ack_timeout="30s")
        self.put_dead()
        self.retry(self.put_and_take(), failure=Failure(type="Last"))
        self.put(failure=Failure(type="OnArrival"))
        self.put(ttl=1_000)
        self.clock.advance("2s")
        self.engine.sweep(self.queue)
        self.put_and_take()
        self.run_out("31s")
        assert self.stats.dead == 5
        assert [group.count for group in self.groups()] == [1] * 5

    def test_a_letter_that_is_discarded_leaves_its_group(self) -> None:
        ids = []
        for _ in range(3):
            ids.append(self.die("a"))
            self.clock.advance("1s")
        start = self.clock()
        self.move(ids[0], Action.DISCARD)
        self.move(ids[2], Action.DISCARD)
        assert self.groups() == [Group("a", 1, start - 2_000, start - 2_000, ids[1])]

    def test_a_group_goes_with_its_last_letter(self) -> None:
        id = self.die("a")
        self.move(id, Action.DISCARD)
        assert self.groups() == []

    @pytest.mark.parametrize("settings", [{"dead_limit": 1}, {"dead_retention": "1s"}])
    def test_a_letter_that_is_evicted_leaves_its_group(self, settings: dict[str, object]) -> None:
        self.declare(**settings)
        self.die("a")
        self.clock.advance("2s")
        young = self.die("a")
        self.engine.sweep(self.queue)
        assert self.groups() == [Group("a", 1, self.clock(), self.clock(), young)]

    def test_a_replay_leaves_the_letter_in_its_group(self) -> None:
        id = self.die("a")
        assert self.move(id, Action.REPLAY).ok
        assert [group.count for group in self.groups()] == [1]

    def test_a_purge_leaves_the_groups(self) -> None:
        self.die("a")
        self.put()
        self.engine.purge(self.queue)
        assert [group.count for group in self.groups()] == [1]

    def test_a_dropped_queue_has_no_groups_when_it_is_made_again(self) -> None:
        self.die("a")
        self.engine.drop(self.queue, force=True)
        self.put()
        assert self.groups() == []

    def test_groups_come_by_fingerprint_and_in_pages(self) -> None:
        for name in ("b", "a", "ab", "ä", "c", "a!"):
            self.die(name)
        names = [group.fingerprint for group in self.groups()]
        assert names == ["a", "a!", "ab", "b", "c", "ä"]
        assert [group.fingerprint for group in self.groups(limit=2)] == ["a", "a!"]
        assert [group.fingerprint for group in self.groups(after="a!", limit=3)] == ["ab", "b", "c"]
        assert [group.fingerprint for group in self.groups(after="aa")] == ["ab", "b", "c", "ä"]
        assert self.groups(after="ä") == []

    def test_a_group_is_paged_by_death_whatever_its_name(self) -> None:
        names = ("a", "a!", "b")
        ids: dict[str, list[str]] = {name: [] for name in names}
        for _ in range(5):
            for name in names:
                ids[name].append(self.die(name))
            self.clock.advance("1s")
        for name in names:
            assert self.found(State.DEAD, limit=2, group=name) == ids[name]

    def test_a_group_is_narrowed_by_correlation_id(self) -> None:
        failure = Failure(type="Any", fingerprint="a")
        wanted = self.put(failure=failure, correlation_id="task-1")
        self.put(failure=failure, correlation_id="task-2")
        assert self.found(State.DEAD, group="a", correlation_id="task-1") == [wanted]

    @pytest.mark.parametrize(
        ("given", "kept"), [("x\0y" + "z" * 100, "xy" + "z" * 61), ("☃" * 64, "☃" * 21), ("\ud800", "?")]
    )
    def test_a_fingerprint_is_cut_and_cleaned_alike(self, given: str, kept: str) -> None:
        id = self.die(given)
        (group,) = self.groups()
        assert group.fingerprint == kept
        assert self.found(State.DEAD, group=kept) == [id]
        self.move(id, Action.DISCARD)
        assert self.groups() == []

    def test_many_letters_are_counted(self) -> None:
        for _ in range(3):
            self.engine.put(self.queue, [self.message(failure=BOOM) for _ in range(1_000)])
        (group,) = self.groups()
        assert group.count == 3_000 == self.stats.dead

    def test_what_kills_again_is_in_the_group_again(self) -> None:
        id = self.put_dead()
        self.move(id, Action.REPLAY)
        self.settle(self.take(), Verb.BURY, failure=BOOM)
        assert [group.count for group in self.groups()] == [2]

    @pytest.mark.parametrize("page", [{"limit": 0}, {"limit": 1_001}, {"after": 7}, {"after": "\ud800"}])
    def test_a_page_of_groups_that_makes_no_sense_is_refused(self, page: dict[str, object]) -> None:
        with pytest.raises(InvalidInput):
            self.groups(**page)
