"""The store is full, gone, read-only or damaged: an error says so, nothing is half-written, nobody dies."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import postroom
from postroom import Delivery, Policy, Worker
from postroom.errors import StoreCorrupt, StoreGone
from postroom.model import State
from postroom.queue import Queue
from tests.chaos.outside import check_sound, dump, eventually, on_mount, url_of

POLICY = Policy(lease="1h", ack_timeout="1h")
MARK = "message!"


def calls(queue: Queue) -> list[Callable[[], object]]:
    """Something of each kind: to write, to claim, to look, to operate."""
    return [
        lambda: queue.put("x"),
        lambda: queue.claim(timeout=0),
        queue.stats,
        lambda: queue.find(State.READY),
        queue.purge,
        lambda: queue.room.engine.records.put("kind", "key", b"x"),
    ]


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the store said to the workers."""
    return [
        str(vars(record)["error"])
        for record in caplog.records
        if getattr(record, "event", "") == "worker.engine_failed"
    ]


# ---- Full -----------------------------------------------------------------------------------------


def test_a_worker_goes_on_when_a_full_disk_has_space_again(tmp_path: Path) -> None:
    """In a process of its own, on a disk of 4 MB."""
    code = """
import logging
from collections import Counter
from pathlib import Path
from tests.chaos.outside import check_sound

class Failures(logging.Handler):
    def emit(self, record):
        if getattr(record, "event", "") == "worker.engine_failed":
            failed.append(record.error)

failed, begun, gate = [], Counter(), threading.Event()
logging.getLogger("postroom").addHandler(Failures())

def handle(delivery):
    begun[delivery.id] += 1
    gate.wait(60)

room = postroom.open(url_of(path))
queue = room.queue("q", Policy(lease="15s"))
accepted = [put.id for put in queue.put_many(["x" * 500] * 50)]
worker = Worker(room, {"q": handle}, concurrency=4).start()
eventually(lambda: len(begun) == 4)

ballast = Path(path).with_name("ballast")
with ballast.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(b"x" * 4096)
    except OSError as error:
        say(error.strerror)
try:
    while True:
        accepted.append(queue.put("y" * 2_000).id)
except PostroomError as error:
    say(error.code, "nothing was changed" in str(error))
say(queue.stats().depth + queue.stats().processing == len(accepted))
gate.set()
eventually(lambda: len(failed) >= 2)
say(all("no space" in text for text in failed))

ballast.unlink()
eventually(lambda: queue.stats().counters["acked"] == len(accepted))
worker.stop()
say(set(begun) == set(accepted), set(begun.values()), queue.stats().counters["reclaimed"])
room.close()
check_sound(Path(path))
say(*sorted(os.listdir(os.path.dirname(path))))
"""
    mount = 'mount -t tmpfs -o size=4m tmpfs "$folder"'
    assert on_mount(mount, code, tmp_path / "store.db") == [
        "No space left on device",
        "store_full True",
        "True",
        "True",
        "True {1} 0",
        "store.db",
    ]


# ---- Gone -----------------------------------------------------------------------------------------


def test_a_deleted_file_is_reported_and_not_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, begun, gate = tmp_path / "store.db", threading.Event(), threading.Event()

    def handle(delivery: Delivery) -> None:
        begun.set()
        gate.wait()

    with postroom.open(url_of(path)) as room:
        queue = room.queue("q", POLICY)
        queue.put_many(range(10))
        worker = Worker(room, {"q": handle}, stop_timeout="1s").start()
        begun.wait()
        path.unlink()
        gate.set()
        for call in calls(queue):
            with pytest.raises(StoreGone, match="open the room again"):
                call()
        eventually(lambda: any("deleted" in failure for failure in failures(caplog)))
        worker.stop()
    assert not path.exists()
    with postroom.open(url_of(path)) as room:
        assert room.queue("q").put("x").created
        assert room.queue("q").stats().ready == 1
    check_sound(path)


@pytest.fixture
def replaced(tmp_path: Path) -> tuple[Path, bytes]:
    """A file that took the place of another while a room was open on that, and what is in it."""
    path, other = tmp_path / "store.db", tmp_path / "other.db"
    with postroom.open(url_of(other)) as room:
        room.queue("q", POLICY).put("theirs")
    content = other.read_bytes()
    with postroom.open(url_of(path)) as room:
        queue = room.queue("q", POLICY)
        queue.put("ours")
        other.replace(path)
        for call in calls(queue):
            with pytest.raises(StoreGone, match="deleted or replaced"):
                call()
    return path, content


def test_a_file_that_was_replaced_is_reported_and_not_written_to(replaced: tuple[Path, bytes]) -> None:
    path, content = replaced
    assert path.read_bytes() == content


def test_a_file_that_took_the_place_of_another_opens_with_what_is_in_it(replaced: tuple[Path, bytes]) -> None:
    path, _ = replaced
    with postroom.open(url_of(path)) as room:
        delivery = room.queue("q").claim(timeout=0)
        assert delivery and delivery.body == "theirs"
    check_sound(path)


# ---- Read-only ------------------------------------------------------------------------------------


def test_a_read_only_place_is_reported_and_nothing_is_left_there(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with postroom.open(url_of(path)) as room:
        room.queue("q", POLICY).put("x")
    before = dump(path)
    code = """
for name in (path, path + ".new"):
    try:
        with postroom.open(url_of(name)) as room:
            room.queue("q").put("y")
    except PostroomError as error:
        say(error.code, name in str(error))
"""
    mount = 'mount --bind "$folder" "$folder"; mount -o remount,bind,ro "$folder"'
    assert on_mount(mount, code, path) == ["store_read_only True"] * 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["store.db"]
    assert dump(path) == before


# ---- Damaged --------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store that knows what it is, and whose messages are noise."""
    path = tmp_path / "store.db"
    with postroom.open(url_of(path)) as room:
        room.queue("q", POLICY).put_many([MARK * 100] * 300)
    pages = [bytearray(page) for page in batched(path.read_bytes())]
    for page in pages:
        if MARK.encode() in page:
            page[:] = os.urandom(len(page))
    path.write_bytes(b"".join(pages))
    return path


def batched(content: bytes, size: int = 4_096) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


def test_a_damaged_file_is_reported_and_left_as_it_is(damaged: Path) -> None:
    before = damaged.read_bytes()
    with postroom.open(url_of(damaged)) as room:
        queue = room.queue("q")
        for call in (lambda: queue.claim(timeout=0), lambda: list(queue.find_all(State.READY))):
            with pytest.raises(StoreCorrupt, match=r"copy it.*integrity_check"):
                call()
    assert damaged.read_bytes() == before


def test_a_worker_survives_a_damaged_file(damaged: Path, caplog: pytest.LogCaptureFixture) -> None:
    with postroom.open(url_of(damaged)) as room:
        worker = Worker(room, {"q": lambda delivery: None}, stop_timeout="1s").start()
        eventually(lambda: sum("damaged" in failure for failure in failures(caplog)) >= 2)
        worker.stop()
