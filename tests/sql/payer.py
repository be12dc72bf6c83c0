"""A process that pays one invoice, and stops wherever the test wants to kill it.

python payer.py URL INVOICE          says "entered", waits for a line, then commits and says "paid" or "done"
"""

from __future__ import annotations

import sys

from sqlalchemy import create_engine, text

from postroom import sqlguard


def main(url: str, invoice: str) -> None:
    with create_engine(url).begin() as connection:
        entry = sqlguard.enter(connection, "pay", invoice)
        if not entry.done:
            connection.execute(text("INSERT INTO payments VALUES (:invoice)"), {"invoice": invoice})
        print("entered", flush=True)
        sys.stdin.readline()
    print("done" if entry.done else "paid", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
