"""The processes of the demo, seen from outside: started, listened to, and ended by their ids."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from types import TracebackType
from typing import Self

import msgspec

from postroom.cli.demo import wire
from postroom.cli.demo.ledger import CONSUMER, Ledger, Run, Taken

#: How long they may take to end when asked to (seconds): longer than a worker waits for its handlers.
_PATIENCE = 10.0
#: What the consumer has in hand when it is killed.
_IN_HAND = 3
_COMMAND = (sys.executable, "-P", "-m")


class Member:
    """One process, from its start; it does nothing before it has a part."""

    def __init__(self, name: str, ledger: Ledger, module: str = "staff") -> None:
        self.name = name
        self.is_ready: threading.Event = threading.Event()
        #: Set with the first work that it reports as done.
        self.has_done: threading.Event = threading.Event()
        #: When it last reported anything (monotonic seconds); 0: never.
        self.heard_at: float = 0.0
        self._ledger = ledger
        self._runs: dict[int, Run] = {}
        #: The exit codes with which it may end by now.
        self._fine: set[int] = set()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            (*_COMMAND, f"postroom.cli.demo.{module}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            process_group=0,  # Ctrl-C is for the demo, which then asks everybody else to stop
        )
        self._listener = threading.Thread(target=self._listen, name=f"listens to {name}", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def play(self, part: wire.Part) -> None:
        """Give it its part."""
        self._say(msgspec.json.encode(part))

    def cue(self) -> None:
        """Now is the time, if its part is to wait for it."""
        self._say(b"")

    def ask_to_stop(self) -> None:
        self._fine |= {0, -signal.SIGTERM}
        self._process.terminate()

    def kill(self) -> None:
        """End it without warning (SIGKILL); afterwards everything that it said is in the ledger."""
        self._fine |= {-signal.SIGKILL}
        self._process.kill()
        self._listener.join()

    def has_ended(self, within: float) -> bool:
        """Whether it has ended, and all that it said is in the ledger; waits so many seconds for it."""
        self._listener.join(max(0.0, within))
        return not self._listener.is_alive()

    def close(self) -> None:
        """Give up what belongs to a process that has ended."""
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream:
                stream.close()

    def note_accident(self, what: str) -> None:
        self._ledger.crashed.add(self.name)
        self._ledger.accident = self._ledger.accident or f"{self.name} (pid {self.pid}) {what}"

    def _say(self, line: bytes) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # how it ended, the listener tells
            os.write(self._process.stdin.fileno(), line + b"\n")

    def _listen(self) -> None:
        assert self._process.stdout
        try:
            for report in wire.reports(self._process.stdout):
                self._note(report)
        except msgspec.DecodeError as error:
            self.note_accident(f"said what is no report: {error}")
            self._process.kill()
        code = self._process.wait()
        if code not in self._fine:
            self.note_accident(self._how_it_ended(code))

    def _note(self, report: wire.Report) -> None:
        self.heard_at = time.monotonic()
        match report:
            case wire.Ready():
                self.is_ready.set()
            case wire.Took():
                self._ledger.taken = [Taken(number, report.asked) for number in report.numbers]
            case wire.Began():
                run = self._ledger.begin(report.number, self.name, report.attempt, report.at)
                self._runs[report.run] = run
            case wire.Ended():
                self._ledger.end(self._runs.pop(report.run), report.at, report.error, report.retry_in)
                self.has_done.set()

    def _how_it_ended(self, code: int) -> str:
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(said) if line.strip()), "it gave no reason")
        return f"ended with exit code {code}: {last:.200}"


class Company:
    """Two workers, a consumer to be killed, and a Celery worker if there is Celery.

    All start at once, and none of them outlives the `with`.
    """

    def __init__(self, ledger: Ledger, url: str, seconds: float) -> None:
        self._ledger = ledger
        self._celery_part = wire.Part("celery", url, seconds)
        self._parts = [
            wire.Part("worker 1", url, seconds),
            wire.Part("worker 2", url, seconds),
            wire.Part(CONSUMER, url, seconds, take=_IN_HAND),
        ]
        self._members: list[Member] = []
        self._celery_workers: list[Member] = []

    def __enter__(self) -> Self:
        for part in self._parts:
            self._members.append(Member(part.name, self._ledger))
            self._members[-1].play(part)
        if self._ledger.celery.played:
            self.start_celery_worker()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stop()
        finally:
            for member in self._everybody:
                member.kill()
                member.close()

    @property
    def _everybody(self) -> list[Member]:
        return self._members + self._celery_workers

    def start_celery_worker(self) -> Member:
        """One more Celery worker, which waits for its cue."""
        name = f"celery worker {len(self._celery_workers) + 1}"
        member = Member(name, self._ledger, "celery_staff")
        self._celery_workers.append(member)
        member.play(msgspec.structs.replace(self._celery_part, name=name))
        return member

    @property
    def celery_worker(self) -> Member:
        """The newest."""
        return self._celery_workers[-1]

    @property
    def workers(self) -> list[Member]:
        return self._members[:-1]

    @property
    def consumer(self) -> Member:
        return self._members[-1]

    def introduction(self) -> str:
        """Who is going to work."""
        words = f"two worker processes, {' and '.join(str(worker.pid) for worker in self.workers)}"
        return f"{words}, and a Celery worker, {self.celery_worker.pid}" if self._celery_workers else words

    def is_ready(self) -> bool:
        return all(member.is_ready.is_set() for member in self._members)

    def is_quiet(self, span: float) -> bool:
        """Whether nothing is going to happen any more: nobody has reported anything for so many seconds."""
        if self._celery_workers and not self.celery_worker.is_ready.is_set():
            return False  # it takes its time to start
        heard_at = max(member.heard_at for member in self._everybody)
        return 0 < heard_at < time.monotonic() - span

    def kill_consumer(self) -> int:
        """kill -9, once it has reported what it holds; returns its id."""
        self.consumer.kill()
        self._ledger.killed = self.consumer.pid
        return self.consumer.pid

    def kill(self, member: Member) -> None:
        """kill -9; what it had in hand may be anywhere."""
        self._ledger.crashed.add(member.name)
        member.kill()

    def _stop(self) -> None:
        for member in self._everybody:
            member.ask_to_stop()
        end = time.monotonic() + _PATIENCE
        for member in self._everybody:
            if not member.has_ended(end - time.monotonic()):
                member.note_accident(f"did not stop within {_PATIENCE:g} s")
