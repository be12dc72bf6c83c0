"""The archives of event services in the browser: looked at, replayed to that service alone, discarded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from postroom.room import Room
from tests.dashboard.eyes import Eyes
from tests.events.stage import Stage
from tests.events.test_archive import EVENT
from tests.events.test_served import served as serving_archives
from tests.http.servers import Served

Look = Callable[..., Eyes]
pytestmark = pytest.mark.timeout(600)


def test_without_a_service_it_says_how_to_have_one(look: Look, served: Served, room: Room) -> None:
    page = look(served, "/events").page
    page.get_by_role("button", name="Archives").click()
    expect(page.get_by_text("No service is shown here")).to_be_visible()
    expect(page.get_by_text("postroom serve --service billing")).to_be_visible()


def test_archived_events_are_replayed_and_discarded(look: Look, served: Served, tmp_path: Path) -> None:
    broker = f"postroom+sqlite:///{tmp_path}/broker.db"
    with Stage(broker, tmp_path, max_retries=0) as stage:
        stage.worker("billing")
        name = stage.name("billing")
        for number in (1, 2, 3):
            stage.publish(EVENT, number, fail_in=name)
        with serving_archives(broker, name, tmp_path, max_retries=0) as server:
            eyes = look(server, "/events?tab=archives")
            page = eyes.page
            rows = page.get_by_role("table", name="Archived events").locator("tbody tr.opens")
            expect(rows).to_have_count(3)
            expect(page.locator(".figures")).to_contain_text(f"{name} on this store")
            page.get_by_role("navigation", name="Groups").get_by_role("button").click()
            page.get_by_role("button", name="Acknowledge").click()
            expect(page.get_by_role("region", name="Group")).to_contain_text("acknowledged")

            rows.filter(has_text="order 1 fails").click()
            letter = page.get_by_role("dialog")
            expect(letter).to_contain_text("ValueError: order 1 fails")
            letter.get_by_role("button", name="Replay").click()
            stage.until(lambda: len(stage.lines("placed", number=1)) == 2)

            rows.filter(has_text="order 2 fails").get_by_role("checkbox").check()
            page.get_by_role("button", name="Replay 1").click()
            dialog = page.get_by_role("dialog", name="Replay")
            expect(dialog).to_contain_text("the 1 dead letter you selected")
            expect(dialog.get_by_label("Into queue")).to_have_count(0)
            dialog.get_by_role("button", name="Replay 1 letter").click()
            stage.until(lambda: len(stage.lines("placed", number=2)) == 2)

            rows.filter(has_text="order 3 fails").click()
            expect(letter).to_contain_text("ValueError: order 3 fails")
            letter.get_by_role("button", name="Discard…").click()
            page.get_by_role("dialog", name="Discard").get_by_role(
                "button", name="Discard", exact=True
            ).click()
            expect(rows.filter(has_text="order 3 fails")).to_have_count(0)
            eyes.close()
