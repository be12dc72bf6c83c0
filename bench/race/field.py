"""Who runs, on which terms, and what nobody should expect of whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

#: One process with so many jobs at once, for all who can.
HANDS = 8

_NO_BATCH = "has no call that takes many jobs"
_NO_PRIORITY = "has no priorities"


@dataclass(frozen=True)
class Runner:
    """One of the field."""

    slug: str
    name: str
    #: Its class, see `bench.systems`.
    system: str
    #: Where it keeps its jobs: redis, sqlite or postgres.
    store: str
    #: The distribution whose version is said.
    package: str
    #: The settings by which a job outlives its worker, as far as it can.
    terms: str
    #: Enough of them for a drain of some seconds.
    jobs: int
    #: By discipline, why it does not take part.
    unable: dict[str, str] = field(default_factory=dict)
    #: The environment that has it; one whose requirements do not fit beside the others has its own.
    venv: str = ".venv"

    @property
    def is_ours(self) -> bool:
        return self.slug.startswith("postroom") or self.slug.endswith("postroom")

    def python(self, repo: Path) -> Path:
        return repo / self.venv / "bin" / "python"


FIELD = (
    Runner("postroom", "Postroom", "Postroom", "redis", "postroom", "as it comes: a lease of 30 s", 40_000),
    Runner(
        "celery-postroom",
        "Celery on Postroom",
        "Celery on Postroom",
        "redis",
        "celery",
        "`task_acks_late`, `task_reject_on_worker_lost`, threads; `visibility_timeout`, the lease, 60 s",
        6_000,
    ),
    Runner(
        "celery",
        "Celery",
        "Celery",
        "redis",
        "celery",
        "kombu's Redis transport; late acks and threads as above; `visibility_timeout` 1 h",
        2_000,
    ),
    Runner(
        "dramatiq",
        "dramatiq",
        "dramatiq",
        "redis",
        "dramatiq",
        "acks are late as it comes; `heartbeat_timeout` 60 s",
        5_000,
        {"bulk": _NO_BATCH},
    ),
    Runner(
        "huey",
        "huey",
        "huey",
        "redis",
        "huey",
        "`RedisHuey` (`PriorityRedisHuey` for the priorities); it has no acks",
        5_000,
        {"bulk": _NO_BATCH},
    ),
    Runner(
        "rq",
        "RQ",
        "RQ",
        "redis",
        "rq",
        "`Worker`: a fork for each job, one at a time; `Retry(max=3)`, with its scheduler; `result_ttl=0`",
        80,
    ),
    Runner(
        "rq-simple",
        "RQ, SimpleWorker",
        "RQ SimpleWorker",
        "redis",
        "rq",
        "the same without the fork, one at a time",
        400,
    ),
    Runner(
        "arq",
        "arq",
        "arq",
        "redis",
        "arq",
        "acks are late as it comes; `job_timeout` 300 s; `keep_result=0`",
        500,
        {"bulk": _NO_BATCH, "priority": _NO_PRIORITY},
        ".venv-arq",
    ),
    Runner(
        "taskiq",
        "taskiq",
        "taskiq",
        "redis",
        "taskiq-redis",
        "`RedisStreamBroker`, acks when a job is done; `idle_timeout` 10 min; its scheduler every second",
        4_000,
        {"bulk": _NO_BATCH, "priority": _NO_PRIORITY},
    ),
    Runner("streaq", "streaq", "streaq", "redis", "streaq", "as it comes; `idle_timeout` 60 s", 2_000),
    Runner(
        "postroom-sqlite",
        "Postroom",
        "Postroom",
        "sqlite",
        "postroom",
        "as it comes: WAL, `synchronous=FULL`, a lease of 30 s",
        10_000,
    ),
    Runner(
        "huey-sqlite",
        "huey",
        "huey",
        "sqlite",
        "huey",
        "`SqliteHuey(fsync=True)`: WAL, `synchronous=FULL`; it has no acks",
        1_000,
        {"bulk": _NO_BATCH},
    ),
    Runner(
        "procrastinate",
        "procrastinate",
        "procrastinate",
        "postgres",
        "procrastinate",
        "`synchronous_commit=on`; done jobs deleted; its how-to's periodic task that retries stalled jobs",
        600,
    ),
)
OURS = tuple(runner.slug for runner in FIELD if runner.is_ours)
SLUGS = {runner.slug: runner for runner in FIELD}
