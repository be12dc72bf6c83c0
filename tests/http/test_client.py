"""The typed client against a real server: the words and errors of the Python door."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import httpx
import msgspec
import pytest

from postroom.errors import Conflict, EngineUnavailable, InvalidInput, LeaseLost, NotFound, QueueFull
from postroom.http import AsyncClient, Client
from postroom.http.redaction import HIDDEN
from postroom.http.views import QueueList, QueueView
from postroom.stats import QueueStats
from tests.http.servers import Served


@pytest.fixture
def room(server: Served, http: httpx.Client) -> Iterator[Client]:
    with Client(server.address) as client:
        yield client


def test_a_message_goes_its_way(room: Client) -> None:
    first = room.put("a/b", {"n": 1}, key="k", priority="high", delay=timedelta(0))
    assert first.created and not room.put("a/b", {"n": 1}, key="k").created
    (delivery,) = room.claim("a/b", wait=30, consumer="me")
    assert (delivery.id, delivery.body) == (first.id, {"n": 1})
    assert room.get("a/b", first.id).consumer == "me"
    room.extend(delivery, "1h")
    room.retry(delivery, "not yet", after=0)
    (delivery,) = room.claim("a/b", wait=30)
    room.ack(delivery)
    with pytest.raises(LeaseLost) as lost:
        room.ack(delivery)
    assert lost.value.outcome == "gone"
    with pytest.raises(NotFound):
        room.get("a/b", first.id)


def test_queues_come_in_pages_and_all_of_them(room: Client, http: httpx.Client) -> None:
    names = ["a/b", "bills", "emails"]
    for name in names:
        room.declare(name)
    first = http.get("/queues", params={"limit": 2}).json()
    assert ([each["queue"] for each in first["queues"]], first["cursor"]) == (names[:2], "bills")
    rest = http.get("/queues", params={"limit": 2, "after": first["cursor"]}).json()
    assert ([each["queue"] for each in rest["queues"]], rest["cursor"]) == (names[2:], None)
    assert http.get("/queues", params={"limit": 1_001}).status_code == 400
    assert [each.queue for each in room.queues()] == names


def test_a_client_asks_for_every_page() -> None:
    pages: dict[str, tuple[list[str], str | None]] = {"": (["a", "b"], "b"), "b": (["c"], None)}

    def view(name: str) -> QueueView:
        return QueueView(
            queue=name, stats=QueueStats(queue=name), paused=False, pause_reason="", policy={}
        )  # fmt: skip

    def answered(request: httpx.Request) -> httpx.Response:
        names, cursor = pages[request.url.params["after"]]
        views = [view(name) for name in names]
        return httpx.Response(200, content=msgspec.json.encode(QueueList(views, cursor)))

    transport = httpx.MockTransport(answered)
    with Client("http://nobody", transport=transport) as room:
        assert [each.queue for each in room.queues()] == ["a", "b", "c"]

    async def story() -> list[QueueView]:
        async with AsyncClient("http://nobody", transport=transport) as room:
            return await room.queues()

    assert [each.queue for each in asyncio.run(story())] == ["a", "b", "c"]


def test_a_message_may_expire_at_a_moment(room: Client) -> None:
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    put = room.put("short", 1, expires=moment)
    assert room.get("short", put.id).expires == int(moment.timestamp() * 1_000)
    put = room.put("short", 1, expires=timedelta(hours=1))
    assert room.get("short", put.id).expires == pytest.approx(moment.timestamp() * 1_000, abs=60_000)
    for wrong in (moment - timedelta(hours=2), "2030-01-01T00:00:00", "yester-day"):
        with pytest.raises(InvalidInput, match="expires"):
            room.put("short", 1, expires=wrong)


def test_many_go_together(room: Client) -> None:
    assert len(room.put_many("many", [b"\x00", "x", None, 4])) == 4
    found = room.find("many", limit=2)
    assert [message.body for message in found.messages] == [HIDDEN, "x"] and found.cursor
    first = room.find("many", limit=1, raw=True).messages[0]
    assert first.body_base64 == room.get("many", first.id, raw=True).body_base64 == "AA=="
    assert room.get("many", first.id).body == HIDDEN
    assert room.stats("many").ready == 4
    assert room.purge("many") == 4


def test_refusals_are_the_errors_of_the_python_door(room: Client) -> None:
    room.declare("small", capacity=1, ack_timeout="1m")
    room.put("small", 1)
    with pytest.raises(QueueFull) as full:
        room.put("small", 2)
    assert full.value.reason == "capacity"
    with pytest.raises(Conflict):
        room.drop("small")
    with pytest.raises(InvalidInput, match="did you mean priority"):
        room.put("small", 2, priorty=3)  # type: ignore[call-arg]  # a slip that a checker would find
    assert room.drop("small", force=True) == 1


def test_a_server_that_is_away_says_so(own_server: Served) -> None:
    own_server.kill()
    with Client(own_server.address) as room, pytest.raises(EngineUnavailable):
        room.put("emails", 1)


def test_every_verb_without_an_answer_is_known_to_be_done(room: Client) -> None:
    (first, second, third) = (put.id for put in room.put_many("verbs", [1, 2, 3], delay="1h"))
    room.pause("verbs", "a moment")
    room.resume("verbs")
    room.reschedule("verbs", first, delay="2h")
    room.run_now("verbs", second)
    (delivery,) = room.claim("verbs", wait=30)
    room.release(delivery)
    room.cancel("verbs", third)
    assert (room.stats("verbs").scheduled, room.stats("verbs").ready) == (1, 1)


@pytest.mark.parametrize("page", ["<html>maintenance</html>", "{}", ""])
@pytest.mark.parametrize("status", [200, 302])
def test_an_answer_that_is_not_the_servers_is_no_success(page: str, status: int) -> None:
    """What a proxy says in its place."""
    transport = httpx.MockTransport(lambda request: httpx.Response(status, text=page))
    with Client("http://nobody", transport=transport) as room:
        verbs: list[Callable[[], object]] = [
            lambda: room.put("q", 1), lambda: room.claim("q"), lambda: room.ack("receipt"),
            lambda: room.extend("receipt"), lambda: room.cancel("q", "id"), lambda: room.pause("q"),
            lambda: room.resume("q"), lambda: room.reschedule("q", "id"), lambda: room.purge("q"),
        ]  # fmt: skip
        for verb in verbs:
            with pytest.raises(EngineUnavailable, match=f"answers {status}, and not as we know it"):
                verb()


def test_coroutines_have_the_same(server: Served, http: httpx.Client) -> None:
    async def story() -> None:
        async with AsyncClient(server.address) as room:
            waiting = asyncio.create_task(room.claim("async", wait=50))
            put = await room.put("async", {"n": 1})
            (delivery,) = await waiting
            assert delivery.id == put.id
            await room.bury(delivery, "no")
            dead = await room.get("async", put.id)
            assert (dead.state, dead.last_error) == ("dead", "Rejected: no")
            with pytest.raises(LeaseLost):
                await room.ack(delivery)

    asyncio.run(story())


def test_both_clients_know_the_same_words() -> None:
    def words(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert words(Client) == words(AsyncClient)
