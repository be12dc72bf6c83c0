"""publish and read: every subscriber reads everything from its own cursor."""

from __future__ import annotations

import pytest

from postroom.errors import InvalidInput
from postroom.limits import MAX_TOPIC, MAX_TOPIC_ENTRY, TOPIC_LIMIT
from postroom.logs import TopicPage
from postroom.testing.contract.base import ContractBase


class TopicContract(ContractBase):
    """A topic is a log that everybody reads at their own pace."""

    @property
    def topic(self) -> str:
        return self.queue + "-topic"

    def publish(self, *entries: bytes) -> None:
        self.engine.publish(self.topic, entries)

    def read(self, after: str | None, limit: int = 100) -> TopicPage:
        return self.engine.read(self.topic, after=after, limit=limit)

    def data(self, after: str | None, limit: int = 100) -> list[bytes]:
        return [entry.data for entry in self.read(after, limit).entries]

    def test_topics_are_listed_by_name_behind_another(self) -> None:
        names = [f"{self.topic}{end}" for end in ("", "-ä", "-b", "-c")]
        assert not set(names) & set(self.engine.topics(limit=1_000))
        for name in names:
            self.engine.publish(name, [b"x"])
        in_order = sorted(names)
        before = self.topic[:-1]
        assert self.engine.topics(after=before, limit=3) == in_order[:3]
        assert self.engine.topics(after=in_order[2], limit=1) == in_order[3:]
        assert set(in_order) <= set(self.engine.topics(limit=1_000))
        assert all(name > in_order[-1] for name in self.engine.topics(after=in_order[-1]))

    def test_a_topic_that_was_only_read_is_not_listed(self) -> None:
        self.read(None)
        self.engine.publish(self.topic, [])
        assert self.topic not in self.engine.topics(limit=1_000)

    @pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 1_001}, {"after": 1}])
    def test_a_list_of_topics_is_bounded(self, wrong: dict[str, int]) -> None:
        with pytest.raises(InvalidInput):
            self.engine.topics(**wrong)  # type: ignore[arg-type]  # a slip of a caller

    def test_a_topic_is_read_from_now_on(self) -> None:
        self.publish(b"before")
        page = self.read(None)
        assert page.entries == []
        self.publish(b"after")
        assert self.data(page.cursor) == [b"after"]

    def test_a_topic_is_read_from_the_oldest(self) -> None:
        self.publish(b"a", b"b")
        self.publish(b"c")
        assert self.data("") == [b"a", b"b", b"c"]

    def test_a_topic_is_read_from_now_on_before_anything_was_published(self) -> None:
        cursor = self.read(None).cursor
        self.publish(b"first")
        assert self.data(cursor) == [b"first"]

    def test_a_topic_cursor_goes_on_where_it_was(self) -> None:
        self.publish(b"a", b"b", b"c")
        page = self.read("", limit=2)
        assert [entry.data for entry in page.entries] == [b"a", b"b"]
        assert self.data(page.cursor) == [b"c"]

    def test_a_topic_cursor_at_the_end_stays_there(self) -> None:
        self.publish(b"a")
        page = self.read("")
        again = self.read(page.cursor)
        assert again.entries == []
        self.publish(b"b")
        assert self.data(again.cursor) == [b"b"]

    def test_two_readers_of_a_topic_read_everything(self) -> None:
        fast, slow = self.read(None).cursor, self.read(None).cursor
        for number in range(4):
            self.publish(bytes([number]))
            page = self.read(fast)
            assert [entry.data for entry in page.entries] == [bytes([number])]
            fast = page.cursor
        assert self.data(slow) == [bytes([number]) for number in range(4)]

    def test_topic_entries_have_an_id_of_their_own_and_the_engines_time(self) -> None:
        self.publish(b"a")
        self.clock.advance("1s")
        self.publish(b"b", b"b")
        entries = self.read("").entries
        assert len({entry.id for entry in entries}) == 3
        assert [entry.at for entry in entries] == [self.clock() - 1_000, self.clock(), self.clock()]

    def test_a_topic_gives_any_bytes_back(self) -> None:
        self.publish(b"", bytes(range(256)))
        assert self.data("") == [b"", bytes(range(256))]

    def test_topics_do_not_meet(self) -> None:
        self.publish(b"a")
        assert self.engine.read(self.topic + "-other", after="").entries == []

    def test_a_reader_that_fell_behind_is_told_how_much_it_missed(self) -> None:
        cursor = self.read(None).cursor
        total = TOPIC_LIMIT + 1_500
        for start in range(0, total, 500):
            self.publish(*(str(number).encode() for number in range(start, start + 500)))
        page = self.read(cursor, limit=10)
        assert 0 < page.missed <= 1_500
        assert page.entries[0].data == str(page.missed).encode()
        assert self.read(page.cursor, limit=10).missed == 0

    def test_a_topic_keeps_as_many_as_the_last_publish_says(self) -> None:
        cursor = self.read(None).cursor
        self.publish(*(bytes([number]) for number in range(8)))
        self.engine.publish(self.topic, [b"x", b"y"], keep=3)
        page = self.read(cursor)
        assert ([entry.data for entry in page.entries], page.missed) == ([b"\x07", b"x", b"y"], 7)
        self.engine.publish(self.topic, [b"a", b"b", b"c"], keep=1)
        assert self.data("") == [b"c"]
        self.publish(b"d", b"e")
        assert self.data("") == [b"c", b"d", b"e"]

    def test_a_topic_can_keep_more_than_usual(self) -> None:
        total = TOPIC_LIMIT + 1_000
        for _ in range(total // 1_000):
            self.engine.publish(self.topic, [b""] * 1_000, keep=MAX_TOPIC)
        seen, cursor = 0, ""
        while page := self.read(cursor, limit=1_000):
            if not page.entries:
                break
            seen, cursor = seen + len(page.entries), page.cursor
        assert seen == total

    @pytest.mark.parametrize("keep", [0, -1, MAX_TOPIC + 1])
    def test_a_topic_keeps_within_bounds(self, keep: int) -> None:
        with pytest.raises(InvalidInput):
            self.engine.publish(self.topic, [b"x"], keep=keep)

    def test_a_topic_keeps_an_entry_for_a_day(self) -> None:
        cursor = self.read(None).cursor
        self.publish(b"old", b"old")
        self.clock.advance("12h")
        self.publish(b"young")
        self.clock.advance("12h")
        self.publish(b"new")
        page = self.read(cursor)
        assert ([entry.data for entry in page.entries], page.missed) == ([b"young", b"new"], 2)

    def test_a_reader_from_the_oldest_missed_nothing(self) -> None:
        for _ in range(TOPIC_LIMIT // 1_000 + 2):
            self.publish(*[b""] * 1_000)
        assert self.read("", limit=1).missed == 0

    def test_an_entry_that_is_too_large_is_refused(self) -> None:
        with pytest.raises(InvalidInput):
            self.engine.publish(self.topic, [b"x" * (MAX_TOPIC_ENTRY + 1)])

    def test_the_audit_is_kept_for_a_year(self) -> None:
        cursor = self.engine.read("audit").cursor
        self.engine.publish("audit", [b"old"])
        self.clock.advance("300d")
        self.engine.publish("audit", [b"young"])
        self.clock.advance("65d")
        self.engine.publish("audit", [b"new"])
        page = self.engine.read("audit", after=cursor)
        assert ([entry.data for entry in page.entries], page.missed) == ([b"young", b"new"], 1)

    def test_an_entry_that_is_too_old_goes_with_the_next_one(self) -> None:
        self.engine.publish(self.topic, [b"old"])
        self.clock.advance("24h")
        self.engine.publish(self.topic, [b"new"])
        assert [entry.data for entry in self.engine.read(self.topic, after="").entries] == [b"new"]
