"""What is optional says what to install, and is not missed by who does not use it."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys
sys.modules[{package!r}] = None
import postroom
from postroom import telemetry
with postroom.open("memory://", telemetry=True) as room:
    room.queue("emails").put(1)
    try:
        {use}
    except postroom.errors.MissingExtra as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("package", "use", "extra"),
    [
        (
            "prometheus_client",
            'postroom.Worker(room, {"emails": print}, metrics_port=0).run(drain=True)',
            "postroom[metrics]",
        ),
        (
            "opentelemetry",
            'postroom.open("memory://", tracing=True).queue("emails").put(1)',
            "postroom[traces]",
        ),
    ],
)
def test_a_missing_package_is_one_clear_error(package: str, use: str, extra: str) -> None:
    code = WITHOUT.format(package=package, use=use)
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert extra in ran.stdout
