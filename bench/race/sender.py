"""`python -m bench.race.sender NAME URL TERMS`: puts jobs as it is told, and says how long it took.

Reads a JSON object a line: {"do": "put" | "put_many" | "fill", "count": n} is answered by {"seconds": …},
{"do": "paced", …} (see `_Paced`) by {"sent": […]}, the monotonic time just before each (nanoseconds).
Ends with its input.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.measure import wait_until
from bench.race.ledger import Ledger
from bench.stage import BODY
from bench.systems import Body, Nobody, System, Terms, kind_of


def main(name: str, url: str, terms: str) -> None:
    with closing(kind_of(name)(url, Nobody(), Terms(**json.loads(terms)))) as system:
        _say({"ready": True})
        for line in sys.stdin:
            _say(_done(system, json.loads(line)))


def _done(system: System, order: dict[str, Any]) -> dict[str, Any]:
    what = order.pop("do")
    if what == "paced":
        return {"sent": _Paced(**order).send(system)}
    bodies = [BODY] * order["count"]
    began = time.perf_counter()
    if what == "put_many":
        system.send_many(bodies)
    elif what == "fill":
        system.fill(len(bodies))
    else:
        system.send(bodies)
    return {"seconds": time.perf_counter() - began}


@dataclass
class _Paced:
    """Jobs with keys from `first` on, put with pauses between them, for so many seconds at most."""

    count: int
    first: int = 1
    delay: float = 0
    urgent: bool = False
    #: Not shorter nor longer than these (seconds).
    pause: tuple[float, float] = (0, 0)
    #: The next waits until the one before began, by this ledger.
    ledger: str = ""
    #: Whether they are held until the gate is open.
    gate: bool = False
    seconds: float = 60
    sent: list[int] = field(default_factory=list)

    def send(self, system: System) -> list[int]:
        # One call, because some connect for every call: the bodies come when it is their time.
        system.send(self._bodies(), self.delay, self.urgent)
        return self.sent

    def _bodies(self) -> Iterator[Body]:
        ledger = Ledger(Path(self.ledger)) if self.ledger else None
        begun = len(ledger) if ledger else 0
        end = time.monotonic() + self.seconds
        for number in range(self.count):
            if time.monotonic() > end:
                return
            if self.pause[1]:
                time.sleep(random.uniform(*self.pause))
            self.sent.append(time.monotonic_ns())
            yield BODY | {"key": self.first + number} | ({"gate": True} if self.gate else {})
            if ledger:
                wait_until(partial(_has, ledger, begun + number + 1), 30)


def _has(ledger: Ledger, count: int) -> bool:
    return len(ledger) >= count


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
