"""What must work where Postroom was just installed: `python smoke.py EXTRA…`.

By an interpreter that has nothing but the package and these extras. Without an extra, only the core is
tried, and that all others are asked for.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


@contextmanager
def started(command: list[str], folder: Path, says: str) -> Iterator[str]:
    """A process, from when it says this on; what of its words fits. Told to stop at the end, and it does."""
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield heard(process, says)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode in {0, -signal.SIGTERM}, f"{command}: {process.returncode}"


def heard(process: subprocess.Popen[str], says: str) -> str:
    """The first of its words that fit; raises with all of them if it ends before."""
    assert process.stdout
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if found := re.search(says, line):
            return found[0]
    raise AssertionError(f"{process.args!r} ended: {''.join(lines)}")


def redis(folder: Path) -> None:
    """With a server of its own, on a socket: the scripts are in the package too."""
    socket = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]
    with (
        started(command, folder, "(?i)ready to accept"),
        postroom.open(f"redis+socket://{socket}") as room,
    ):
        room.queue("q").put(1)
        delivery = room.queue("q").claim(timeout=30)
        assert delivery is not None
        delivery.ack()


def celery(folder: Path) -> None:
    """A worker of Celery takes a task out of a file, and runs it."""
    from celery import Celery
    from celery.contrib.testing.worker import start_worker

    import postroom.celery

    app = Celery("smoke", broker=f"postroom+sqlite:///{folder}/jobs.db", backend="cache+memory://")

    @app.task
    def add(one: int, other: int) -> int:
        return one + other

    # Celery's ping is a task of its own tests, which nobody has registered here.
    with start_worker(app, perform_ping_check=False, shutdown_timeout=60):
        assert add.delay(1, 2).get(timeout=60) == 3
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
    """The guard, on a file: of two who pay the same invoice, one pays, and the other has its receipt."""
    from sqlalchemy import create_engine, text

    from postroom import sqlguard

    engine = create_engine(f"sqlite:///{folder}/shop.db")
    sqlguard.processing_log.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE payments (invoice TEXT)"))

    def pay() -> Any:
        with engine.begin() as connection:
            entry = sqlguard.enter(connection, "pay_invoice", "INV-7")
            if entry.done:
                return entry.result
            connection.execute(text("INSERT INTO payments VALUES ('INV-7')"))
            entry.finish({"receipt": 7})
            return "paid"

    assert [pay(), pay()] == ["paid", {"receipt": 7}]
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM payments")).scalar_one() == 1
    engine.dispose()
    assert "processing_log" in sqlguard.ddl()
    importlib.import_module("psycopg")  # for PostgreSQL: it is there, and finds its library


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
    """A process serves the room, and the dashboard with all that it loads."""
    import httpx

    from postroom.http import Client

    with started(serve(folder), folder, r"http://127\.0\.0\.1:\d+") as address:
        with httpx.Client(base_url=address, timeout=60, trust_env=False) as browser:
            assert browser.get("/healthz").json()["ok"]
            places = set(re.findall(r'(?:href|src)="(assets/[^"]+)"', browser.get("/").text))
            assert places and all(browser.get(f"/{place}").is_success for place in places), places
        with Client(address, trust_env=False) as room:
            put = room.put("q", {"n": 1})
            assert [each.id for each in room.claim("q", wait=30)] == [put.id]


def serve(folder: Path) -> list[str]:
    """`postroom serve`; without the extra that brings commands, the application by uvicorn."""
    url = f"sqlite:///{folder}/http.db"
    if importlib.util.find_spec("typer"):
        return [str(Path(sys.executable).parent / "postroom"), "serve", "--url", url, "--port", "0"]
    module = f"import postroom.http\n\napp = postroom.http.app(postroom.open({url!r}))\n"
    (folder / "web.py").write_text(module)
    return [sys.executable, "-m", "uvicorn", "web:app", "--port", "0"]


EXTRAS: dict[str, Callable[[Path], None]] = {
    "redis": redis, "celery": celery, "http": http, "cli": cli, "sql": sql, "schedule": schedule,
    "schema": schema, "django": django, "metrics": metrics, "traces": traces,
}  # fmt: skip


def migrate(folder: Path) -> None:
    """With both: kombu's own Redis transport, whose tasks `celery migrate` moves, finds what it imports."""
    importlib.import_module("kombu.transport.redis")


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
    if {"celery", "redis"} <= set(wanted):
        checks.append(migrate)
    for check in checks:
        with tempfile.TemporaryDirectory() as folder:
            check(Path(folder))
            print(f"ok: {check.__name__}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
