"""`postroom queue`: look, pause, purge and drop, with the answers of the Python door."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom import Policy
from postroom.room import Room
from tests.cli.inside import Inside, Terminal
from tests.door.staging import taken


@pytest.fixture
def busy(seen: Room) -> Room:
    """emails: 3 ready, 1 scheduled, 1 processing, 1 dead; quiet: nothing."""
    emails = seen.queue("emails", Policy(retries=6, on_dead="call somebody"))
    emails.put_many(range(5))
    emails.put("later", delay="1h")
    taken(emails).bury("bad")
    taken(emails)
    seen.queue("quiet", Policy())
    return seen


STANDING = {"ready": 3, "scheduled": 1, "processing": 1, "overdue": 0, "dead": 1}


def test_ls_shows_how_every_queue_stands(inside: Inside, busy: Room) -> None:
    lines = inside.run("queue", "ls").out.splitlines()
    assert lines[0].split() == ["queue", *STANDING, "oldest", "paused"]
    assert lines[1].split()[:6] == ["emails", *map(str, STANDING.values())]
    assert lines[2].split()[0] == "quiet"
    emails, quiet = inside.run("queue", "ls", "--json").json
    assert emails.items() >= STANDING.items()
    assert (quiet["queue"], quiet["ready"], quiet["paused"]) == ("quiet", 0, False)


def test_ls_of_an_empty_room_is_an_empty_list(inside: Inside, seen: Room) -> None:
    ran = inside.run("queue", "ls", "--json")
    assert ran.json == []
    assert ran.err == "there are no queues in sqlite:///jobs.db yet\n", "a slip in the name looks the same"


def test_another_store_can_be_named(inside: Inside, seen: Room) -> None:
    seen.queue("here").put(1)
    assert inside.run("queue", "ls", "--json", "--url", "sqlite:///other.db").json == []


def test_show_says_what_a_queue_promises(inside: Inside, busy: Room) -> None:
    shown = inside.run("queue", "show", "emails", "--json").json
    assert shown.items() >= STANDING.items()
    assert shown["policy"] == busy.queue("emails").policy.to_text()
    out = inside.run("queue", "show", "emails").out
    assert "policy.on_dead" in out
    assert "call somebody" in out


def test_show_tells_what_waits_by_priority_and_what_retries(inside: Inside, busy: Room) -> None:
    busy.queue("emails").put("soon", priority="high")
    taken(busy.queue("emails")).fail("later", after="1h")
    busy.queue("emails").put("now", priority=255)
    shown = inside.run("queue", "show", "emails", "--json").json
    assert shown["levels"] == {"255": 1, "5": 3}
    assert (shown["retrying"], shown["levels_whole"], shown["retrying_whole"]) == (1, True, True)
    rows = [line.split() for line in inside.run("queue", "show", "emails").out.splitlines()]
    assert ["levels", "255", "=", "1,", "5", "=", "3"] in rows
    empty = [line.split() for line in inside.run("queue", "show", "quiet").out.splitlines()]
    assert ["levels", "-"] in empty


def test_a_pause_may_end_by_itself(inside: Inside, busy: Room) -> None:
    ran = inside.run("queue", "pause", "emails", "--for", "15m", "--reason", "deploy 1.2")
    until = busy.queue("emails").info().paused_until
    assert until is not None
    assert 0 < until - busy.engine.now() <= 900_000
    assert ran.out.startswith("emails is paused until 20")
    assert ", until 20" in inside.run("queue", "ls").out
    assert inside.run("queue", "show", "emails", "--json").json["paused_until"].startswith("20")
    assert inside.run("queue", "pause", "emails", "--for", "soon", code=2)


def test_due_counts_by_time(inside: Inside, busy: Room) -> None:
    found = inside.run("queue", "due", "emails", "--over", "2h", "--bars", "4", "--json").json
    assert (sum(found["counts"]), found["overdue"], found["later"], found["whole"]) == (1, 0, 0, True)
    lines = inside.run("queue", "due", "--over", "10m", "--bars", "2").out.splitlines()
    assert lines[0].split() == ["due", "from", "messages"]
    assert [line.split()[1] for line in lines[1:]] == ["0", "0", "0", "1"]
    assert lines[-1].startswith("later")
    assert inside.run("queue", "due", "nobody", code=3)


def test_stats_count_what_happened(inside: Inside, busy: Room) -> None:
    (emails,) = inside.run("queue", "stats", "emails", "--json").json
    assert emails["counters"] == busy.queue("emails").stats().counters
    assert len(inside.run("queue", "stats").out.splitlines()) == 3


def test_pause_and_resume(inside: Inside, busy: Room) -> None:
    inside.run("queue", "pause", "emails", "--reason", "the bank is down")
    assert busy.queue("emails").claim(timeout=0) is None
    assert "the bank is down" in inside.run("queue", "ls").out
    assert inside.run("queue", "resume", "emails", "--json").json == {"queue": "emails", "paused": False}
    assert busy.queue("emails").claim(timeout=0) is not None


# ---- Purge and drop -------------------------------------------------------------------------------


def test_purge_drops_what_waits(inside: Inside, busy: Room) -> None:
    assert inside.run("queue", "purge", "emails", "--yes", "--json").json["purged"] == 4
    stats = busy.queue("emails").stats()
    assert (stats.depth, stats.processing, stats.dead) == (0, 1, 1)


def test_a_dry_run_changes_nothing(inside: Inside, busy: Room) -> None:
    purged = inside.run("queue", "purge", "emails", "--dry-run", "--json").json
    assert purged == {"queue": "emails", "purged": 4, "dry_run": True}
    dropped = inside.run("queue", "drop", "emails", "--force", "--dry-run", "--json").json
    assert dropped == {"queue": "emails", "dropped": 6, "dry_run": True}
    assert "would be" in inside.run("queue", "purge", "emails", "--dry-run").out
    assert busy.queue("emails").stats().depth == 4


def test_drop_is_refused_while_anything_is_in_it_unless_forced(inside: Inside, busy: Room) -> None:
    for told in ("--yes", "--dry-run"):
        assert "6 messages are in it" in inside.run("queue", "drop", "emails", told, code=4).err
    nobody_is_asked_for_nothing = inside.run("queue", "drop", "emails", code=4, stdin=Terminal("y\n"))
    assert "Remove" not in nobody_is_asked_for_nothing.err
    assert inside.run("queue", "drop", "quiet", "--yes", "--json").json["dropped"] == 0
    assert inside.run("queue", "drop", "emails", "--yes", "--force", "--json").json["dropped"] == 6
    assert inside.run("queue", "ls", "--json").json == []


@pytest.mark.parametrize("verb", ["purge", "drop"])
def test_nothing_is_destroyed_without_consent(inside: Inside, busy: Room, verb: str) -> None:
    how = ["emails", "--force"] if verb == "drop" else ["emails"]
    refused = inside.run("queue", verb, *how, code=2)
    assert "say --yes" in refused.err
    assert refused.out == ""
    asked = inside.run("queue", verb, *how, code=1, stdin=Terminal("n\n"))
    assert "messages" in asked.err, "the question is talk"
    assert busy.queue("emails").stats().depth == 4


def test_a_person_may_say_yes(inside: Inside, busy: Room) -> None:
    inside.run("queue", "purge", "emails", stdin=Terminal("y\n"))
    assert busy.queue("emails").stats().depth == 0


# ---- What is not there ----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["show", "stats", "pause", "resume", "purge", "drop"])
def test_a_slip_in_the_name_makes_no_queue(inside: Inside, busy: Room, verb: str) -> None:
    ran = inside.run("queue", verb, "emials", code=3)
    assert ran.err == "postroom: there is no queue 'emials'; did you mean emails?\n"
    assert [info.name for info in busy.queues()] == ["emails", "quiet"]


def test_looking_declares_nothing(inside: Inside, busy: Room) -> None:
    Path("postroom.toml").write_text("[queues.emails]\nretries = 1\n[queues.new]\n", encoding="utf-8")
    inside.run("queue", "ls")
    assert [info.name for info in busy.queues()] == ["emails", "quiet"]
    (info,) = busy.engine.queues(["emails"])
    assert info.policy.max_attempts == 7


def test_a_store_that_is_not_there_is_code_5(inside: Inside) -> None:
    ran = inside.run("queue", "ls", "--url", "redis://127.0.0.1:1/0", code=5)
    assert ran.err.count("\n") == 1
    assert "which store is meant: postroom config show" in ran.err


def test_completion_knows_the_queues_and_stays_silent_without_a_store(
    inside: Inside, busy: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    from postroom.cli.options import queue_names, role_names

    assert queue_names("e") == ["emails"]
    Path("postroom.toml").write_text('[roles.fast]\nqueues = ["emails"]', encoding="utf-8")
    assert role_names("") == ["fast"]
    monkeypatch.setenv("POSTROOM_URL", "nonsense")
    assert (queue_names(""), role_names("")) == ([], [])


def test_the_shell_completes_words(inside: Inside, busy: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_POSTROOM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "postroom queue sh")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert inside.run().out.split() == ["show"]
    monkeypatch.setenv("COMP_WORDS", "postroom queue show em")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert inside.run().out.split() == ["emails"]
