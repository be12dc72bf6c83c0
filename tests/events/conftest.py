"""One RabbitMQ for the tests of a process: it takes seconds to start. Services have names of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.events.rabbit import Rabbit, running


@pytest.fixture(scope="session")
def rabbit() -> Iterator[Rabbit]:
    with running() as node:
        yield node
