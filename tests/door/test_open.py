"""The public names, and opening a room."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import postroom
import postroom.engines
from postroom import Bury, Delivery, LeaseLost, Policy, PostroomError, QueueFull, Retry, Worker
from postroom.config import load
from postroom.errors import ConfigError, MissingExtra
from postroom.model import State
from postroom.queue import Queue
from postroom.room import Room

VERBS = [
    "put",
    "put_many",
    "claim",
    "claim_many",
    "consume",
    "stats",
    "find",
    "get",
    "pause",
    "resume",
    "purge",
    "drop",
    "cancel",
    "reschedule",
    "run_now",
    "replay",
    "discard",
    "search",
    "history",
]


def test_these_are_the_public_names() -> None:
    names = {
        "open",
        "Policy",
        "Worker",
        "Handlers",
        "InvalidInput",
        "Share",
        "Delivery",
        "PostroomError",
        "QueueFull",
        "RateLimited",
        "Later",
        "LeaseLost",
        "Retry",
        "Bury",
    }
    assert set(postroom.__all__) == names
    assert all(hasattr(postroom, name) for name in names)


def test_every_error_is_a_postroom_error_with_a_code() -> None:
    codes = {error: error.code for error in (PostroomError, QueueFull, LeaseLost, Retry, Bury)}
    assert list(codes.values()) == ["error", "queue_full", "lease_lost", "retry", "bury"]
    assert all(issubclass(error, PostroomError) for error in codes)


@pytest.mark.parametrize("verb", VERBS)
def test_a_queue_has_every_verb_and_says_what_it_promises(verb: str) -> None:
    method = getattr(Queue, verb)
    assert callable(method)
    if verb not in ("stats", "resume"):
        assert inspect.getdoc(method)


def test_a_message_goes_all_the_way_through() -> None:
    with postroom.open("memory://") as room:
        queue = room.queue("emails", policy=Policy(max_attempts=2))
        put = queue.put({"to": "ada@example.org"}, priority="high")
        with room.queue("emails").claim(timeout=0) or pytest.fail("nothing") as delivery:
            assert isinstance(delivery, Delivery)
            assert delivery.id == put.id
            assert delivery.body == {"to": "ada@example.org"}
            assert delivery.max_attempts == 2
        assert queue.stats().processing == queue.stats().depth == 0


def test_a_worker_is_one_line_away() -> None:
    with postroom.open("memory://") as room:
        room.queue("emails").put("hello")
        seen: list[str] = []
        Worker(room, {"emails": lambda delivery: seen.append(delivery.body)}, concurrency=4).run(drain=True)
        assert seen == ["hello"]


def test_rooms_of_one_name_share_their_messages() -> None:
    with postroom.open("memory://shared-door") as one, postroom.open("memory://shared-door") as other:
        one.queue("q").put(1)
        assert other.queue("q").stats().ready == 1


def test_rooms_without_a_name_share_nothing() -> None:
    with postroom.open("memory://") as one, postroom.open("memory://") as other:
        one.queue("q").put(1)
        assert other.queues() == []


# ---- Addresses that lead nowhere ------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "memory",
        "memory:",
        "memory:/x",
        "://",
        "carrier-pigeon://loft",
        "memory://name/path",
        "memory://name?option=1",
        "memory://[::1",
        "http://[",
    ],
)
def test_a_url_that_leads_nowhere_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        postroom.open(url)
    assert caught.value.code == "config_error"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "carrier://ada:hunter2@loft/1",
        "ada:hunter2@loft",
        "hunter2@loft:1",
        "carrier:ada:hunter2@loft",
        "carrier://ada:hunter2[x]@loft/1",
        "carrier://ada:hunter2\N{ACCOUNT OF}@loft/1",
        "carrier://[hunter2@loft",
        "memory://ada:hunter2@loft/1",
        "carrier://loft/?password=hunter2",
    ],
)
def test_no_password_gets_into_a_message(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        postroom.open(url)
    whole: BaseException | None = caught.value
    while whole:
        assert "hunter" not in str(whole)
        whole = whole.__cause__ or (None if whole.__suppress_context__ else whole.__context__)


def test_a_password_is_not_in_the_repr_of_a_config() -> None:
    assert "hunter2" not in repr(load(environ={}, url="carrier://ada:hunter2@loft"))


def test_a_missing_extra_names_the_command_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "carrier_pigeon.py").write_text("import pigeons")
    monkeypatch.setattr(postroom.engines, "__path__", [*postroom.engines.__path__, str(tmp_path)])
    monkeypatch.setitem(postroom.room._ENGINES, "carrier", "carrier_pigeon")
    with pytest.raises(MissingExtra, match=r"pip install 'postroom\[carrier_pigeon\]'"):
        postroom.open("carrier://loft")


def test_an_unknown_setting_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="poll_timeout"):
        postroom.open("memory://", poll_timeuot="1s")


def test_a_config_and_settings_together_are_refused() -> None:
    with pytest.raises(ConfigError):
        postroom.open("memory://", config=load(environ={}), max_body="1KB")


def test_without_a_url_it_is_a_file_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with postroom.open() as room:
        room.queue("emails").put("a")
    with postroom.open() as room:
        assert room.queue("emails").stats().ready == 1
    assert [path.name for path in tmp_path.iterdir()] == ["postroom.db"]


# ---- What the configuration says ------------------------------------------------------------------


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "postroom.toml"
    file.write_text('url = "memory://"\nmax_attempts = 7\n[queues.emails]\ncapacity = 2\nlease = "1m"\n')
    monkeypatch.setenv("POSTROOM_CONFIG", str(file))
    return file


def test_declared_queues_exist_from_the_opening_on(config_file: Path) -> None:
    with postroom.open() as room:
        (info,) = room.queues()
        assert (info.name, info.policy.capacity, info.policy.lease) == ("emails", 2, 60_000)
        assert info.policy.max_attempts == 7
        room.queue("emails").put_many([1, 2])
        with pytest.raises(QueueFull):
            room.queue("emails").put(3)


def test_a_queue_without_a_table_gets_the_policy_for_all(config_file: Path) -> None:
    with postroom.open() as room:
        room.queue("other").put(1)
        assert room.queue("other").policy.max_attempts == 7
        assert {info.name: info.policy.max_attempts for info in room.queues()} == {"emails": 7, "other": 7}


def test_a_queue_that_comes_back_after_a_drop_gets_it_too(config_file: Path) -> None:
    with postroom.open() as room:
        queue = room.queue("other")
        queue.put(1)
        assert queue.drop(force=True) == 1
        queue.put(1)
        assert {info.name: info.policy.max_attempts for info in room.queues()}["other"] == 7


def test_a_policy_given_in_code_wins(config_file: Path) -> None:
    with postroom.open() as room:
        assert room.queue("emails", policy=Policy(capacity=9)).policy.capacity == 9
        assert room.queue("emails").policy.capacity == 9


def test_somebody_elses_new_policy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.policies._AGE", 0.0)
    with postroom.open("memory://policy-door") as one, postroom.open("memory://policy-door") as other:
        assert one.queue("q", Policy(max_attempts=4)).policy.max_attempts == 4
        other.queue("q", Policy(max_attempts=5))
        assert one.queue("q").policy.max_attempts == 5


def test_the_settings_of_a_call_beat_the_file(config_file: Path) -> None:
    with postroom.open(max_attempts=8) as room:
        assert room.queue("other").policy.max_attempts == 8


def test_closing_twice_is_fine_and_later_calls_are_told() -> None:
    room = postroom.open("memory://")
    room.queue("q").put(1)
    room.close()
    room.close()
    assert room.is_shutdown
    with pytest.raises(PostroomError) as caught:
        room.queue("q").stats()
    assert caught.value.code == "closed"


def test_a_room_can_be_used_with_with() -> None:
    with postroom.open("memory://") as room:
        assert isinstance(room, Room)
    assert room.stats().health.ok is False


def test_a_dead_letter_can_be_looked_at_by_state_or_by_its_name(room: Room) -> None:
    queue = room.queue("q")
    queue.put(1)
    assert queue.find("ready") == queue.find(State.READY)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("reddis://localhost", "did you mean redis://?"),
        ("redis:/localhost", "did you mean redis://?"),
        ("postroom+redis://localhost", "here it is redis://"),
        ("amqp://localhost", "postroom.celery.events"),
        ("postgresql://user:hunter2@localhost", "for 'postgresql'; this release has sqlite://"),
        ("postgres://user:hunter2@localhost", "for 'postgres'; this release has sqlite://"),
        ("mysql://localhost", "redis+sentinel://, redis+cluster://, redis+socket://"),
    ],
)
def test_a_url_of_another_kind_comes_with_a_hint(url: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        postroom.open(url)
    assert hint in str(caught.value) and "hunter2" not in str(caught.value)


def test_the_scheme_of_a_url_may_be_written_in_capitals(tmp_path: Path) -> None:
    with postroom.open(f"SQLite:///{tmp_path}/Jobs.db") as room:
        assert room.config.url == f"sqlite:///{tmp_path}/Jobs.db"
    assert (tmp_path / "Jobs.db").exists()
