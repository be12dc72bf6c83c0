"""What happened, by the books of those concerned: the provider's ledger and the shop's database."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Engine, text


class Verdict(NamedTuple):
    """Invoices by what is wrong with them, and what the run was like."""

    invoices: int
    charged_twice: list[str]
    charged_never: list[str]
    paid_twice: list[str]
    paid_never: list[str]
    #: The books disagree about an amount or a charge, or know an invoice that nobody wrote.
    wrong: list[str]
    #: Charges that were asked for again after they had been made: somebody died in the gap, or came twice.
    repeated: int
    #: How often the provider was asked while it was down.
    while_down: int

    @property
    def ok(self) -> bool:
        faults = (self.charged_twice, self.charged_never, self.paid_twice, self.paid_never, self.wrong)
        return not any(faults)


def judge(invoices: Mapping[str, int], ledger: str, shop: Engine) -> Verdict:
    """Compare what had to be paid with what was."""
    with sqlite3.connect(ledger) as db:
        charges = db.execute("SELECT invoice, amount, rowid FROM charges").fetchall()
        answers = Counter(answer for (answer,) in db.execute("SELECT answer FROM requests"))
    db.close()
    with shop.connect() as connection:
        rows = connection.execute(text("SELECT invoice, amount, charge FROM payments")).fetchall()
    charged, paid = Counter(each[0] for each in charges), Counter(each[0] for each in rows)
    right = {(invoice, amount) for invoice, amount in invoices.items()}
    moved, booked = {tuple(each) for each in charges}, {tuple(each) for each in rows}
    return Verdict(
        invoices=len(invoices),
        charged_twice=[invoice for invoice, times in charged.items() if times > 1],
        charged_never=[invoice for invoice in invoices if not charged[invoice]],
        paid_twice=[invoice for invoice, times in paid.items() if times > 1],
        paid_never=[invoice for invoice in invoices if not paid[invoice]],
        wrong=[str(each) for each in moved ^ booked] + [str(each) for each in moved if each[:2] not in right],
        repeated=answers[200] - len(charges),
        while_down=answers[503],
    )
