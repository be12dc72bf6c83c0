"""The configuration: four layers, every value with its origin, every mistake one clear line."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom import settings as known
from postroom.backoff import Backoff
from postroom.config import Config, Http, Setting, load
from postroom.duration import format_duration, milliseconds
from postroom.errors import ConfigError
from postroom.limits import MAX_BODY
from postroom.policy import SETTINGS, Policy
from postroom.role import Role, Share

REPO = Path(__file__).parents[1]

Load = Callable[..., Config]


@pytest.fixture(scope="module", autouse=True)
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder without a postroom.toml, so that the one of whoever runs the tests does not matter."""
    with contextlib.chdir(tmp_path_factory.mktemp("nowhere")):
        yield


@pytest.fixture
def load_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load this text as ./postroom.toml, with no variables but those given."""
    monkeypatch.chdir(tmp_path)

    def load_it(text: str = "", environ: dict[str, str] | None = None, **arguments: Any) -> Config:
        Path("postroom.toml").write_text(text, encoding="utf-8")
        return load(environ=environ or {}, **arguments)

    return load_it


@pytest.fixture
def refusal(load_text: Load) -> Callable[..., str]:
    """The one line with which a configuration is refused."""

    def refuse(text: str = "", environ: dict[str, str] | None = None, **arguments: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            load_text(text, environ, **arguments)
        line = str(caught.value)
        assert "\n" not in line
        return line

    return refuse


# ---- Defaults -------------------------------------------------------------------------------------


def test_without_anything_every_setting_is_the_default() -> None:
    config = load(environ={})
    assert {setting.origin for setting in config.settings.values()} == {"default"}
    assert config.file is None
    assert config.url == "sqlite:///postroom.db"
    assert config.sweep_interval == 5_000
    assert config.sweep_batch == 100
    assert config.max_body == 16 * 2**20
    assert config.keeper_ttl == 30_000
    assert config.poll_timeout == 5_000
    assert config.declared == {}
    assert config.policy("any queue at all") == Policy()


def test_the_promised_defaults_are_the_policys_own() -> None:
    text = {name: setting.value for name, setting in load(environ={}).settings.items()}
    promised = {"lease": "30s", "ack_timeout": "30s", "max_attempts": 3, "suspect_after": 3, "capacity": None}
    assert text.items() >= promised.items()
    assert text["backoff"] == "2^n * 5s"


def test_max_body_is_what_an_engine_takes_by_itself() -> None:
    assert load(environ={}).max_body == MAX_BODY


def test_every_policy_setting_can_be_set() -> None:
    assert set(known.QUEUE_LEVEL) == SETTINGS | {"visibility_timeout", "concurrency", "prefetch", "tasks"}
    assert set(load(environ={}).settings) == set(known.TOP_LEVEL) - set(known.ALIASES)


# ---- Layers ---------------------------------------------------------------------------------------

LAYERS: list[tuple[str, str, dict[str, str], dict[str, Any]]] = [
    ("default", "", {}, {}),
    ("postroom.toml", 'lease = "1m"', {}, {}),
    ("POSTROOM_LEASE", 'lease = "1m"', {"POSTROOM_LEASE": "2m"}, {}),
    ("argument", 'lease = "1m"', {"POSTROOM_LEASE": "2m"}, {"lease": "3m"}),
]


@pytest.mark.parametrize(("origin", "text", "environ", "arguments"), LAYERS)
def test_the_later_layer_wins_and_is_the_origin(
    load_text: Load, origin: str, text: str, environ: dict[str, str], arguments: dict[str, Any]
) -> None:
    config = load_text(text, environ, **arguments)
    value = {"default": "30s", "postroom.toml": "1m", "POSTROOM_LEASE": "2m", "argument": "3m"}[origin]
    assert config.settings["lease"] == Setting(value, origin)
    assert config.origin_of("emails", "lease") == config.origin_of(None, "lease") == origin
    assert config.policy("emails").lease == Policy(lease=value).lease


@pytest.mark.parametrize("name", [name for name in known.TOP_LEVEL if name != "labels"])
def test_every_setting_has_a_variable(load_text: Load, name: str) -> None:
    samples = {
        "url": "sqlite:///jobs.db", "spool": "sqlite:///spool.db", "backoff": "3^n * 1s", "jitter": "off",
        "idempotency_every_task": "on", "durability": "replicated", "telemetry": "on", "tracing": "on",
        "rate": "7/m", "put_rate": "9/h", "on_expire": "drop", "dead_letter": "dlq_fast",
        "app": "shop.jobs:handlers", "http_auth": "required", "http_read_only": "on", "http_rate": "9/s",
        "http_environment_colour": "red", "http_trace_link": "http://traces/{trace_id}",
    }  # fmt: skip
    config = load_text(environ={f"POSTROOM_{name.upper()}": samples.get(name, "7")})
    setting = config.settings[known.canonical(name)]
    assert setting.origin == f"POSTROOM_{name.upper()}"
    assert setting.value != known.DEFAULTS[known.canonical(name)]


def test_a_table_is_about_one_queue_and_beats_every_layer(load_text: Load) -> None:
    text = 'lease = "1m"\n[queues.slow]\nlease = "15m"'
    config = load_text(text, {"POSTROOM_LEASE": "2m"}, lease="3m")
    assert config.policy("slow").lease == 15 * 60_000
    assert config.origin_of("slow", "lease") == "postroom.toml [queues.slow]"
    assert config.policy("other").lease == 3 * 60_000
    assert list(config.declared) == ["slow"]


def test_a_table_keeps_what_it_does_not_say(load_text: Load) -> None:
    config = load_text('capacity = 10\n[queues.slow]\nlease = "15m"', {"POSTROOM_RATE": "5/s"})
    assert config.policy("slow") == Policy(lease="15m", capacity=10, rate="5/s")
    assert config.origin_of("slow", "rate") == "POSTROOM_RATE"
    assert config.origin_of("slow", "jitter") == "default"


def test_an_empty_variable_is_not_set(load_text: Load) -> None:
    assert (
        load_text(environ={"POSTROOM_LEASE": "", "POSTROOM_CONFIG": ""}).origin_of(None, "lease") == "default"
    )


def test_variables_of_others_do_not_matter(load_text: Load) -> None:
    linked = {"POSTROOM_SERVICE_HOST": "10.0.0.1", "POSTROOM_PORT": "tcp://10.0.0.1:80",
              "POSTROOM_PORT_80_TCP_ADDR": "10.0.0.1", "PATH": "/bin", "postroom_lease": "1m"}  # fmt: skip
    assert load_text(environ=linked) == load_text()


def test_origin_of_knows_the_other_names_and_refuses_unknown_ones(load_text: Load) -> None:
    config = load_text("retries = 1")
    assert config.origin_of(None, "retries") == config.origin_of("q", "max_attempts") == "postroom.toml"
    with pytest.raises(ConfigError, match=r"^leese: unknown setting; did you mean lease\?$"):
        config.origin_of("q", "leese")
    with pytest.raises(ConfigError, match="unknown setting"):
        config.origin_of("q", "sweep_batch")  # not a queue's


def test_a_configuration_cannot_be_changed_and_does_not_print_its_url() -> None:
    config = load(environ={"POSTROOM_URL": "redis://:hunter2@host/0"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.url = "memory://"  # type: ignore[misc]
    assert "hunter2" not in repr(config)


# ---- Which file -----------------------------------------------------------------------------------


def test_the_argument_beats_the_variable_beats_the_folder(load_text: Load) -> None:
    for name in ("a", "b"):
        Path(f"{name}.toml").write_text(f'dead_letter = "{name}"', encoding="utf-8")
    text, variable = 'dead_letter = "here"', {"POSTROOM_CONFIG": "b.toml"}
    assert load_text(text).settings["dead_letter"] == Setting("here", "postroom.toml")
    assert load_text(text, variable).settings["dead_letter"] == Setting("b", "b.toml")
    assert load_text(text, variable, path=Path("a.toml")).settings["dead_letter"] == Setting("a", "a.toml")
    assert load_text(text, variable).file == "b.toml"


def test_a_named_file_must_be_there(refusal: Callable[..., str]) -> None:
    assert refusal(path="nope.toml") == "nope.toml: there is no such file"
    by_variable = refusal(environ={"POSTROOM_CONFIG": "nope.toml"})
    assert by_variable == "nope.toml: there is no such file (POSTROOM_CONFIG names it)"


def test_a_file_that_cannot_be_read(refusal: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    assert refusal(path="folder.toml") == "folder.toml: cannot be read: Is a directory"
    (tmp_path / "latin.toml").write_bytes(b'dead_letter = "caf\xe9"')
    assert refusal(path="latin.toml").startswith("latin.toml: is not valid TOML: 'utf-8' codec")


# ---- Other names, and off -------------------------------------------------------------------------


def test_retries_are_attempts_less_one(load_text: Load) -> None:
    config = load_text("retries = 4\n[queues.a]\nmax_attempts = 2\n[queues.b]\nretries = 0")
    attempts = [config.policy(queue).max_attempts for queue in ("other", "a", "b")]
    assert attempts == [5, 2, 1]


def test_a_queues_retries_override_max_attempts_above(load_text: Load) -> None:
    config = load_text("max_attempts = 9\n[queues.a]\nretries = 1", {"POSTROOM_RETRIES": "6"})
    assert (config.policy("other").max_attempts, config.policy("a").max_attempts) == (7, 2)
    assert config.origin_of("other", "max_attempts") == "POSTROOM_RETRIES"


@pytest.mark.parametrize(
    ("given", "lease"), [("15s", 5_000), ("60s", 20_000), ("90s", 30_000), ("15m", 30_000), ("2ms", 1)]
)
def test_a_visibility_timeout_is_the_time_to_work_and_a_lease_within_it(
    load_text: Load, given: str, lease: int
) -> None:
    config = load_text(f'lease = "1h"\nack_timeout = "off"\n[queues.a]\nvisibility_timeout = "{given}"')
    a, other = config.policy("a"), config.policy("other")
    assert (a.ack_timeout, a.lease) == (milliseconds(given), lease)
    assert (other.ack_timeout, other.lease) == (None, 3_600_000)
    assert config.origin_of("a", "visibility_timeout") == "postroom.toml [queues.a]"
    assert config.origin_of("a", "lease") == "postroom.toml [queues.a], by visibility_timeout"
    by_variable = load_text(environ={"POSTROOM_VISIBILITY_TIMEOUT": given})
    assert by_variable.origin_of(None, "lease") == "POSTROOM_VISIBILITY_TIMEOUT"


def test_a_lease_beside_a_visibility_timeout_is_taken_as_given(load_text: Load) -> None:
    for text in ('lease = "2m"\nvisibility_timeout = "10m"', 'visibility_timeout = "10m"\nlease = "2m"'):
        policy = load_text(text).default
        assert (policy.lease, policy.ack_timeout) == (120_000, 600_000)


def test_tasks_may_take_as_long_as_they_like_unless_somebody_says_otherwise(load_text: Load) -> None:
    """Handlers have 30 s. A task that nobody gave a time is not stopped, whoever opens the room."""
    config = load_text(
        '[queues.a]\ntasks = ["a.*"]\n[queues.b]\n[queues.c]\ntasks = ["c"]\nack_timeout = "5s"'
    )
    assert [config.policy(queue).ack_timeout for queue in "abc"] == [None, 30_000, 5_000]
    assert config.origin_of("a", "ack_timeout") == "default of Celery's tasks"
    tasks = config.for_tasks()
    assert [tasks.policy(queue).ack_timeout for queue in "abcd"] == [None, None, 5_000, None]
    assert tasks.origin_of("b", "ack_timeout") == "default of Celery's tasks"
    assert tasks.for_tasks() == tasks
    for text, environ in (('visibility_timeout = "5s"\n', {}), ("", {"POSTROOM_ACK_TIMEOUT": "5s"})):
        told = load_text(text + '[queues.a]\ntasks = ["a"]', environ)
        assert told.policy("a").ack_timeout == told.for_tasks().policy("other").ack_timeout == 5_000


OFF = ["ack_timeout", "aging", "capacity", "warn_depth", "rate", "put_rate", "max_in_flight", "sla_p95",
       "dead_retention", "dead_limit"]  # fmt: skip


@pytest.mark.parametrize("name", OFF)
def test_every_limit_can_be_off_in_every_layer(load_text: Load, name: str) -> None:
    given_off = [
        load_text(f'{name} = "off"'),
        load_text(environ={f"POSTROOM_{name.upper()}": "off"}),
        load_text(**{name: None}),
    ]
    for config in given_off:
        assert config.settings[name].value is None
        assert config.settings[name].origin != "default"
        assert getattr(config.policy("q"), name) is None
    assert getattr(load_text(f'{name} = "off"\n[queues.q]').policy("q"), name) is None


@pytest.mark.parametrize("name", ["dedupe_window", "keep_done"])
def test_off_is_no_time_at_all_for_what_is_a_time(load_text: Load, name: str) -> None:
    config = load_text(f'{name} = "1h"\n[queues.q]\n{name} = "off"')
    assert (getattr(config.default, name), getattr(config.policy("q"), name)) == (3_600_000, 0)


@pytest.mark.parametrize(
    ("written", "size"),
    [('"16MB"', 16 * 2**20), ('"16 mb"', 16 * 2**20), ('"1G"', 2**30), ('"512KB"', 2**19), ("1000", 1_000),
     ('"1000"', 1_000), ('"7B"', 7)],
)  # fmt: skip
def test_sizes(load_text: Load, written: str, size: int) -> None:
    assert load_text(f"max_body = {written}").max_body == size


def test_labels_are_a_table_and_replace_the_ones_above(load_text: Load) -> None:
    text = "[labels]\nnormal = 1\nurgent = 9\n[queues.q]\nlabels = { normal = 2 }"
    config = load_text(text)
    assert config.policy("other").labels == {"normal": 1, "urgent": 9}
    assert config.policy("q").labels == {"normal": 2}


# ---- Mistakes: one line that names the place and what is expected ------------------------------------

BAD_FILES = {
    # unknown names
    'leese = "1m"': "postroom.toml: leese: unknown setting; did you mean lease?",
    "[queue.emails]": "postroom.toml: queue: unknown setting; did you mean queues?",
    "xyzzy = 1": "postroom.toml: xyzzy: unknown setting",
    '"a b\\n" = 1': "postroom.toml: 'a b\\n': unknown setting",
    '[queues.q]\nvisibility_timeot = "1m"': (
        "postroom.toml: [queues.q] visibility_timeot: unknown setting; did you mean visibility_timeout?"
    ),
    "[queues.q]\nsweep_batch = 5": (
        "postroom.toml: [queues.q] sweep_batch: belongs to the top of the file"
    ),
    "[queues.emails.high]\ncapacity = 5": (
        "postroom.toml: [queues.emails] 'high': a name with a dot is written [queues.\"emails.high\"]"
    ),
    # twice
    'visibility_timeout = "1m"\nack_timeout = "off"': (
        "postroom.toml: ack_timeout: visibility_timeout and ack_timeout set the same thing; give one of them"
    ),
    "[queues.q]\nretries = 2\nmax_attempts = 3": (
        "postroom.toml: [queues.q] max_attempts: retries and max_attempts set the same thing;"
        " give one of them"
    ),
    # values
    'lease = "soon"': (
        "postroom.toml: lease: 'soon' is not a duration such as \"500ms\", \"30s\", \"15m\" or \"1h30m\""
    ),
    '[queues.q]\nvisibility_timeout = "0s"': (
        "postroom.toml: [queues.q] visibility_timeout: must be longer than nothing"
    ),
    "lease = -1": "postroom.toml: lease: -1 is not between 0 and 100 years",
    "lease = nan": "postroom.toml: lease: nan is not between 0 and 100 years",
    'keeper_ttl = "0s"': "postroom.toml: keeper_ttl: must be longer than nothing",
    'capacity = "many"': "postroom.toml: capacity: 'many' is not a whole number from 1 (or \"off\")",
    "capacity = false": "postroom.toml: capacity: False is not a whole number from 1 (or \"off\")",
    "retries = -1": "postroom.toml: retries: -1 is not a whole number from 0",
    'max_attempts = "off"': "postroom.toml: max_attempts: 'off' is not a whole number from 1",
    "max_attempts = 1001": "postroom.toml: max_attempts: 1001 is more than 1000",
    "sweep_batch = 1001": "postroom.toml: sweep_batch: 1001 is not a whole number from 1 to 1,000",
    "sweep_batch = true": "postroom.toml: sweep_batch: True is not a whole number from 1 to 1,000",
    'max_body = "16 apples"': (
        "postroom.toml: max_body: '16 apples' is not a size such as \"512KB\", \"16MB\" or a number of bytes"
    ),
    "max_body = 0": (
        'postroom.toml: max_body: 0 is not a size such as "512KB", "16MB" or a number of bytes'
    ),
    "url = 5": 'postroom.toml: url: expected a URL such as "sqlite:///jobs.db"',
    'url = "hunter2"': 'postroom.toml: url: expected a URL such as "sqlite:///jobs.db"',
    'jitter = "maybe"': "postroom.toml: jitter: 'maybe' is neither true nor false",
    "jitter = 1": "postroom.toml: jitter: 1 is neither true nor false",
    'rate = "fast"': (
        "postroom.toml: rate: 'fast' is not a rate such as \"100/s\", \"30/m\" or \"500/h\" (or \"off\")"
    ),
    "backoff = 5": "postroom.toml: backoff: expected text such as \"2^n * 5s\", not 5",
    'on_expire = "explode"': "postroom.toml: on_expire: 'explode' is neither \"dead\" nor \"drop\"",
    "labels = 5": "postroom.toml: labels: expected a table such as { low = 0, normal = 5 }, not 5",
    "labels = { low = 0 }": 'postroom.toml: labels: "normal" is missing; it is what a plain put gets',
    "labels = { normal = 256 }": "postroom.toml: labels: normal = 256 is not a number from 0 to 255",
    # names and shapes
    "queues = 5": "postroom.toml: queues: expected tables such as [queues.emails], not 5",
    "[queues]\nemails = 5": "postroom.toml: [queues.emails] expected a table of settings, not 5",
    '[queues."a{b}"]': (
        "postroom.toml: [queues] queue name: 'a{b}' must be 1 to 200 bytes"
        " without control characters or braces"
    ),
    '[queues."a b"]\nlease = []': (
        "postroom.toml: [queues.\"a b\"] lease: expected seconds, a timedelta or text such as \"15m\", not []"
    ),
    # workers
    "concurrency = 5": "postroom.toml: concurrency: unknown setting",
    'app = "no colon"': (
        'postroom.toml: app: expected "module:variable", such as "shop.jobs:handlers",'
        " not 'no colon' (or \"off\")"
    ),
    "[queues.q]\nconcurrency = 0": (
        'postroom.toml: [queues.q] concurrency: 0 is not a whole number from 1 to 1,000 (or "off")'
    ),
    "roles = 5": "postroom.toml: roles: expected tables such as [roles.emails], not 5",
    "[roles.fast]": "postroom.toml: [roles.fast] queues: missing; a role works on at least one queue",
    "[roles.fast]\nqueues = []": (
        "postroom.toml: [roles.fast] queues: expected names such as [\"emails\", \"reports\"], not []"
    ),
    '[roles.fast]\nqueues = ["a", "b", "a"]': "postroom.toml: [roles.fast] queues: 'a' is there twice",
    '[roles.fast]\nqueue = ["a"]': (
        "postroom.toml: [roles.fast] queue: unknown setting; did you mean queues?"
    ),
    '[roles.fast]\nqueues = ["a"]\nconcurrency = "off"': (
        "postroom.toml: [roles.fast] concurrency: 'off' is not a whole number from 1 to 1,000"
    ),
    '[roles.fast]\nqueues = ["a"]\nprefetch = -1': (
        'postroom.toml: [roles.fast] prefetch: -1 is not a whole number from 0 to 1,000 (or "off")'
    ),
    '[roles.fast]\nqueues = ["a"]\norder = "random"': (
        "postroom.toml: [roles.fast] order: 'random' is not one of round_robin, listed, priority, weighted"
    ),
    '[roles.fast]\nqueues = ["a"]\nweights = { a = 0 }': (
        "postroom.toml: [roles.fast] weights: 0 is not a whole number from 1"
    ),
    '[roles.fast]\nqueues = ["a"]\nlease = "1m"': (
        "postroom.toml: [roles.fast] lease: unknown setting"
    ),
    "dead_letter = '{'": (
        "postroom.toml: dead_letter: '{' must be 1 to 200 bytes without control characters or braces"
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_mistake_in_the_file(refusal: Callable[..., str], text: str) -> None:
    assert refusal(text) == BAD_FILES[text]


@pytest.mark.parametrize(
    "text",
    ["lease 5", "lease = ", "[queues", "lease = 1\nlease = 2", "a = " + "9" * 5_000, "a = " + "[" * 5_000],
)
def test_what_is_not_toml_is_said_with_its_place(refusal: Callable[..., str], text: str) -> None:
    assert refusal(text).startswith("postroom.toml: is not valid TOML: ")


def test_malformed_toml_names_the_line(refusal: Callable[..., str]) -> None:
    assert re.search(r"at line 2, column \d+", refusal('lease = "1m"\ncapacity 5'))


def test_numbers_beyond_all_bounds_are_refused(refusal: Callable[..., str]) -> None:
    assert refusal("lease = 1" + "0" * 400).startswith("postroom.toml: lease: ")
    assert refusal('rate = "' + "9" * 5_000 + '/s"').startswith("postroom.toml: rate: ")
    assert refusal(environ={"POSTROOM_CAPACITY": "9" * 5_000}).startswith("POSTROOM_CAPACITY: ")


BAD_VARIABLES = {
    ("POSTROOM_LEESE", "1m"): "POSTROOM_LEESE: unknown setting; did you mean POSTROOM_LEASE?",
    ("POSTROOM_QUEUES", "a"): "POSTROOM_QUEUES: unknown setting",
    ("POSTROOM_LEASE", "soon"): (
        "POSTROOM_LEASE: 'soon' is not a duration such as \"500ms\", \"30s\", \"15m\" or \"1h30m\""
    ),
    ("POSTROOM_CAPACITY", "-5"): "POSTROOM_CAPACITY: '-5' is not a whole number from 1 (or \"off\")",
    ("POSTROOM_CAPACITY", "0"): "POSTROOM_CAPACITY: 0 is not a whole number from 1 (or \"off\")",
    ("POSTROOM_LABELS", "a=1"): (
        "POSTROOM_LABELS: expected a table such as { low = 0, normal = 5 }, not 'a=1'"
    ),
    ("POSTROOM_JITTER", "maybe"): "POSTROOM_JITTER: 'maybe' is neither true nor false",
}  # fmt: skip


@pytest.mark.parametrize("variable", BAD_VARIABLES)
def test_a_mistake_in_the_environment(refusal: Callable[..., str], variable: tuple[str, str]) -> None:
    assert refusal(environ=dict([variable])) == BAD_VARIABLES[variable]


def test_two_variables_for_one_thing(refusal: Callable[..., str]) -> None:
    line = refusal(environ={"POSTROOM_RETRIES": "1", "POSTROOM_MAX_ATTEMPTS": "1"})
    assert line.endswith("POSTROOM_RETRIES and POSTROOM_MAX_ATTEMPTS set the same thing; give one of them")


def test_a_mistake_in_an_argument(refusal: Callable[..., str]) -> None:
    assert refusal(leese=5) == "argument leese: unknown setting; did you mean lease?"
    assert refusal(lease=None) == "argument lease: cannot be off"
    assert refusal(max_attempts=None) == "argument max_attempts: cannot be off"
    assert refusal(capacity=0) == 'argument capacity: 0 is not a whole number from 1 (or "off")'


# ---- Roles, and our part of a project's file --------------------------------------------------------

ROLES = """
[roles.fast]
queues = ["emails", "chat", "undeclared"]
concurrency = 20
prefetch = 5
order = "weighted"
weights = { emails = 3 }
stop_timeout = "1m"
[roles.plain]
queues = ["chat"]
[queues.emails]
concurrency = 10
[queues.chat]
concurrency = "off"
prefetch = 2
[queues.reports]
concurrency = 1
"""


def test_a_role_says_what_a_worker_does_and_has_the_shares_of_its_queues(load_text: Load) -> None:
    config = load_text(ROLES)
    shares = {"emails": Share(10), "chat": Share(None, 2)}
    queues = ("emails", "chat", "undeclared")
    assert config.role("fast") == Role("fast", queues, 20, 5, "weighted", {"emails": 3}, 60_000, shares)
    assert config.role("plain") == Role("plain", ("chat",), shares={"chat": Share(None, 2)})
    assert config.share("reports") == Share(1)
    assert config.share("undeclared") == Share()


def test_a_share_is_no_policy(load_text: Load) -> None:
    assert load_text(ROLES).policy("emails") == Policy()


def test_every_setting_of_a_role_has_its_origin(load_text: Load) -> None:
    config = load_text(ROLES)
    assert config.role_tables["fast"]["prefetch"] == Setting(5, "postroom.toml [roles.fast]")
    assert config.role_tables["plain"]["concurrency"] == Setting(1, "default")
    assert config.origin_of("emails", "concurrency") == "postroom.toml [queues.emails]"
    assert config.origin_of("other", "concurrency") == "default"


def test_an_unknown_role_is_refused_with_those_there_are(load_text: Load) -> None:
    with pytest.raises(ConfigError, match=r"^role 'fats': unknown; there is fast, plain$"):
        load_text(ROLES).role("fats")
    with pytest.raises(ConfigError, match="no role is configured"):
        load_text().role("fast")


def test_a_projects_file_has_a_part_for_us(load_text: Load) -> None:
    text = '[tool.other]\nlease = 5\n[tool.postroom]\nlease = "1m"\n[tool.postroom.queues.a]\nretries = 1'
    Path("pyproject.toml").write_text(text, encoding="utf-8")
    Path("postroom.toml").unlink(missing_ok=True)
    config = load(environ={})
    assert config.settings["lease"] == Setting("1m", "pyproject.toml [tool.postroom]")
    assert config.origin_of("a", "retries") == "pyproject.toml [tool.postroom.queues.a]"
    assert load(environ={}, path="pyproject.toml") == config
    assert load_text("").file == "postroom.toml", "the file of our own comes first"


def test_a_projects_file_without_our_part_is_not_ours_to_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("[project]\nname = 'x'", "this is [not TOML"):
        Path("pyproject.toml").write_text(text, encoding="utf-8")
        assert load(environ={}).file is None
    Path("pyproject.toml").write_text("[tool.postroom]\nleese = 1", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^pyproject.toml \[tool.postroom\]: leese: unknown setting"):
        load(environ={})


# ---- The queue matrix -----------------------------------------------------------------------------

#: A worker's hands; seconds: visibility timeout; attempts; seconds: first wait, SLA; dead-letter name, and
#: what to do about it (the first in our words: all of them are kept, nothing has to be rerouted).
MATRIX = {
    "fast_default": (20, 30, 4, 5, 2, "dlq_fast", "Rerouted to dlq_fast: process per DLQ SOP"),
    "notifications_email": (10, 60, 6, 10, 5, "dlq_fast", "Contact comms team, inspect template errors"),
    "chat_events": (15, 15, 3, 3, 1, "dlq_fast", "Replay after fixing upstream message"),
    "heavy_settlements": (
        4, 600, 6, 60, 60, "dlq_heavy", "Manual replay via `python manage.py replay_task <id>`",
    ),
    "heavy_payouts": (4, 900, 7, 90, 120, "dlq_heavy", "Escalate to finance, sync with PSP"),
    "media_processing": (6, 300, 5, 30, 45, "dlq_heavy", "Verify object exists in S3, then replay"),
}  # fmt: skip
POOLS = {"fast": (20, None), "heavy": (4, 0), "media": (6, 0), "beat": (1, 0)}


def test_the_queue_matrix_of_the_marketplace_is_what_was_specified() -> None:
    config = load(REPO / "examples" / "marketplace" / "postroom.toml", environ={})
    assert set(config.declared) == {*MATRIX, "beat"}
    for queue, (hands, timeout, attempts, wait, sla, dead_letter, action) in MATRIX.items():
        policy = config.declared[queue]
        assert config.share(queue) == Share(hands)
        assert policy.ack_timeout == timeout * 1_000
        assert policy.lease == min(30, timeout / 3) * 1_000
        assert policy.max_attempts == attempts
        assert policy.backoff == Backoff(wait * 1_000, 2.0, cap=3_600_000)
        assert policy.jitter
        assert policy.sla_p95 == sla * 1_000
        assert policy.dead_letter == dead_letter
        assert policy.on_dead == action
    assert config.declared["beat"] == Policy(ack_timeout="5m", retries=0)
    assert {name: (role.concurrency, role.prefetch) for name, role in config.roles.items()} == POOLS
    worked = [queue for role in config.roles.values() for queue in role.queues]
    assert sorted(worked) == sorted(config.declared)


# ---- Properties -----------------------------------------------------------------------------------

SPANS = st.integers(1, 10**11).map(format_duration)
COUNTS = st.integers(1, 10**9 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "lease": SPANS,
    "ack_timeout": SPANS | st.none(),
    "max_attempts": st.integers(1, 1_000),
    "backoff": st.builds("{}^n * {}".format, st.integers(2, 9), SPANS) | SPANS,
    "backoff_cap": SPANS,
    "jitter": st.booleans(),
    "aging": SPANS | st.none(),
    "capacity": COUNTS | st.none(),
    "rate": st.builds("{}/{}".format, COUNTS, st.sampled_from("smh")) | st.none(),
    "put_rate": st.builds("{}/{}".format, COUNTS, st.sampled_from("smh")) | st.none(),
    "on_expire": st.sampled_from(["dead", "drop"]),
    "dead_letter": st.from_regex(r"[a-z_]{1,20}", fullmatch=True),
    "keep_done": SPANS,
}


@given(st.fixed_dictionaries({}, optional=VALUES))
def test_a_policy_says_the_same_as_arguments_as_variables_and_in_its_text_form(given: dict[str, Any]) -> None:
    def text(value: Any) -> str:
        return "off" if value is None else str(value)

    by_argument = load(environ={}, **given)
    by_variable = load(environ={f"POSTROOM_{name.upper()}": text(value) for name, value in given.items()})
    assert by_argument.default == by_variable.default == Policy(**given)
    again = load(environ={}, **{name: setting.value for name, setting in by_argument.settings.items()})
    assert again.default == by_argument.default


@given(st.text(max_size=40))
def test_whatever_stands_in_a_variable_is_taken_or_refused_in_one_line(text: str) -> None:
    for name in known.TOP_LEVEL:
        variable = f"POSTROOM_{name.upper()}"
        try:
            config = load(environ={variable: text})
        except ConfigError as error:
            assert str(error).startswith(f"{variable}: ")
            assert len(str(error).splitlines()) == 1
        else:
            assert config.origin_of(None, name) in (variable, "default")


@given(st.integers(1, 10**15))
def test_a_size_is_written_so_that_it_reads_back(size: int) -> None:
    assert known.size_in_bytes(known.TOP.written("max_body", size)) == size


# ---- What is shown, what is documented --------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:pa:ss@word@host:6379/0", "redis://user:***@host:6379/0"),
        ("redis://:secret@host", "redis://:***@host"),
        ("redis://host:6379/0?password=secret&prefix=a", "redis://host:6379/0?password=***&prefix=a"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert known.without_secrets(url) == shown


def test_a_table_of_the_file_is_a_prefix_everywhere_else(load_text: Load) -> None:
    config = load_text('[idempotency]\nevery_task = true\nttl = "1h"', {"POSTROOM_IDEMPOTENCY_TTL": "2h"})
    assert (config.idempotency_every_task, config.idempotency_ttl) == (True, 7_200_000)
    assert config.origin_of(None, "idempotency_ttl") == "POSTROOM_IDEMPOTENCY_TTL"


@pytest.mark.parametrize(
    "text", ["idempotency = 1", "[idempotency]\nevry_task = true", "[idempotency]\nttl = 0"]
)
def test_a_table_with_something_wrong_is_refused(load_text: Load, text: str) -> None:
    with pytest.raises(ConfigError, match="idempotency"):
        load_text(text)


def test_the_table_of_the_server(load_text: Load) -> None:
    text = (
        '[http]\nhost = "::1"\nport = 80\nrate = "off"\nredact = ["iban"]\nredact_patterns = [\'cust-\\d+\']'
    )
    environ = {"POSTROOM_HTTP_ALLOW_HOSTS": "a.example, b", "POSTROOM_HTTP_PORT": "81"}
    environ["POSTROOM_HTTP_SERVICES"] = "billing, shop.app:app"
    environ["POSTROOM_HTTP_ENVIRONMENT"] = "production"
    environ["POSTROOM_HTTP_TRACE_LINK"] = "https://traces.example/{trace_id}"
    config = load_text(text, environ, http_read_only=True)
    assert config.http == Http(
        host="::1", port=81, tls_cert=None, tls_key=None, auth="auto", read_only=True, rate=None,
        allow_hosts=["a.example", "b"], redact=["iban"], redact_patterns=["cust-\\d+"],
        services=["billing", "shop.app:app"], environment="production", environment_colour="grey",
        trace_link="https://traces.example/{trace_id}",
    )  # fmt: skip
    origins = {name: config.origin_of(None, f"http_{name}") for name in ("host", "port", "read_only", "auth")}
    assert origins == {
        "host": "postroom.toml", "port": "POSTROOM_HTTP_PORT", "read_only": "argument", "auth": "default",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ['host = "a b"', "host = 1", "port = 70000", 'port = "x"', "port = true", 'auth = "none"',
     'rate = "fast"', "allow_hosts = 1", "redact = [1]", 'redact_patterns = ["("]',
     'tls_cert = ""', "hosts = []", 'environment = ""', f'environment = "{"x" * 31}"', "environment = 1",
     'environment_colour = "#f00"', "trace_link = 1", 'trace_link = "https://traces.example/"',
     'trace_link = "javascript:alert({trace_id})"', 'trace_link = "https://{trace_id}.example/{trace_id}"',
     'trace_link = "https://traces.example/{trace_id}?{user}"', 'trace_link = "ftp://x/{trace_id}"',
     "trace_link = 'https://x/{trace_id}\"'", 'trace_link = "https://x /{trace_id}"'],
)  # fmt: skip
def test_a_server_with_something_wrong_is_refused(load_text: Load, text: str) -> None:
    with pytest.raises(ConfigError, match=r"http_|\[http\] hosts"):
        load_text(f"[http]\n{text}")


def test_a_mistyped_setting_of_a_table_is_told_as_it_is_written(load_text: Load) -> None:
    with pytest.raises(ConfigError, match=r"\[http\] prot: unknown setting; did you mean port\?"):
        load_text("[http]\nprot = 80")


PAGE = REPO / "docs" / "reference" / "config.md"


def test_the_page_lists_every_setting_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))

    def shown(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else "off" if value is None else str(value)

    defaults = {name: shown(value) for name, value in known.DEFAULTS.items() if name != "labels"}
    assert rows == defaults | {"labels": "{ low = 0, normal = 5, high = 10 }"}


def test_the_page_explains_the_other_names() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in (*known.ALIASES, "POSTROOM_CONFIG"))


def test_the_example_of_the_page_is_valid(load_text: Load) -> None:
    examples = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    for example in examples:
        load_text(example)


def test_importing_the_configuration_does_not_load_what_only_a_file_or_a_mistake_needs() -> None:
    code = "import sys, postroom.config; print({'tomllib', 'difflib', 'typer', 'rich'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "set()\n"
