"""Lists on the pages are those of the code: nothing is missing, and nothing is made up."""

from __future__ import annotations

import re

from postroom import settings, timetable
from postroom.celery import options
from postroom.engines import sqlite
from postroom.engines.redis import urls
from postroom.errors import InvalidInput
from postroom.http.problems import STATUSES
from postroom.http.roles import ACTIONS, Action, Role
from postroom.logs import Event
from tests.docs.blocks import REPO
from tests.test_names import is_option

DOCS = REPO / "docs"
#: Where an act is noted under its name.
_NOTED = re.compile(r'(?:audit\.note\([\w.]+, |self\._audit\(|self\._note\()"([a-z_.]+)"')


def text_of(page: str, begin: str = "", end: str = "\0") -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert begin in text
    return text.partition(begin)[2].partition(end)[0] if begin else text.partition(end)[0]


def first_cells(text: str) -> set[str]:
    """The names in the first cell of every row."""
    cells = re.findall(r"^\| ([^|]*`[^|]*) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_what_a_history_tells() -> None:
    assert first_cells(text_of("reference/events.md", end="## Topics")) == set(Event)


def test_pages_of_the_dashboard_and_their_keys() -> None:
    """What the how-to says is pressed leads to what it says."""
    source = (REPO / "src/postroom/dashboard/pages.js").read_text(encoding="utf-8")
    keys = set(re.findall(r'title: "([^"]+)", icon: "\w+", key: "(\w)"', source))
    page = text_of("how-to/watch-in-a-browser.md")
    told = set(re.findall(r"^\| ([A-Z][^|]+) \| .* \| `g (\w)` \|$", page, re.MULTILINE))
    assert len(told) >= 8 and told <= keys


def test_what_the_audit_tells() -> None:
    sources = (path.read_text(encoding="utf-8") for path in (REPO / "src").rglob("*.py"))
    noted = {name for text in sources for name in _NOTED.findall(text)}
    listed = first_cells(text_of("reference/events.md", begin="## The audit"))
    assert len(noted) > 15 and noted <= listed


def first_words(begin: str) -> set[str]:
    """The names of a table of the configuration that are no settings of their own: roles, schedules."""
    table = text_of("reference/config.md", begin=begin, end="\n\n").partition("|---|\n")[2]
    return {name for row in table.splitlines() for name in row.split("|")[1].strip().split(", ")}


def test_settings_of_roles_queues_and_schedules() -> None:
    assert first_words("`[roles.NAME]` takes:\n\n") == set(settings.ROLE_LEVEL)
    assert first_words("are no part of its stored policy:\n\n") == {*settings.SHARE, *settings.ROUTING}
    assert first_words("| setting of a schedule | default | meaning ") == set(timetable.SETTINGS)


def test_options_of_redis_urls() -> None:
    table = text_of("reference/engines.md", begin="| option | default |", end="\n\n")
    assert first_cells(table) | {"db", "ssl"} == set(urls.OPTIONS), "those two are forms of the URL"


def test_options_of_sqlite_urls() -> None:
    table = text_of("how-to/use-a-sqlite-file.md", begin="| option | default |", end="\n\n")
    assert first_cells(table) == {f"?{name}=" for name in sqlite._OPTIONS}


def is_known(option: str) -> bool:
    """Also one that cannot be nothing."""
    try:
        return is_option(option)
    except InvalidInput:
        return True


def test_options_of_the_transport() -> None:
    table = first_cells(text_of("reference/celery.md", begin="| option | default |", end="\n\n"))
    assert [name for name in table - {"broker_use_ssl"} if not is_known(name)] == [], "that one is Celery's"
    assert table >= options._IN_URL.keys() | options._WITHOUT_EFFECT.keys()


def test_rights_and_roles() -> None:
    rights = re.search(r"The rights are (.+?)\.\n", text_of("how-to/secure-the-server.md"), re.DOTALL)
    assert rights
    assert set(re.findall(r"`(\w+)`", rights[1])) == set(Action) - {Action.PUBLIC}
    table = text_of("how-to/secure-the-server.md", begin="| role | may |", end="\n\n")
    assert re.findall(r"^\| (\w+) \|", table, re.MULTILINE) == [role.value for role in Role]
    assert ACTIONS[Role.VIEWER] < ACTIONS[Role.OPERATOR] < ACTIONS[Role.ADMIN], (
        "each may what the one above may"
    )


def test_codes_that_no_error_of_ours_has() -> None:
    """What is refused before any verb is asked; each is told in the page of HTTP."""
    sources = (REPO / "src" / "postroom" / "http").glob("*.py")
    said = "".join(each.read_text(encoding="utf-8") for each in sources)
    codes = set(re.findall(r'(?:Refusal|document)\(\d{3}, "(\w+)"', said)) - STATUSES.keys()
    assert {"wrong_host", "foreign_origin", "head_too_large"} <= codes
    page = (REPO / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    assert {code for code in codes | {"method_not_allowed"} if f"`{code}`" not in page} == set()
