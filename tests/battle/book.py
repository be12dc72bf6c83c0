"""A database in which work has an effect, kept single by the SQL guard; not everybody has SQLAlchemy."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Column, Engine, MetaData, Table, Text, create_engine, event, insert, text
from sqlalchemy.pool import NullPool

from postroom import sqlguard

#: Nothing in this table keeps a second row away: that is the guard's work.
effects = Table("effects", MetaData(), Column("label", Text, nullable=False))


def opened(url: str) -> Engine:
    # Not a pool: a forked child must not use its parent's connections, and a file opens fast.
    engine = create_engine(url, connect_args={"timeout": 30}, poolclass=NullPool)
    # Whoever is killed is a process, not the machine: nothing is synced.
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    return engine


def make(url: str) -> None:
    with opened(url).begin() as connection:
        connection.execute(text("PRAGMA journal_mode = WAL"))
        sqlguard.processing_log.metadata.create_all(connection)
        effects.metadata.create_all(connection)


def take_effect(url: str, label: str) -> None:
    """Once, however often this is called."""
    with opened(url).begin() as connection:
        entry = sqlguard.enter(connection, "work", label)
        if not entry.done:
            connection.execute(insert(effects).values(label=label))
            entry.finish(None)


def read(url: str) -> Counter[str]:
    """How often each label has had its effect."""
    with opened(url).connect() as connection:
        rows = connection.execute(text("SELECT label, count(*) FROM effects GROUP BY label"))
        return Counter(dict(rows.tuples().all()))
