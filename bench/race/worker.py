"""`python -m bench.race.worker NAME URL TERMS LEDGER HELD`: works until it is killed; see `ledger`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.race.ledger import Ledger, LedgerWatch
from bench.systems import Terms, kind_of


def main(name: str, url: str, terms: str, ledger: str, held: str) -> None:
    path = Path(ledger)
    watch = LedgerWatch(Ledger(path), held, path.with_name("gate"))
    kind_of(name)(url, watch, Terms(**json.loads(terms))).work()


if __name__ == "__main__":
    main(*sys.argv[1:])
