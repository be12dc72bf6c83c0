"""records: small versioned values with a time to live and compare-and-set."""

from __future__ import annotations

import threading

import pytest

from postroom.errors import InvalidInput
from postroom.limits import MAX_BATCH, MAX_RECORD
from postroom.policy import Rate
from postroom.records import Records
from postroom.testing.contract.base import SECOND, ContractBase


class RecordsContract(ContractBase):
    """A version is never used twice, so compare-and-set is safe even after a delete or an expiry."""

    @property
    def records(self) -> Records:
        return self.engine.records

    def write(self, key: str = "key", value: bytes = b"value", **fields: int) -> int:
        version = self.records.put("kind", key, value, **fields)
        assert version is not None, "the write was refused"
        return version

    def keys(self, after: str = "", limit: int = 100) -> list[str]:
        return [record.key for record in self.records.list("kind", after=after, limit=limit)]

    def test_a_record_that_was_put_is_there(self) -> None:
        version = self.write(value=b"\0\xff")
        assert self.records.get("kind", "key") == ("key", b"\0\xff", version, None)

    def test_a_record_that_was_never_put_is_not(self) -> None:
        assert self.records.get("kind", "key") is None

    def test_an_empty_key_is_that_of_no_record(self) -> None:
        self.write()
        assert self.records.get("kind", "") is None
        assert not self.records.delete("kind", "")

    def test_every_write_of_a_record_has_a_higher_version(self) -> None:
        versions = [self.write() for _ in range(5)]
        assert versions == sorted(set(versions))
        assert versions[0] > 0

    def test_a_version_is_not_used_again_after_a_delete(self) -> None:
        before = self.write()
        self.records.delete("kind", "key")
        assert self.write() > before

    def test_a_version_is_not_used_again_after_an_expiry(self) -> None:
        before = self.write(ttl=SECOND)
        self.clock.advance("2s")
        assert self.write() > before

    def test_a_write_that_expects_the_present_version_succeeds(self) -> None:
        version = self.write()
        assert self.records.put("kind", "key", b"new", expect=version)

    def test_a_write_that_expects_another_version_changes_nothing(self) -> None:
        old, present = self.write(), self.write(value=b"present")
        assert self.records.put("kind", "key", b"new", expect=old) is None
        assert self.records.get("kind", "key") == ("key", b"present", present, None)

    def test_a_write_that_expects_a_version_of_nothing_changes_nothing(self) -> None:
        assert self.records.put("kind", "key", b"new", expect=7) is None
        assert self.records.get("kind", "key") is None

    def test_a_write_that_expects_nothing_needs_nothing_there(self) -> None:
        assert self.records.put("kind", "key", b"first", expect=0)
        assert self.records.put("kind", "key", b"second", expect=0) is None

    def test_an_expired_record_is_nothing(self) -> None:
        self.write(ttl=SECOND)
        self.clock.advance("1001ms")
        assert self.records.put("kind", "key", b"new", expect=0)

    def test_the_version_of_an_expired_record_fits_no_more(self) -> None:
        version = self.write(ttl=SECOND)
        self.clock.advance("1001ms")
        assert self.records.put("kind", "key", b"new", expect=version) is None

    def test_a_record_lives_as_long_as_the_engines_clock_says(self) -> None:
        self.write(ttl=SECOND)
        self.clock.advance("999ms")
        record = self.records.get("kind", "key")
        assert record is not None
        assert record.expires == self.clock() + 1
        self.clock.advance("2ms")
        assert self.records.get("kind", "key") is None

    def test_a_write_sets_the_time_to_live_anew(self) -> None:
        self.write(ttl=SECOND)
        self.write()
        self.clock.advance("1h")
        assert self.records.get("kind", "key") is not None

    def test_delete_says_whether_there_was_something(self) -> None:
        self.write()
        assert self.records.delete("kind", "key")
        assert not self.records.delete("kind", "key")

    def test_delete_of_an_expired_record_finds_nothing(self) -> None:
        self.write(ttl=SECOND)
        self.clock.advance("2s")
        assert not self.records.delete("kind", "key")

    def test_delete_that_expects_another_version_changes_nothing(self) -> None:
        old, present = self.write(), self.write()
        assert not self.records.delete("kind", "key", expect=old)
        assert self.records.delete("kind", "key", expect=present)

    def test_a_list_of_records_is_by_key(self) -> None:
        for key in ("b", "ä", "a", "c", "B"):
            self.write(key)
        assert self.keys() == ["B", "a", "b", "c", "ä"]

    def test_a_list_of_records_begins_behind_a_key_and_ends_at_its_limit(self) -> None:
        for key in "abcdef":
            self.write(key)
        assert self.keys(limit=2) == ["a", "b"]
        assert self.keys(after="b", limit=3) == ["c", "d", "e"]
        assert self.keys(after="bb") == ["c", "d", "e", "f"]
        assert self.keys(after="f") == []

    def test_a_list_of_records_leaves_out_what_expired(self) -> None:
        for key in "abc":
            self.write(key, ttl=SECOND)
        self.write("d")
        self.clock.advance("2s")
        assert self.keys(limit=1) == ["d"]

    def test_kinds_of_records_do_not_meet(self) -> None:
        self.write()
        assert self.records.get("other", "key") is None
        assert self.records.list("other") == []

    @pytest.mark.parametrize("key", ["{a}\0b", "user:4/ä ☃\n", "x" * 1_000])
    def test_a_record_key_is_any_text_up_to_a_thousand_bytes(self, key: str) -> None:
        self.write(key)
        assert self.records.get("kind", key) is not None
        assert self.keys() == [key]
        assert self.records.delete("kind", key)

    @pytest.mark.parametrize("key", ["", "x" * 1_001, "ä" * 501, "\ud800"])
    def test_another_record_key_is_refused(self, key: str) -> None:
        with pytest.raises(InvalidInput):
            self.write(key)
        assert self.keys() == []

    @pytest.mark.parametrize("ttl", [0, -1])
    def test_a_record_that_would_not_live_is_refused(self, ttl: int) -> None:
        with pytest.raises(InvalidInput):
            self.write(ttl=ttl)

    def test_a_record_of_64_kilobytes_fits(self) -> None:
        assert self.write(value=bytes(MAX_RECORD))

    def test_a_larger_record_is_refused_and_nothing_changed(self) -> None:
        self.write(value=b"present")
        with pytest.raises(InvalidInput):
            self.write(value=bytes(MAX_RECORD + 1))
        record = self.records.get("kind", "key")
        assert record is not None
        assert record.value == b"present"

    def test_of_many_who_expect_no_record_one_wins(self) -> None:
        won: list[int | None] = []
        threads = [
            threading.Thread(target=lambda: won.append(self.records.put("kind", "lock", b"", expect=0)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(version is not None for version in won) == 1


class TakeContract(ContractBase):
    """Buckets by key: a burst, then the rate, by the engine's clock; refused means nothing taken."""

    def take_from(self, key: str = "key", n: int = 1, *, rate: str = "5/s", burst: int = 3) -> int:
        return self.engine.records.take("bucket", key, n, rate=Rate.parse(rate), burst=burst)

    def test_a_fresh_bucket_holds_its_burst_and_no_more(self) -> None:
        assert [self.take_from() for _ in range(4)] == [0, 0, 0, 200]

    def test_several_are_taken_at_once_or_not_at_all(self) -> None:
        assert self.take_from(n=2) == 0
        assert self.take_from(n=2) == 200
        assert self.take_from(n=1) == 0

    @pytest.mark.parametrize("rate", ["1/s", "3/s", "7/s", "1000/s", "30/m", "7/m", "500/h"])
    def test_what_was_missing_is_there_when_it_was_said_and_not_before(self, rate: str) -> None:
        assert self.take_from(n=3, rate=rate) == 0
        missing = self.take_from(rate=rate)
        self.clock.advance(f"{missing - 1}ms")
        assert self.take_from(rate=rate) == 1
        self.clock.advance("1ms")
        assert self.take_from(rate=rate) == 0
        assert self.take_from(rate=rate) > 0

    def test_a_bucket_does_not_overflow(self) -> None:
        self.take_from()
        self.clock.advance("1h")
        assert self.take_from(n=3) == 0
        assert self.take_from() == 200

    def test_a_bucket_that_is_full_again_is_forgotten(self) -> None:
        self.take_from()
        assert len(self.engine.records.list("bucket")) == 1
        self.clock.advance("201ms")
        assert self.engine.records.list("bucket") == []

    def test_buckets_of_two_keys_do_not_meet(self) -> None:
        assert self.take_from("a", 3) == 0
        assert self.take_from("b", 3) == 0

    def test_time_that_goes_back_earns_nothing(self) -> None:
        self.take_from(n=3)
        self.clock.set_back("1s")
        assert self.take_from() > 0

    def test_more_than_a_burst_is_refused(self) -> None:
        with pytest.raises(InvalidInput):
            self.take_from(n=4)
        assert self.take_from(n=3) == 0

    @pytest.mark.parametrize("n", [0, -1, MAX_BATCH + 1])
    def test_a_number_that_makes_no_sense_is_refused(self, n: int) -> None:
        with pytest.raises(InvalidInput):
            self.take_from(n=n, burst=10_000)

    def test_a_huge_rate_is_counted_exactly(self) -> None:
        assert self.take_from(n=1_000, rate="999999999/h", burst=999_999_999) == 0
        assert self.take_from(n=1_000, rate="999999999/h", burst=999_999_999) == 0

    def test_of_many_who_take_at_once_a_burst_succeeds(self) -> None:
        waits: list[int] = []
        threads = [
            threading.Thread(target=lambda: waits.append(self.take_from(rate="1/h", burst=5)))
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert waits.count(0) == 5
