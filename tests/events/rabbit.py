"""A real RabbitMQ for tests: a node of its own on free ports, with its own epmd, gone afterwards.

It is usable when its `with` begins and stopped when it ends, and dies with the process that started it.
One scheduler, and no plugin: it has the machine not for itself.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kombu import Connection

from tests.celery.workers import wait_until
from tests.processes import has_stopped
from tests.redis.servers import claimed_port

_PATIENCE = 120.0
_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class Rabbit:
    """The node; `kill` and `start` keep what it stored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = [claimed_port() for _ in range(3)]
        self.port, self._epmd_port, self._dist_port = (port for port, _ in ports)
        self._claims = [claim for _, claim in ports]
        self._node = f"postroom{secrets.token_hex(4)}@localhost"
        self._epmd: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nvm_memory_high_watermark.absolute = 400MB\n"
            "disk_free_limit.absolute = 50MB\n"
        )
        # As the how-to about events has it: else a retry may be three minutes late after a crash of the node.
        (folder / "advanced.config").write_text(
            "[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 5000}]}].\n"
        )
        (folder / "enabled_plugins").write_text("[].\n")

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        environ = self._environ()
        with (self.folder / "server.log").open("ab") as log:
            if self._epmd is None:
                self._epmd = subprocess.Popen(
                    [*_DIES_WITH_US, "epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ,
                )  # fmt: skip
            self._process = subprocess.Popen(
                [*_DIES_WITH_US, str(_PROGRAM)], cwd=self.folder, env=environ,
                # Left open: Erlang's shell ends the node with its input.
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._until_it_answers()

    def kill(self) -> None:
        """As by kill -9, with whatever it started."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def freeze(self) -> None:
        """It does nothing more, and answers nobody, until `thaw`."""
        os.killpg(self.pid, signal.SIGSTOP)
        wait_until(lambda: has_stopped(self.pid), lambda: "it does not stop")

    def thaw(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
        while self._claims:
            self._claims.pop().close()

    def connect(self) -> Any:
        return Connection(self.url)

    def count(self, queue: str) -> int:
        """How many messages are ready in a queue."""
        with self.connect() as connection:
            answer = connection.default_channel.queue_declare(queue, passive=True)
            return int(answer.message_count)

    def peek(self, queue: str) -> list[Any]:
        """The messages that are ready in a queue; they stay there."""
        with self.connect() as connection:
            channel = connection.default_channel
            return list(iter(lambda: channel.basic_get(queue), None))

    def unacked(self, queue: str) -> int:
        """How many messages of a queue are in the hands of its consumers."""
        return self._listed("messages_unacknowledged")[queue]

    def totals(self) -> dict[str, int]:
        """How many messages each queue had some seconds ago, with those that it is about to pass on."""
        return self._listed("messages")

    def _listed(self, what: str) -> dict[str, int]:
        lines = self.ctl("list_queues", "--silent", "name", what).splitlines()
        return {name: int(count) for name, count in (line.split("\t") for line in lines)}

    def ctl(self, *arguments: str) -> str:
        """What `rabbitmqctl …` says of this node; it takes a second or two."""
        script = "/usr/lib/rabbitmq/bin/rabbitmqctl"
        ran = subprocess.run(
            [script, *arguments], env=self._environ(), capture_output=True, text=True, timeout=_PATIENCE,
            check=False,
        )  # fmt: skip
        assert ran.returncode == 0, f"rabbitmqctl {arguments}: {ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def close_connections(self, reason: str) -> None:
        """As `rabbitmqctl close_all_connections`, at once: no second Erlang has to start for it."""
        cookie = (self.folder / ".erlang.cookie").read_text(encoding="ascii")
        text = f'rabbit_networking:close_connections(rabbit_networking:connections(), "{reason}").\n'
        ran = subprocess.run(
            ["erl_call", "-sname", self._node, "-c", cookie, "-e"], input=text, env=self._environ(),
            capture_output=True, text=True, timeout=_PATIENCE, check=True,
        )  # fmt: skip
        assert ran.stdout == "{ok, ok}", ran.stdout

    def log(self) -> str:
        return (self.folder / "server.log").read_text(encoding="utf-8", errors="replace")

    def _environ(self) -> dict[str, str]:
        folder = str(self.folder)
        return {
            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
            "HOME": folder,
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/logs",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/advanced.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/none.conf",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +SDio 2 +A 8",
            "RABBITMQ_ALLOW_INPUT": "true",  # or a shell stands between us and the node
        }

    def _until_it_answers(self) -> None:
        end = time.monotonic() + _PATIENCE
        while True:
            assert self._process is not None
            assert self._process.poll() is None, f"RabbitMQ ended:\n{self.log()[-4_000:]}"
            assert time.monotonic() < end, f"RabbitMQ does not start:\n{self.log()[-4_000:]}"
            with suppress(OSError), self.connect() as connection:
                connection.connect()
                return
            time.sleep(0.1)


@contextmanager
def running() -> Iterator[Rabbit]:
    folder = Path(tempfile.mkdtemp(prefix="postroom-rabbit-"))
    node = Rabbit(folder)
    try:
        node.start()
        yield node
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)
