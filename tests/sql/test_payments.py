"""examples/payments, its short version on a real PostgreSQL; and its judge, who must be able to say no."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from examples.payments import provider, shop
from examples.payments.__main__ import Scene
from examples.payments.verdict import Verdict, judge


@pytest.mark.timeout(600)
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_killed_workers_and_a_provider_that_is_down_pay_every_invoice_once(url: str, tmp_path: Path) -> None:
    report = Scene(tmp_path, url, workers=3).run(kills=10, down=1.0)
    assert report.ok, "\n".join(report.lines())
    assert report.messages > report.verdict.invoices > 0
    assert report.breaker[0] == "open"
    assert report.breaker[-1] == "closed"
    # Without the breaker every message would have asked, again and again.
    assert 0 < report.verdict.while_down < report.messages


# --- the judge -----------------------------------------------------------------------------------

INVOICES = {"INV-1": 100, "INV-2": 200}


class Books:
    """The provider's ledger and the shop's database, for a test to write into."""

    def __init__(self, folder: Path) -> None:
        self.ledger = f"{folder}/ledger.db"
        self._provider = sqlite3.connect(self.ledger, isolation_level=None)
        self._provider.executescript(provider.LEDGER)
        self.shop: Engine = create_engine(f"sqlite:///{folder}/shop.db")
        shop.make_book(self.shop)

    def charge(self, invoice: str, amount: int) -> None:
        self._provider.execute("INSERT INTO charges VALUES (?, ?, ?)", (invoice, invoice, amount))
        self._provider.execute("INSERT INTO requests VALUES (?, 200)", (invoice,))

    def book(self, invoice: str, amount: int, charge: int) -> None:
        row = {"invoice": invoice, "amount": amount, "charge": charge}
        with self.shop.begin() as connection:
            connection.execute(text("INSERT INTO payments VALUES (:invoice, :amount, :charge)"), row)

    def judged(self) -> Verdict:
        return judge(INVOICES, self.ledger, self.shop)

    def close(self) -> None:
        self._provider.close()
        self.shop.dispose()


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    books = Books(tmp_path)
    for number, (invoice, amount) in enumerate(INVOICES.items(), 1):
        books.charge(invoice, amount)
        books.book(invoice, amount, number)
    yield books
    books.close()


def test_right_books_are_ok(books: Books) -> None:
    assert books.judged().ok


def test_a_second_charge_is_seen(books: Books) -> None:
    books.charge("INV-1", 100)
    verdict = books.judged()
    assert (verdict.ok, verdict.charged_twice) == (False, ["INV-1"])


def test_a_second_payment_is_seen(books: Books) -> None:
    books.book("INV-2", 200, 2)
    verdict = books.judged()
    assert (verdict.ok, verdict.paid_twice) == (False, ["INV-2"])


def test_what_was_never_paid_is_seen(books: Books) -> None:
    more = INVOICES | {"INV-3": 300}
    verdict = judge(more, books.ledger, books.shop)
    assert (verdict.ok, verdict.charged_never, verdict.paid_never) == (False, ["INV-3"], ["INV-3"])


@pytest.mark.parametrize(("invoice", "amount"), [("INV-1", 101), ("INV-9", 1)])
def test_a_wrong_amount_and_a_strange_invoice_are_seen(books: Books, invoice: str, amount: int) -> None:
    books.charge(invoice, amount)
    books.book(invoice, amount, 3)
    assert books.judged().wrong
