"""examples/two_services does what its README says, by its command, on a file and on RabbitMQ."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.celery.workers import REPO
from tests.events.rabbit import running

pytestmark = pytest.mark.timeout(600)


def play(*arguments: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-m", "examples.two_services", *arguments],
        cwd=REPO, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.parametrize("broker", ["file", "rabbitmq"])
def test_every_invoice_gets_its_letter_the_failed_one_out_of_the_archive(broker: str) -> None:
    if broker == "file":
        lines = play()
    else:
        with running() as rabbit:
            lines = play("--broker", rabbit.url)
    told = [line for line in lines if line.startswith(("billing", "mailing"))]
    expected = [f"mailing: a letter for invoice {n} to customer{n}@example.org" for n in range(1, 6)]
    expected += [f"billing: invoice {n} is ticked off" for n in range(1, 6)]
    assert sorted(told) == sorted(expected), "each once"
    repaired = lines.index("the mail server is repaired; replay")
    assert lines[repaired - 1] == (
        "archive of mailing: 1 × ConnectionError: the mail server knows no such host"
    )
    assert lines[-1] == "every invoice has its letter, and billing knows"
    assert [line for line in told if "invoice 4" in line] == [
        line for line in lines[repaired:] if "invoice 4" in line
    ]


def test_the_readme_has_these_commands() -> None:
    text = (Path(REPO) / "examples" / "two_services" / "README.md").read_text(encoding="utf-8")
    assert "\npython -m examples.two_services\n" in text
    assert "python -m examples.two_services --broker amqp://" in text
