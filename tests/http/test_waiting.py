"""Clients that wait for messages: many at once, some that leave, and a server that ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import postroom
from postroom.cli import INTERRUPTED
from postroom.errors import EngineUnavailable
from postroom.http import waiting as waiting_module
from postroom.http.waiting import Lines
from postroom.keeper import leader
from postroom.model import Failure, NewMessage
from tests.http.servers import PATIENCE, Served, serving
from tests.redis import servers as redis_servers

WAITERS = 200


def until(holds: Callable[[], Any]) -> Any:
    """Wait for a condition, with a bound that a busy machine keeps."""
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.02)
    return found


def waiting(served: Served) -> int:
    return int(httpx.get(f"{served.address}/readyz", timeout=PATIENCE).json()["waiting"])


def threads(served: Served) -> int:
    return len(list(Path(f"/proc/{served.process.pid}/task").iterdir()))


def test_200_clients_wait_without_a_thread_each_and_each_gets_one(server: Served, http: httpx.Client) -> None:
    async def crowd() -> list[dict[str, Any]]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=server.api, timeout=PATIENCE, limits=limits) as client:
            asking = [
                asyncio.create_task(
                    client.post("/queues/crowd/claim", json={"wait": 50, "consumer": f"c{n}"})
                )
                for n in range(WAITERS)
            ]
            await asyncio.to_thread(until, lambda: waiting(server) == WAITERS)
            assert threads(server) < 60
            messages = {"messages": [{"body": n} for n in range(WAITERS)]}
            put = await client.post("/queues/crowd/messages/batch", json=messages)
            assert put.status_code == 201
            answers = await asyncio.gather(*asking)
        return [delivery for answer in answers for delivery in answer.json()["deliveries"]]

    got = asyncio.run(crowd())
    assert sorted(delivery["body"] for delivery in got) == list(range(WAITERS))
    until(lambda: waiting(server) == 0)


def test_a_wait_ends_with_nothing_when_its_time_is_over(http: httpx.Client) -> None:
    assert http.post("/queues/empty/claim", json={"wait": "50ms"}).json() == {"deliveries": []}


def test_a_delayed_message_comes_to_who_waits(http: httpx.Client) -> None:
    http.post("/queues/later/messages", json={"body": 1, "delay": "300ms"})
    (delivery,) = http.post("/queues/later/claim", json={"wait": 50}).json()["deliveries"]
    assert delivery["body"] == 1


def test_who_left_gets_nothing_and_the_next_in_line_does(server: Served, http: httpx.Client) -> None:
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as leaving:
        body = b'{"wait": 50}'
        head = (
            f"POST /api/v1/queues/left/claim HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        leaving.sendall(head.encode() + body)
        until(lambda: waiting(server) == 1)
    until(lambda: waiting(server) == 0)
    http.post("/queues/left/messages", json={"body": 1})
    (delivery,) = http.post("/queues/left/claim", json={"wait": 50}).json()["deliveries"]
    assert (delivery["body"], delivery["deliveries"]) == (1, 1)


def test_what_was_claimed_for_who_left_goes_back(server: Served, http: httpx.Client) -> None:
    """Its question and its goodbye come in one packet: nobody is there any more when it is answered."""
    http.put("/queues/hasty", json={"ack_timeout": "1h", "max_attempts": 1})
    http.post("/queues/hasty/messages", json={"body": 1})
    host, port = server.address.removeprefix("http://").split(":")
    for _ in range(5):
        with socket.create_connection((host, int(port))) as hasty:
            hasty.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)  # until it is closed
            head = f"POST /api/v1/queues/hasty/claim HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"
            hasty.sendall(head.encode())
    (delivery,) = http.post("/queues/hasty/claim", json={"wait": 50}).json()["deliveries"]
    assert (delivery["body"], delivery["attempt"]) == (1, 0)


def test_a_claim_that_comes_after_its_client_left_is_released() -> None:
    async def story() -> tuple[list[Any], int]:
        with postroom.open("memory://") as room:
            room.queue("q").put(1)
            left = asyncio.Event()

            async def call(function: Callable[..., Any], *args: Any) -> Any:
                answer = function(*args)
                left.set()  # while it is asked
                return answer

            async def gone() -> None:
                await left.wait()

            leased = await Lines(room, call).claim("q", 1, "c", 0, gone)
            return leased, room.queue("q").stats().ready

    assert asyncio.run(story()) == ([], 1)


def test_who_comes_when_as_many_wait_as_may_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    async def call(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    async def story() -> None:
        with postroom.open("memory://") as room:
            lines = Lines(room, call)
            first = asyncio.create_task(lines.claim("q", 1, "first", PATIENCE, forever))
            while lines.waiting < 1:
                await asyncio.sleep(0)
            with pytest.raises(EngineUnavailable, match="try again later"):
                await lines.claim("other", 1, "second", PATIENCE, forever)
            assert await lines.claim("other", 1, "hasty", 0, forever) == []
            lines.close()
            assert await first == []

    monkeypatch.setattr(waiting_module, "MOST", 1)
    asyncio.run(story())


def test_a_line_that_cannot_be_opened_is_refused_and_the_next_one_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when there are no descriptors for a moment."""

    async def forever() -> None:
        await asyncio.Event().wait()

    async def call(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    async def story() -> None:
        with postroom.open("memory://") as room:
            lines = Lines(room, call)
            with monkeypatch.context() as patch:
                patch.setattr(room, "waiter", lambda queues: os.open("/nowhere", 0))
                with pytest.raises(OSError, match="No such file"):
                    await lines.claim("q", 1, "first", PATIENCE, forever)
            second = asyncio.create_task(lines.claim("q", 1, "second", PATIENCE, forever))
            while lines.waiting < 1:
                await asyncio.sleep(0)
            room.queue("q").put(1)
            async with asyncio.timeout(PATIENCE / 2):
                assert len(await second) == 1

    asyncio.run(story())


def test_a_server_that_ends_answers_who_waits(own_server: Served) -> None:
    async def story() -> tuple[httpx.Response, int]:
        async with httpx.AsyncClient(base_url=own_server.api, timeout=PATIENCE) as client:
            asking = asyncio.create_task(client.post("/queues/q/claim", json={"wait": "5m"}))
            await asyncio.to_thread(until, lambda: waiting(own_server) == 1)
            code = await asyncio.to_thread(own_server.terminate)
            return await asking, code

    answer, code = asyncio.run(story())
    assert (answer.status_code, answer.json(), code) == (200, {"deliveries": []}, 0)


def test_a_second_interrupt_ends_a_server_at_once_and_in_order(own_server: Served, tmp_path: Path) -> None:
    """No request is waited for; the keeper is still told to give up its lead."""

    def log() -> str:
        return (tmp_path / "serve.log").read_text()

    until(lambda: led(tmp_path))
    host, _, port = own_server.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as slow:
        slow.sendall(UNFINISHED)
        assert b"100 Continue" in slow.recv(1_000), "it reads the body that does not come"
        own_server.process.send_signal(signal.SIGINT)
        until(lambda: "Waiting for connections to close" in log())
        own_server.process.send_signal(signal.SIGINT)
        assert own_server.process.wait(PATIENCE) == INTERRUPTED
    assert "Traceback" not in log()
    assert not led(tmp_path)


def test_a_third_interrupt_does_not_wait_for_a_job_either(own_server: Served, tmp_path: Path) -> None:
    with postroom.open(f"sqlite:///{tmp_path}/jobs.db") as room:
        letter = NewMessage(body=b"{}", failure=Failure(type="Declined"))
        room.engine.put("pay", [letter])
        asked = {"ids": [letter.id], "canary": True, "canary_timeout": "1h"}
        url = f"{own_server.address}/api/v1/dead/pay/replay"
        assert httpx.post(url, json=asked, timeout=PATIENCE).status_code == 202
        until(lambda: room.queue("pay").stats().ready)  # nobody works on it, and the job waits for that

    def interrupted() -> bool:
        own_server.process.send_signal(signal.SIGINT)
        return own_server.process.poll() is not None

    until(interrupted)
    assert own_server.process.wait(PATIENCE) == INTERRUPTED


def led(folder: Path) -> bool:
    with postroom.open(f"sqlite:///{folder}/jobs.db") as room:
        return leader(room.engine) is not None


UNFINISHED = (
    b"POST /api/v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 100\r\nexpect: 100-continue\r\n\r\n"
)


@pytest.fixture(params=["sqlite", "redis"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store that outlives its server."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    with redis_servers.single() as server:
        yield server.url()


def test_kill_9_loses_nothing_that_was_answered(durable: str, tmp_path: Path) -> None:
    """Producers and consumers at full speed, the server killed in the middle: what was answered holds."""
    url = durable
    put, asked, acked = set[str](), set[str](), set[str]()

    async def produce(client: httpx.AsyncClient) -> None:
        while True:
            answer = await client.post("/queues/load/messages", json={"body": 1})
            put.add(answer.json()["id"])

    async def consume(client: httpx.AsyncClient) -> None:
        while True:
            answer = await client.post("/queues/load/claim", json={"n": 3, "wait": 5})
            for delivery in answer.json()["deliveries"]:
                asked.add(delivery["id"])
                settled = await client.post(f"/deliveries/{delivery['receipt']}/ack")
                if settled.status_code == 204:
                    acked.add(delivery["id"])

    async def load(served: Served) -> None:
        async with httpx.AsyncClient(base_url=served.api, timeout=PATIENCE) as client:
            tasks = [
                asyncio.create_task(job(client)) for job in (produce, produce, produce, consume, consume)
            ]
            await asyncio.to_thread(until, lambda: len(put) > 200 and len(acked) > 20)
            served.kill()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(each, httpx.TransportError) for each in ended), ended

    with serving(url, tmp_path) as served:
        asyncio.run(load(served))
    # Nobody sweeps here, and processing comes first: what is reclaimed between two looks is not missed.
    second = serving(url, tmp_path, "--no-keeper")
    with second as served, httpx.Client(base_url=served.api, timeout=PATIENCE) as client:
        there = set[str]()
        for state in ("processing", "ready"):
            cursor: str | None = ""
            while cursor is not None:
                params = {"state": state, "limit": 1000, **({"cursor": cursor} if cursor else {})}
                page = client.get("/queues/load/messages", params=params).json()
                there |= {message["id"] for message in page["messages"]}
                cursor = page["cursor"]
    # An ack whose answer the kill has swallowed may have been done.
    assert put - asked <= there, "a put that was answered is gone"
    assert not acked & there, "an ack that was answered is undone"
