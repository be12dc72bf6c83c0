"""A real server is asked everything that its OpenAPI document allows, and what it does not: it answers.

Schemathesis makes the requests of the document; the same ones each time. Half of them are about a queue,
messages and letters that there are, or hardly any would get further than to a 404.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok

from tests.http.servers import PATIENCE, Served, serving

#: Requests of each kind for each route; so all of them take less than a minute.
EXAMPLES = 4
#: The routes are asked in so many tests: each takes seconds, and has its whole timeout on a busy machine.
PARTS = 6
#: Answers that never end.
ENDLESS = "/api/v1/events"
BODY = {"n": 1, "password": "hunter2"}

quietly = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Target:
    """A server with something in it, and the operations of its document."""

    def __init__(self, served: Served, http: httpx.Client) -> None:
        self.served, self.http, self.session = served, http, requests.Session()
        self._queues = 0
        document = http.get("/schema/openapi.json").json()
        del document["security"], document["components"]["securitySchemes"]  # or it makes up tokens
        schema = schemathesis.openapi.from_dict(document)
        found: list[Any] = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
        self.operations = [each for each in found if each.path != ENDLESS]

    def seed(self, path: str) -> dict[str, str]:
        """What a path can be about, in a queue of its own: nobody knows what was asked of the others."""
        self._queues += 1
        queue = f"emails-{self._queues}"
        known = {"queue": queue, "name": queue, "topic": "news", "id": self._put(queue, 1)}
        if "{receipt}" in path or "/dead/" in path:
            self._put(queue, 200)
            (held,) = self.http.post(f"/queues/{queue}/claim").json()["deliveries"]
            known["receipt"] = held["receipt"]
            if "/dead/" in path:
                self.http.post(f"/deliveries/{held['receipt']}/bury", json={"reason": "no"})
                known["id"] = held["id"]
        return known

    def _put(self, queue: str, priority: int) -> str:
        put = self.http.post(f"/queues/{queue}/messages", json={"body": BODY, "priority": priority})
        return str(put.json()["id"])


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzz")
    with serving("memory://", folder) as served, httpx.Client(base_url=served.api, timeout=PATIENCE) as http:
        target = Target(served, http)
        with target.session:
            yield target
    assert "Traceback" not in (folder / "serve.log").read_text()


def ask(target: Target, case: Case[Any], known: dict[str, str] | None) -> None:
    if known:
        case.path_parameters = {**(case.path_parameters or {}), **_in(case, known)}
    if isinstance(case.body, dict) and "wait" in case.body:
        case.body["wait"] = 0  # it may wait for minutes
    answer = case.call(base_url=target.served.address, session=target.session, timeout=PATIENCE)
    text = answer.text
    told = (
        f"{case.method} {case.formatted_path} {case.query!r} {case.body!r}: {answer.status_code} {text[:500]}"
    )
    assert answer.status_code < 500, told
    assert "Traceback" not in text, told
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == ["application/problem+json"], told
        assert answer.json()["code"], told


def _in(case: Case[Any], known: dict[str, str]) -> dict[str, str]:
    return {name: known[name] for name in case.path_parameters or {} if name in known}


def test_the_document_tells_of_the_routes(target: Target) -> None:
    assert len(target.operations) > 40


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_that_is_asked_breaks_it(target: Target, part: int) -> None:
    faults = list[str]()
    for operation in target.operations[part::PARTS]:
        known = target.seed(operation.path)
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @quietly
            @given(case=operation.as_strategy(generation_mode=mode), about_known=st.booleans())
            def asked(case: Case[Any], about_known: bool) -> None:
                ask(target, case, known if about_known else None)  # noqa: B023 — called before they change

            try:
                asked()
            except Unsatisfiable:  # a route that takes nothing cannot be asked wrongly
                assert mode is GenerationMode.NEGATIVE
            except AssertionError as error:
                faults.append(str(error))
    assert not faults, "\n".join(faults)
    assert target.http.get("/queues").status_code == 200
