"""Dead letters in the browser: groups, the filter, notes, replay one first, an edited payload, discard."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from postroom import Policy, audit
from postroom.deadletters import DeadLetters
from postroom.http import tokens
from postroom.http.api import dead
from postroom.http.auth import Access
from postroom.http.roles import Role
from postroom.http.security import secured
from postroom.jobs import Jobs
from postroom.model import Failure, NewMessage
from postroom.room import Room
from tests.dashboard.eyes import Eyes, until
from tests.dashboard.scenes import fail
from tests.http.servers import Served, served_here, serving

Look = Callable[..., Eyes]


def kill(room: Room, *errors: str, queue: str = "pay") -> list[str]:
    """Messages that were given up, one for each error."""
    where = room.queue(queue)
    ids = [where.put({"n": n, "user": {"id": 40 + n}}, kind="charge").id for n in range(len(errors))]
    for delivery, error in zip(where.claim_many(len(errors)), errors, strict=True):
        delivery.bury(RuntimeError(error))
    return ids


def finish(room: Room, queue: str = "pay") -> None:
    """What a healthy worker does: everything that waits succeeds."""
    for delivery in room.queue(queue).claim_many(100):
        delivery.ack()


def test_what_failed_alike_is_a_group_to_choose_from(look: Look, served: Served, room: Room) -> None:
    kill(room, "declined", "declined", "declined", "no such card")
    page = look(served, "/dead").page
    groups = page.get_by_role("navigation", name="Groups").get_by_role("button")
    expect(groups).to_have_count(2)
    expect(groups.first).to_contain_text("declined")
    expect(groups.first).to_contain_text("3")
    table = page.get_by_role("table", name="Dead letters")
    expect(table.locator("tbody tr")).to_have_count(4)
    groups.first.click()
    expect(table.locator("tbody tr")).to_have_count(3)
    expect(page).to_have_url(re.compile(r"#/dead\?q=group"))
    groups.first.click()
    expect(table.locator("tbody tr")).to_have_count(4)


def test_groups_are_found_by_how_it_stands_with_them(look: Look, served: Served, room: Room) -> None:
    kill(room, "declined", "declined", "no such card")
    DeadLetters(room).note(DeadLetters(room).groups().groups[0].group, status="resolved")
    page = look(served, "/dead?q=group%3Aresolved").page
    groups = page.get_by_role("navigation", name="Groups").get_by_role("button")
    rows = page.get_by_role("table", name="Dead letters").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(groups).to_have_count(1)
    field = page.get_by_role("combobox", name="Filter dead letters")
    field.fill("group:open")
    field.press("Enter")
    expect(rows).to_have_count(1)
    expect(groups).to_contain_text("no such card")


def test_what_to_do_who_noted_and_how_many_are_kept(look: Look, served: Served, room: Room) -> None:
    room.queue("pay", Policy(on_dead="call the bank first", dead_limit=4))
    kill(room, "declined", "declined", "declined")
    (group,) = DeadLetters(room).groups().groups
    with audit.acting("ada"):
        DeadLetters(room).note(group.group, "asked them")
    page = look(served, "/dead").page
    said = page.get_by_role("list", name="What their queues say")
    expect(said).to_contain_text("call the bank first")
    expect(said.get_by_role("img", name="3 kept, of 4")).to_be_visible()
    expect(said).to_contain_text(re.compile(r"oldest \d+ s ago|oldest now"))
    expect(said).not_to_contain_text("gone")
    kill(room, "declined", "declined", "declined")
    room.engine.sweep("pay")
    expect(said).to_contain_text("2 letters gone, beyond its limit or retention")
    expect(page.get_by_role("navigation", name="Groups")).to_contain_text("ada")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/processing", "Filter what is processing"),
        ("/dead", "Filter dead letters"),
        ("/events", "Filter events"),
    ],
)
def test_a_key_leads_to_the_filter(look: Look, served: Served, room: Room, path: str, name: str) -> None:
    kill(room, "declined")
    room.queue("pay").put({})
    assert room.queue("pay").claim()
    page = look(served, path).page
    field = page.get_by_role("main").get_by_label(name)
    expect(field).to_be_visible()
    page.keyboard.press("/")
    expect(field).to_be_focused()
    expect(field).to_have_value("")


def test_a_key_replays_the_message_that_is_shown(look: Look, served: Served, room: Room) -> None:
    (id,) = kill(room, "declined")
    page = look(served, f"/queues/pay/messages/{id}").page
    expect(page.get_by_role("button", name="Replay")).to_be_visible()
    same = page.get_by_role("main").get_by_role("link", name="Dead letters")
    expect(same).to_have_attribute("href", "#/dead?q=queue%3Apay+kind%3Acharge")
    page.keyboard.press("r")
    expect(page.get_by_role("heading", level=1)).to_contain_text("ready")
    assert room.queue("pay").stats().ready == 1


def test_the_filter_is_the_address(look: Look, served: Served, room: Room) -> None:
    kill(room, "declined", "no such card")
    page = look(served, "/dead").page
    rows = page.get_by_role("table", name="Dead letters").locator("tbody tr")
    expect(rows).to_have_count(2)
    field = page.get_by_role("combobox", name="Filter dead letters")
    field.fill('error:"no such" payload.user.id:41 class:exception')
    field.press("Enter")
    expect(rows).to_have_count(1)
    page.reload()
    expect(rows).to_have_count(1)
    expect(field).to_have_value('error:"no such" payload.user.id:41 class:exception')
    field.fill("colour:red")
    field.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("colour: is not known")


def test_a_selection_outlives_what_comes_in_and_the_keyboard_alone_replays_it(
    look: Look, served: Served, room: Room
) -> None:
    first, second, _ = kill(room, "declined", "declined", "declined")
    page = look(served, "/dead").page
    rows = page.get_by_role("table", name="Dead letters").locator("tbody tr")
    expect(rows).to_have_count(3)
    for key in ("j", "x", "j", "Shift+X"):
        page.keyboard.press(key)
    expect(page.get_by_text("2 selected")).to_be_visible()
    kill(room, "no such card", queue="billing")  # before all others by the name of its queue
    pill = page.get_by_role("button", name="1 new row — show")
    expect(pill).to_be_visible()
    expect(rows.nth(0)).to_have_attribute("data-key", first)
    pill.click()
    expect(rows).to_have_count(4)
    expect(page.get_by_role("checkbox", name=f"Select {first}")).to_be_checked()
    expect(page.get_by_role("checkbox", name=f"Select {second}")).to_be_checked()
    page.reload()
    expect(page.get_by_text("2 selected")).to_be_visible()
    expect(page.get_by_role("checkbox", name=f"Select {second}")).to_be_checked()

    page.keyboard.press("r")
    dialog = page.get_by_role("dialog", name="Replay")
    expect(dialog).to_contain_text("the 2 dead letters you selected")
    replay = dialog.get_by_role("button", name="Replay 2 letters")
    expect(replay).to_be_enabled()
    dialog.get_by_role("checkbox", name="One first").press("Space")
    for _ in range(20):
        if replay.evaluate("node => node === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Replayed 2 dead letters.")).to_be_visible()
    assert room.queue("pay").stats().ready == 2


def test_a_note_is_kept_and_a_resolved_group_opens_again(look: Look, served: Served, room: Room) -> None:
    kill(room, "declined")
    page = look(served, "/dead").page
    group = page.get_by_role("navigation", name="Groups").get_by_role("button")
    group.click()
    card = page.get_by_role("region", name="Group")
    card.get_by_role("button", name="Note…").click()
    dialog = page.get_by_role("dialog", name="Incident note")
    dialog.get_by_label("What happened").fill(
        "The bank is **down**.\n\n- called them\n- `<b>443</b>` is shut: "
        "[status](https://bank.example/status)\n\n[no](javascript:alert(1))"
    )
    dialog.get_by_label("Kind of trouble").select_option("transient")
    dialog.get_by_label("Root cause").fill("their certificate")
    dialog.get_by_role("button", name="Keep the note").click()
    expect(card).to_contain_text("their certificate")
    notes = card.get_by_role("list", name="Notes")
    expect(notes).to_contain_text("The bank is down.")
    expect(notes.locator("strong")).to_have_text("down")
    expect(notes.locator("code")).to_have_text("<b>443</b>")
    expect(notes.get_by_role("listitem").filter(has_text="called them")).not_to_have_count(0)
    expect(notes.get_by_role("link")).to_have_count(1)
    expect(notes.get_by_role("link", name="status")).to_have_attribute("href", "https://bank.example/status")
    expect(notes).to_contain_text("[no](javascript:alert(1))")
    card.get_by_role("button", name="Acknowledge").click()
    expect(group).to_contain_text("acknowledged")
    card.get_by_role("button", name="Resolve").click()
    expect(group).to_contain_text("resolved")
    kill(room, "declined")
    expect(group).to_contain_text("open again")


def test_one_is_replayed_first_and_the_rest_when_it_succeeded(look: Look, served: Served, room: Room) -> None:
    kill(room, "declined", "declined", "declined")
    page = look(served, "/dead").page
    page.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog", name="Replay")
    expect(dialog.get_by_label("Dry run")).to_contain_text("3")
    expect(dialog.get_by_role("checkbox", name="One first")).to_be_checked()
    dialog.get_by_role("button", name="Replay 3 letters").click()
    jobs = page.get_by_role("region", name="Jobs")
    expect(jobs).to_contain_text("Replaying")
    expect(jobs).to_contain_text("one first")
    until(page, _READY, [served.api, 1])
    finish(room)
    until(page, _READY, [served.api, 2])
    expect(page.get_by_text("Replayed 3 dead letters.")).to_be_visible()
    expect(jobs).to_have_count(0)


#: So many of the queue wait to be worked on.
_READY = """async ([api, count]) =>
  (await (await fetch(`${api}/queues/pay/stats`)).json()).ready === count"""


def test_a_replay_says_why_and_can_rest(look: Look, served: Served, room: Room) -> None:
    kill(room, *["declined"] * 20)
    page = look(served, "/dead").page
    page.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog", name="Replay")
    dialog.get_by_role("checkbox", name="One first").uncheck()
    dialog.get_by_label("At most").fill("1/m")
    dialog.get_by_label("Note").fill("the bank für alle answers again")
    dialog.get_by_role("button", name="Replay 20 letters").click()
    jobs = page.get_by_role("region", name="Jobs")
    expect(jobs).to_contain_text("Replaying")
    jobs.get_by_role("button", name="Pause").click()
    expect(jobs).to_contain_text("Paused")
    (job,) = Jobs(room).list()
    until(
        page,
        """async ([api, id]) => (await (await fetch(`${api}/jobs/${id}`)).json()).state === "paused\"""",
        [served.api, job.id],
    )
    jobs.get_by_role("button", name="Resume").click()
    expect(jobs).to_contain_text("Replaying")
    jobs.get_by_role("button", name="Stop").click()
    expect(jobs).to_have_count(0)
    acts = [act for act in audit.read(room.engine).acts if act.event == "replay"]
    assert {act.info["reason"] for act in acts} == {"the bank für alle answers again"}


def test_letters_are_put_into_another_queue_and_once_more(look: Look, served: Served, room: Room) -> None:
    (id,) = kill(room, "declined")
    room.queue("slowly", Policy())
    page = look(served, f"/dead/pay/{id}").page
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_text("Replayed as")).not_to_have_count(0)
    assert room.queue("pay").stats().ready == 1
    page.goto(f"{served.address}/#/dead")
    page.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog", name="Replay")
    expect(dialog.get_by_label("Dry run")).to_contain_text("were replayed before1")
    dialog.get_by_label("Also those that were replayed before").check()
    dialog.get_by_label("Into queue").fill("slowly")
    dialog.get_by_role("button", name="Replay 1 letter").click()
    expect(page.get_by_text("Replayed 1 dead letter.")).to_be_visible()
    assert (room.queue("pay").stats().ready, room.queue("slowly").stats().ready) == (1, 1)


def test_many_are_discarded_when_their_number_is_typed(look: Look, served: Served, room: Room) -> None:
    kill(room, *["declined"] * 12)
    page = look(served, "/dead").page
    page.get_by_role("button", name="Discard…").click()
    dialog = page.get_by_role("dialog", name="Discard")
    discard = dialog.get_by_role("button", name="Discard 12 letters")
    expect(discard).to_be_disabled()
    dialog.get_by_label("Type 12 to go on").fill("12")
    discard.click()
    expect(page.get_by_text("Discarded 12 dead letters.")).to_be_visible()
    assert room.queue("pay").stats().dead == 0


def test_only_what_is_selected_is_discarded(look: Look, served: Served, room: Room) -> None:
    ids = kill(room, "declined", "declined", "no such card")
    page = look(served, "/dead").page
    for id in ids[:2]:
        page.get_by_role("checkbox", name=f"Select {id}").check()
    page.get_by_role("button", name="Discard 2").click()
    dialog = page.get_by_role("dialog", name="Discard")
    expect(dialog).to_contain_text("the 2 dead letters you selected")
    dialog.get_by_role("button", name="Discard 2 letters").click()
    expect(page.get_by_role("status").filter(has_text="2 letters will be discarded")).to_be_visible()
    expect(page.get_by_text("Discarded 2 dead letters.")).to_be_visible()
    assert [each.message.id for each in room.queue("pay").find("dead").entries] == ids[2:]


def test_a_discard_is_undone_as_long_as_it_waits(look: Look, served: Served, room: Room) -> None:
    (id,) = kill(room, "declined")
    eyes = look(served, f"/dead/pay/{id}")
    page = eyes.page

    def discard() -> None:
        page.get_by_role("button", name="Discard…").click()
        dialog = page.get_by_role("dialog", name="Discard")
        dialog.get_by_label("It can be undone for").select_option("a day")
        dialog.get_by_role("button", name="Discard", exact=True).click()
        expect(waiting.filter(has_text="To be discarded in pay")).to_be_visible()

    waiting = page.get_by_role("region", name="Jobs")
    discard()
    page.get_by_role("status").get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Nothing was discarded.")).to_be_visible()
    eyes.go(f"/dead/pay/{id}")
    discard()
    page.reload()  # the wish is the server's: it survives the tab, and so does the way back
    eyes.go("/queues")
    waiting.get_by_role("button", name="Undo").click()
    expect(waiting).to_have_count(0)
    assert room.queue("pay").get(id).state == "dead"


def test_what_came_of_a_replay_is_a_table_with_links(look: Look, served: Served, room: Room) -> None:
    (id,) = kill(room, "declined")
    page = look(served, "/dead").page
    page.get_by_role("button", name="Replay…").click()
    page.get_by_role("dialog", name="Replay").get_by_role("button", name="Replay 1 letter").click()
    page.get_by_role("status").get_by_role("button", name="See them").click()
    table = page.get_by_role("dialog").get_by_role("table", name="New messages")
    table.get_by_role("link", name=room.queue("pay").get(id).replayed_as[0]).click()
    expect(page.locator(".figures")).to_contain_text("Replayed from")


def test_letters_and_the_incident_log_are_taken_along(look: Look, served: Served, room: Room) -> None:
    kill(room, "declined", "no such card")
    (group, *_) = DeadLetters(room).groups().groups
    DeadLetters(room).note(group.group, "the bank is away", cause="their certificate")
    eyes = look(served, "/dead?q=error:declined")
    page = eyes.page
    expect(page.get_by_role("table", name="Dead letters").locator("tbody tr")).to_have_count(1)
    for item, lines in (("Export what is shown (JSONL)", 1), ("Incident log (JSON)", 1)):
        page.get_by_role("button", name="More actions").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=item).click()
        assert len(Path(download.value.path()).read_bytes().splitlines()) == lines
    eyes.go("/")
    expect(page.locator(".failures")).to_contain_text("their certificate")


def test_a_discard_says_what_goes_and_a_copy_brings_it_back(look: Look, served: Served, room: Room) -> None:
    (id,) = kill(room, "declined")
    page = look(served, f"/dead/pay/{id}").page
    page.get_by_role("button", name="Discard…").click()
    dialog = page.get_by_role("dialog", name="Discard")
    expect(dialog).to_contain_text("Once they are gone, nothing brings them back")
    with page.expect_download() as download:
        dialog.get_by_role("link", name="download a copy first").click()
    copy = Path(download.value.path()).read_bytes().splitlines()
    dialog.get_by_role("button", name="Discard", exact=True).click()
    expect(page.get_by_text("No dead letters")).to_be_visible()
    assert DeadLetters(room).bring_in(copy).created == 1
    expect(page.get_by_role("table", name="Dead letters")).to_contain_text("declined")


def test_a_letter_tells_its_attempts_and_is_replayed_with_another_payload(
    look: Look, served: Served, room: Room
) -> None:
    queue = room.queue("pay", Policy(keep_done="1h"))
    queue.put({"amount": 5, "currency": "EUR"}, kind="charge")
    finish(room)
    queue.put({"amount": 10, "currency": "EUR"}, kind="charge", max_attempts=2)
    for error in ("timed out", "declined"):
        (delivery,) = queue.claim_many(1)
        delivery.fail(RuntimeError(error), after=0)
    eyes = look(served, "/dead")
    eyes.page.get_by_role("table", name="Dead letters").get_by_role("link").first.click()
    attempts = eyes.page.get_by_role("listitem").filter(has_text="Attempt 2")
    expect(attempts).to_contain_text("another error")
    expect(attempts.locator("del")).to_contain_text("timed out")
    expect(attempts.locator("ins")).to_contain_text("declined")
    beside = eyes.page.get_by_role("figure", name="This payload beside one that succeeded")
    expect(beside.locator("del")).to_contain_text('"amount": 5')
    expect(beside.locator("ins")).to_contain_text('"amount": 10')
    eyes.page.get_by_role("button", name="Edit and replay…").click()
    dialog = eyes.page.get_by_role("dialog", name="Replay with another payload")
    dialog.get_by_label("Payload").fill('{"amount": ')
    expect(dialog.get_by_role("alert")).to_contain_text("not JSON")
    dialog.get_by_label("Payload").fill('{\n  "amount": 10,\n  "currency": "CHF"\n}')
    expect(dialog.locator("ins")).to_contain_text("CHF")
    dialog.get_by_role("button", name="Replay with this payload").click()
    expect(eyes.page.get_by_text("Replayed with another payload")).to_be_visible()
    (delivery,) = queue.claim_many(1)
    assert delivery.body == json.loads('{"amount": 10, "currency": "CHF"}')
    delivery.ack()


def test_a_viewer_is_offered_nothing_that_would_be_refused(
    look: Look, room: Room, url: str, tmp_path: Path
) -> None:
    kill(room, "declined")
    token = tokens.create(room.engine, "eve", Role.VIEWER).text
    with serving(url, tmp_path) as closed:
        eyes = look(closed, "/dead")
        eyes.forgive("status of 401")
        eyes.page.get_by_label("Token").fill(token)
        eyes.page.get_by_role("button", name="Log in").click()
        eyes.page.get_by_role("navigation", name="Groups").get_by_role("button").click()
        expect(eyes.page.get_by_role("region", name="Group")).to_be_visible()
        for name in ("Replay", "Discard", "Note…", "Resolve"):
            expect(eyes.page.get_by_role("button", name=name)).to_have_count(0)
        expect(eyes.page.get_by_role("checkbox")).to_have_count(0)
        eyes.close()


@pytest.fixture
def near_sighted(room: Room, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server in a thread of ours that looks at 200 letters at a time."""
    monkeypatch.setattr(dead, "_ROWS", 200)
    with served_here(secured(room, Access(required=False), keeper=False)) as address:
        yield Served(None, address)  # type: ignore[arg-type]  # it is no process


def test_a_search_that_was_limited_says_so_and_goes_on_when_told_to(
    look: Look, room: Room, near_sighted: Served
) -> None:
    common, rare = Failure(type="Declined"), Failure(type="Needle")
    messages = [NewMessage(body=b"1", failure=common) for _ in range(449)]
    room.engine.put("pay", [*messages, NewMessage(body=b"1", failure=rare)])
    eyes = look(near_sighted, "/dead?q=error:Needle")
    page = eyes.page
    told = page.get_by_role("status", name="How far the search came")
    expect(told).to_contain_text("0 found among 200 letters so far.")
    expect(page.get_by_text("None so far")).to_be_visible()
    expect(page.get_by_text("No dead letter is like that")).to_have_count(0)
    told.get_by_role("button", name="Search on").click()
    expect(told).to_contain_text("0 found among 400 letters so far.")
    told.get_by_role("button", name="Search on").click()
    expect(page.get_by_role("table", name="Dead letters").locator("tbody tr")).to_have_count(1)
    expect(told).to_have_count(0)
    eyes.go("/dead?q=error:Declined")
    expect(page.get_by_role("table", name="Dead letters").locator("tbody tr").first).to_be_visible()
    expect(told).to_have_count(0)
    eyes.close()


def test_each_group_shows_its_day(look: Look, served: Served, room: Room) -> None:
    for _ in range(2):
        room.queue("emails").put(1)
        fail(room, "emails", TimeoutError("no answer"))
    groups = look(served, "/dead").page.get_by_role("navigation", name="Groups")
    expect(groups.get_by_role("img", name="2 died within 24 h")).to_be_visible()
    expect(groups.locator("rect")).to_have_count(1)
