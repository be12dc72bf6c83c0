"""What must work where Postroom was just installed: `python smoke.py EXTRA…`.

By an interpreter that has nothing but the package and these extras. Without an extra, only the core is
tried, and that all others are asked for.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import postroom
from postroom import Delivery, Worker
from postroom.errors import MissingExtra


def note(done: list[object], delivery: Delivery) -> None:
    done.append(delivery.body)


def core(folder: Path) -> None:
    """The package is whole, typed, and works in memory and in a file."""
    here = Path(postroom.__file__).parent
    assert "site-packages" in here.parts, f"not the installed one: {here}"
    assert (here / "py.typed").exists()
    assert importlib.metadata.version("postroom") == postroom.__version__
    for url in ("memory://", f"sqlite:///{folder}/jobs.db"):
        done: list[object] = []
        with postroom.open(url) as room:
            room.queue("q").put({"n": 1}, priority="high")
            Worker(room, {"q": functools.partial(note, done)}).run(drain=True)
            assert done == [{"n": 1}], url


def redis(folder: Path) -> None:
    """With a server of its own, on a socket: the scripts are in the package too."""
    socket = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        assert any("ready to accept" in line.lower() for line in server.stdout), "redis-server does not start"
        with postroom.open(f"redis+socket://{socket}") as room:
            room.queue("q").put(1)
            delivery = room.queue("q").claim(timeout=30)
            assert delivery is not None
            delivery.ack()
    finally:
        server.terminate()
        server.communicate(timeout=30)


def celery(folder: Path) -> None:
    from celery import Celery

    import postroom.celery

    app = Celery(broker="postroom+memory://smoke")
    with app.connection_for_write() as connection:
        queue = connection.SimpleQueue("q")
        queue.put({"n": 1})
        message = queue.get(timeout=30)
        assert message.payload == {"n": 1}
        message.ack()
        queue.close()
    postroom.celery.close_offices()


def cli(folder: Path) -> None:
    url = f"sqlite:///{folder}/cli.db"

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "postroom.cli", *words, "--url", url]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout

    id = run("message", "put", "emails", '{"to": "ada"}').strip()
    assert id in run("message", "show", id)
    assert (Path(sys.executable).parent / "postroom").exists()


def sql(folder: Path) -> None:
    from sqlalchemy import create_engine

    from postroom import sqlguard

    engine = create_engine(f"sqlite:///{folder}/shop.db")
    sqlguard.processing_log.metadata.create_all(engine)
    assert "processing_log" in sqlguard.ddl()
    assert importlib.util.find_spec("psycopg")
    engine.dispose()


def schedule(folder: Path) -> None:
    from postroom.config import load

    assert importlib.util.find_spec("cronsim")
    config = folder / "postroom.toml"
    config.write_text('[schedule.nightly]\ncron = "0 3 * * *"\ntimezone = "Europe/Berlin"\nqueue = "q"\n')
    assert "nightly" in load(config).schedules


def django(folder: Path) -> None:
    from django.conf import settings
    from django.core.management import get_commands

    settings.configure(INSTALLED_APPS=["postroom.django"])
    import django as framework

    framework.setup()
    assert {"dead_letters", "replay_task"} <= set(get_commands())


def metrics(folder: Path) -> None:
    from postroom.telemetry.exporter import RoomCollector

    with postroom.open("memory://") as room:
        names = {family.name for family in RoomCollector(room.engine, postroom.__version__, 1_000).collect()}
    assert "postroom_engine_up" in names


def traces(folder: Path) -> None:
    with postroom.open("memory://", tracing=True) as room:
        room.queue("q").put(1)


def schema(folder: Path) -> None:
    from postroom.config import load
    from postroom.errors import InvalidInput

    (folder / "a.json").write_text('{"type": "object"}')
    (folder / "kinds.toml").write_text('[kinds.a]\nschema = "a.json"')
    with postroom.open("memory://", config=load(folder / "kinds.toml")) as room:
        queue = room.queue("q")
        id = queue.put({}, kind="a").id
        queue.claim_many(1)[0].bury("no")
        try:
            queue.replay(id, body=[])
        except InvalidInput as error:
            assert "is not of type" in str(error)
        else:
            raise AssertionError("a payload that is not like its schema was put")


def http(folder: Path) -> None:
    """The server answers, and has its dashboard with all that it loads."""
    from litestar.testing import TestClient

    from postroom.http import Client, app

    with postroom.open("memory://") as room, TestClient(app(room)) as client:
        assert client.get("/api/v1/stats").json()["ok"]
        assert "assets/" in client.get("/").text
    Client("http://127.0.0.1:8025").close()


EXTRAS: dict[str, Callable[[Path], None]] = {
    "redis": redis, "celery": celery, "http": http, "cli": cli, "sql": sql, "schedule": schedule,
    "schema": schema, "django": django, "metrics": metrics, "traces": traces,
}  # fmt: skip


def nothing_else(folder: Path) -> None:
    """Without an extra, whoever needs it is told which one."""
    for url, tracing in (("redis://localhost", False), ("memory://", True)):
        try:
            postroom.open(url, tracing=tracing).queue("q").put(1)
        except MissingExtra as error:
            assert "pip install 'postroom[" in str(error)
        else:
            raise AssertionError("works without the extra that it says it needs")


def main(extras: list[str]) -> None:
    wanted = list(EXTRAS) if extras == ["all"] else extras
    checks = [core, *(EXTRAS[extra] for extra in wanted)] if wanted else [core, nothing_else]
    for check in checks:
        with tempfile.TemporaryDirectory() as folder:
            check(Path(folder))
            print(f"ok: {check.__name__}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
