"""One PostgreSQL for all tests of a process; each test has its own tables on it, or a file of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from postroom import sqlguard
from tests.sql import postgres


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Postgres]:
    with postgres.running() as server:
        yield server


@pytest.fixture(params=["postgresql", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    server: postgres.Postgres = request.getfixturevalue("server")
    with server.connect() as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return server.url


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """A shop with a table of payments, in which nothing stops a second one but the guard."""
    engine = create_engine(url)
    with engine.begin() as connection:
        sqlguard.processing_log.metadata.create_all(connection)
        connection.execute(text("CREATE TABLE payments (invoice TEXT)"))
    yield engine
    engine.dispose()
