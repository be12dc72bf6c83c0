"""A systemd of one's own: init of a machine whose units, users, files and network end with it.

The kernel is shared and the programs are those of this machine, but for whoever is inside there is no
process, port, unit or state but its own, and its root has no power outside. Only root can make one: a manager
wants users, and a cgroup.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cli.shell import CLEAN
from tests.docs.blocks import REPO
from tests.redis.servers import DIES_WITH_US, PATIENCE, until

MANAGER = Path("/lib/systemd/systemd")
_INIT = Path(__file__).with_name("systemd-init.sh")
#: What every service wants by itself. Those of this machine would start what else is installed on it.
_TARGETS = ("basic", "multi-user", "network-online", "shutdown", "sysinit")
_APART = ("--mount", "--pid", "--fork", "--kill-child", "--cgroup", "--uts", "--ipc", "--net")
#: What has a cgroup and users of its own before it is anything else. Whoever gains powers by `exec`, as a
#: root whose users have just been given, is no longer told when its parent dies: hence that comes last.
_BEFORE = """
echo $$ > "$0/cgroup.procs"
exec unshare --user sh -c 'until grep -q . /proc/self/uid_map; do sleep 0.01; done; exec "$@"' sh "$@"
"""
#: What its user has to read of this machine: there it is /run/held/1 and /run/held/2.
_HELD = (str(REPO / "src"), sys.prefix)
#: As many as Debian knows by number, under the same ones.
_USERS = "0 0 65536"


class Machine:
    """What is said to it from outside, as its root, who stands in the folder of its user."""

    def __init__(self, init: int, folder: str) -> None:
        self._enter = ["nsenter", f"--target={init}", "--all", "bash", "-euc"]
        self._folder, self._environ = folder, CLEAN | {"PATH": f"{folder}/.venv/bin:{os.environ['PATH']}"}

    def run(self, script: str) -> str:
        """What these commands say; the first that fails is an error."""
        ran = self._ran(script)
        assert ran.returncode == 0, f"{script}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def does(self, command: str) -> bool:
        """Whether it is done without an error."""
        return self._ran(command).returncode == 0

    def _ran(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._enter, f"cd {self._folder}\n{script}"],
            check=False, env=self._environ, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip


@contextmanager
def machine(folder: Path, files: Mapping[str, str], user: str) -> Iterator[Machine]:
    """Started, with these files and this user; everything else of /srv, /var/lib and systemd's is empty.

    Postroom is installed in /srv/USER, as a wrapper for the one that is tested.
    """
    root, cgroup = folder / "root", _cgroups() / f"postroom-{os.getpid()}"
    _furnish(root, files, user)
    cgroup.mkdir()
    log = folder / "systemd.log"
    try:
        with log.open("w") as said:
            outside = subprocess.Popen(
                [*DIES_WITH_US, "sh", "-c", _BEFORE, str(cgroup), *DIES_WITH_US, "unshare", *_APART,
                 "bash", str(_INIT), str(MANAGER), str(root), user, sys.base_prefix, *_HELD],
                stdout=said, stderr=said,
            )  # fmt: skip
        try:
            _give_users(outside, log)
            inside = Machine(_child(outside, log), f"/srv/{user}")
            until(lambda: inside.does("systemctl is-active multi-user.target"), "systemd has not started")
            yield inside
        finally:
            outside.kill()  # and with it its init, and with that everybody
            outside.wait()
    finally:
        until(lambda: _removed(cgroup), f"somebody is still in {cgroup}")


def _cgroups() -> Path:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return next(Path(where) for _, where, kind, *_ in mounts if kind == "cgroup2")


def _furnish(root: Path, files: Mapping[str, str], user: str) -> None:
    units = {f"/etc/systemd/system/{name}.target": "[Unit]\nDefaultDependencies=no\n" for name in _TARGETS}
    for name, text in {**units, **files}.items():
        file = root / name.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    program = root / "srv" / user / ".venv" / "bin" / "postroom"
    program.parent.mkdir(parents=True)
    code = "import sys; from postroom.cli import main; sys.argv[0] = 'postroom'; sys.exit(main())"
    run = f'PYTHONPATH=/run/held/1 exec /run/held/2/bin/python -c "{code}" "$@"'
    program.write_text(f"#!/bin/sh\n{run}\n")
    program.chmod(0o755)


def _give_users(outside: subprocess.Popen[bytes], log: Path) -> None:
    process = Path(f"/proc/{outside.pid}")

    def is_apart() -> bool:
        assert outside.poll() is None, log.read_text()
        return (process / "ns/user").readlink() != Path("/proc/self/ns/user").readlink()

    until(is_apart, "it has no users of its own")
    for users in ("gid_map", "uid_map"):  # the last one is what it waits for
        (process / users).write_text(_USERS)


def _child(outside: subprocess.Popen[bytes], log: Path) -> int:
    """The init, once it is one: what it was before has the name of a shell."""
    children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children")

    def is_there() -> bool:
        assert outside.poll() is None, log.read_text()
        with suppress(OSError):  # somebody who was there a moment ago
            return [Path(f"/proc/{pid}/comm").read_text() for pid in children.read_text().split()] == [
                "systemd\n"
            ]
        return False

    until(is_there, "systemd did not start")
    return int(children.read_text())


def _removed(cgroup: Path) -> bool:
    """A cgroup cannot be removed while somebody in it is still dying."""
    try:
        for folder, _, _ in os.walk(cgroup, topdown=False):
            Path(folder).rmdir()
    except OSError:
        return False
    return True


def is_possible() -> bool:
    """Whether this machine lets its root do it: a container may not."""
    tried = ["unshare", "--user", "--map-root-user", *_APART, "true"]
    return os.geteuid() == 0 and subprocess.run(tried, check=False, capture_output=True).returncode == 0
