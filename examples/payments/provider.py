"""A payment provider, as strangers run one: its own process, its own ledger, and it goes down at times.

    POST /charge   {"invoice": …, "amount": …} with the header Idempotency-Key: charges once for a key
    POST /down     answers 503 from now on;  POST /up: works again

The ledger is a file of its own: `charges` is money that moved, `requests` is how often that was asked for.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from examples.payments.lifeline import end_with_parent

LEDGER = """
CREATE TABLE IF NOT EXISTS charges (key TEXT, invoice TEXT, amount INTEGER);
CREATE TABLE IF NOT EXISTS requests (key TEXT, answer INTEGER);
"""


class Ledger:
    """What the provider knows. Nothing here stops a second charge but the look at the key."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.executescript(LEDGER)

    def charge(self, key: str, invoice: str, amount: int) -> int:
        """The number of the charge; for a key that was charged before, of that one."""
        with self._lock:
            known = self._db.execute("SELECT rowid FROM charges WHERE key = ?", (key,)).fetchone()
            if known:
                return int(known[0])
            made = self._db.execute("INSERT INTO charges VALUES (?, ?, ?)", (key, invoice, amount))
            return int(made.lastrowid or 0)

    def note(self, key: str, answer: int) -> None:
        with self._lock:
            self._db.execute("INSERT INTO requests VALUES (?, ?)", (key, answer))


class Desk(BaseHTTPRequestHandler):
    ledger: Ledger
    is_down = threading.Event()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        match self.path:
            case "/charge":
                self._charge(self.headers["Idempotency-Key"], body)
            case "/down":
                self.is_down.set()
                self._answer(200, {})
            case "/up":
                self.is_down.clear()
                self._answer(200, {})
            case _:
                self._answer(404, {})

    def _charge(self, key: str, body: dict[str, Any]) -> None:
        if self.is_down.is_set():
            self.ledger.note(key, 503)
            self._answer(503, {"error": "we are down"})
            return
        time.sleep(random.uniform(0, 0.01))  # whoever dies here has asked and is not charged yet
        number = self.ledger.charge(key, body["invoice"], body["amount"])
        self.ledger.note(key, 200)
        time.sleep(random.uniform(0, 0.01))  # whoever dies here is charged and does not know
        self._answer(200, {"charge": number})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:  # who asked is dead
            self.close_connection = True

    def log_message(self, *args: object) -> None:
        """Quiet: the ledger says it all."""


def main(path: str) -> None:
    end_with_parent()
    Desk.ledger = Ledger(path)
    with ThreadingHTTPServer(("127.0.0.1", 0), Desk) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
