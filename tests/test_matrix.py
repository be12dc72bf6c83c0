"""What `config check` finds: every contradiction, where it stands, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.config import load
from postroom.matrix import Finding, findings

SOUND = """telemetry = true
[roles.fast]
queues = ["a", "b"]
concurrency = 4
prefetch = 2

[queues.a]
concurrency = 3
prefetch = 1
sla_p95 = "2s"
dead_letter = "dlq_fast"

[queues.b]
visibility_timeout = "15m"
retries = 6
backoff = "2^n * 90s"
"""


def found(folder: Path, text: str) -> list[Finding]:
    file = folder / "postroom.toml"
    file.write_text(text, encoding="utf-8")
    return findings(load(file, environ={}))


def test_a_sound_matrix_has_no_findings(tmp_path: Path) -> None:
    assert found(tmp_path, SOUND) == []
    assert found(tmp_path, "") == []
    assert found(tmp_path, "[queues.nobody-said-anything-about-roles]") == []


#: What is changed in the sound matrix → severity, table, key, line of what is found.
CONTRADICTIONS = {
    ('queues = ["a", "b"]', 'queues = ["a", "b", "c"]'): ("error", "[roles.fast]", "queues", 3),
    ('queues = ["a", "b"]', 'queues = ["b"]'): ("warning", "[queues.a]", "", 7),
    ('visibility_timeout = "15m"', 'lease = "15m"'): ("warning", "[queues.b]", "lease", 14),
    ("retries = 6", "retries = 7"): ("warning", "[queues.b]", "backoff_cap", 13),
    ("retries = 6", 'retries = 6\nbackoff_cap = "10m"'): ("warning", "[queues.b]", "backoff_cap", 16),
    ("concurrency = 3", "concurrency = 5"): ("warning", "[queues.a]", "concurrency", 8),
    ("concurrency = 3", "concurrency = 3\nmax_in_flight = 2"): ("warning", "[queues.a]", "concurrency", 8),
    ("prefetch = 1", "prefetch = 3"): ("warning", "[queues.a]", "prefetch", 9),
    ('"dlq_fast"', '"b"'): ("error", "[queues.a]", "dead_letter", 11),
    ('"dlq_fast"', '"a"'): ("error", "[queues.a]", "dead_letter", 11),
    ("retries = 6", "retries = 6\ncapacity = 9\nwarn_depth = 9"): ("warning", "[queues.b]", "warn_depth", 17),
    ("retries = 6", 'retries = 6\ndead_limit = "off"'): ("warning", "[queues.b]", "dead_limit", 16),
    ("prefetch = 2", "prefetch = 2\nweights = { a = 2 }"): ("warning", "[roles.fast]", "weights", 6),
    ("prefetch = 2", 'prefetch = 2\norder = "weighted"\nweights = { c = 2 }'): (
        "error", "[roles.fast]", "weights", 7,
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CONTRADICTIONS, ids=lambda change: change[1].replace("\n", " "))
def test_a_contradiction_is_found_where_it_stands(tmp_path: Path, change: tuple[str, str]) -> None:
    assert SOUND.count(change[0]) == 1
    severity, table, key, line = CONTRADICTIONS[change]
    matches = [finding for finding in found(tmp_path, SOUND.replace(*change)) if finding.key == key]
    (finding,) = matches
    assert (finding.severity, finding.table, finding.line) == (severity, table, line)
    assert finding.hint


def test_an_sla_in_no_role_is_measured_by_nobody(tmp_path: Path) -> None:
    text = SOUND.replace('["a", "b"]', '["b"]')
    assert [(finding.key, finding.line) for finding in found(tmp_path, text)] == [("", 7), ("sla_p95", 10)]


def test_tasks_and_handlers_that_have_not_the_same_time(tmp_path: Path) -> None:
    """Only where the file is Celery's too, and only for a queue of which it does not know whose it is."""
    text = SOUND.replace("retries = 6", 'retries = 6\ntasks = ["b.*"]')
    (finding,) = found(tmp_path, text)
    assert (finding.severity, finding.table, finding.line) == ("warning", "[queues.a]", 7)
    assert finding.key == "visibility_timeout"
    for known in ('ack_timeout = "off"', 'visibility_timeout = "1m"', 'tasks = ["a"]'):
        assert found(tmp_path, text.replace("prefetch = 1", f"prefetch = 1\n{known}")) == []
    assert found(tmp_path, 'ack_timeout = "1m"\n' + text) == []


def test_hands_that_no_queue_may_use(tmp_path: Path) -> None:
    text = SOUND.replace('["a", "b"]', '["a"]').partition("[queues.b]")[0]
    (finding,) = found(tmp_path, text)
    assert (finding.table, finding.key, finding.line) == ("[roles.fast]", "concurrency", 4)
    assert "at most 3 together" in finding.text


def test_a_promise_that_nobody_measures(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, SOUND.replace("true", "false"))
    assert (finding.severity, finding.key, finding.line) == ("warning", "telemetry", 1)
    assert "sla_p95 of a" in finding.text
    assert found(tmp_path, SOUND.replace("true", "false").replace('sla_p95 = "2s"', "")) == []


def test_a_schedule_for_a_queue_that_is_not_there(tmp_path: Path) -> None:
    schedule = '[schedule.nightly]\nevery = "1h"\nqueue = "bb"\n'
    (finding,) = found(tmp_path, SOUND + schedule)
    assert (finding.severity, finding.table, finding.key) == ("error", "[schedule.nightly]", "queue")
    assert (finding.hint, finding.line) == ("did you mean b?", SOUND.count("\n") + 3)
    assert found(tmp_path, schedule) == [], "a file without queues says nothing about them"


def test_workers_need_a_store_that_processes_share(tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text('lease = "5s"\n' + SOUND, encoding="utf-8")
    (finding,) = found(tmp_path, 'url = "memory://"\n' + SOUND)
    assert (finding.severity, finding.key, finding.line) == ("error", "url", 1)
    assert found(tmp_path, 'url = "memory://"') == []
    (elsewhere,) = findings(load(tmp_path / "matrix.toml", environ={"POSTROOM_URL": "memory://"}))
    assert elsewhere.line is None, "a variable says so, no line of the file"


def test_errors_come_first_and_then_the_order_of_the_file(tmp_path: Path) -> None:
    text = SOUND.replace('"15m"', '"15m"\ndead_limit = "off"').replace("prefetch = 1", "prefetch = 9")
    text = text.replace("dlq_fast", "b").replace('["a", "b"]', '["a", "b", "c"]')
    assert [finding.key for finding in found(tmp_path, text)] == [
        "queues", "dead_letter", "prefetch", "dead_limit",
    ]  # fmt: skip


TRICKY = """
on_dead = '''
[queues."a b"]
lease = "in a text"
'''
[ queues . "a b" ]   # spaces and a comment
  "lease" = "15m"
"""


def test_lines_are_found_in_unusual_spelling(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, TRICKY)
    assert (finding.table, finding.key, finding.line) == ('[queues."a b"]', "lease", 7)


def test_in_a_projects_file_the_tables_have_their_long_names(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\n[tool.postroom.queues.a]\nlease = "15m"', encoding="utf-8")
    (finding,) = findings(load(file, environ={}))
    assert (finding.table, finding.line) == ("[tool.postroom.queues.a]", 3)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('tls_key = "key.pem"', ("error", "tls_key", 2)),
        ('host = "0.0.0.0"', ("warning", "host", 2)),
        ('read_only = true\nallow_hosts = ["a", "*"]', ("warning", "allow_hosts", 3)),
        ('host = "::1"', None),
        ('host = "0.0.0.0"\ntls_cert = "cert.pem"\nallow_hosts = ["a"]', None),
    ],
)
def test_a_server_that_tells_what_it_should_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, what: tuple[str, str, int] | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cert.pem").touch()
    there = [(each.severity, each.key, each.line) for each in found(tmp_path, f"[http]\n{text}")]
    assert there == ([what] if what else [])


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("{}")
    text = (
        '[http]\ntls_cert = "/no/cert.pem"\n[kinds.a]\nschema = "no.json"\n[kinds.b]\nschema = "there.json"'
    )
    there = [(each.table, each.key, each.line) for each in found(tmp_path, text)]
    assert there == [("[http]", "tls_cert", 2), ("[kinds.a]", "schema", 4)]
    long = f'[http]\ntls_cert = "/{"n" * 300}"'
    assert [each.key for each in found(tmp_path, long)] == ["tls_cert"]


def test_a_file_that_only_others_may_see_is_taken_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root, who runs the tests, may look everywhere."""
    looked, is_file = list[str](), Path.is_file

    def guarded(path: Path) -> bool:
        if path.parts[:2] != ("/", "private"):
            return is_file(path)
        looked.append(path.name)
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", guarded)
    assert found(tmp_path, '[http]\ntls_cert = "/private/cert.pem"\ntls_key = "/private/key.pem"') == []
    assert looked == ["cert.pem", "key.pem"]
