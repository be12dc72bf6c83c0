"""The pages about running Postroom: what they show is started, or checked by whoever would read it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
import yaml

import postroom
from postroom.config import Config, load
from postroom.findings import Level
from tests.cli.inside import Inside
from tests.cli.shell import CLEAN, COMMAND, Shell
from tests.docs.blocks import Block, of, write_files
from tests.docs.shell import read_postroom
from tests.redis import servers

HOW_TO = "docs/how-to"


def shown(page: str, kind: str) -> list[Block]:
    return of(kind, f"{HOW_TO}/{page}")


def loaded(text: str, folder: Path) -> Config:
    (folder / "postroom.toml").write_text(text, encoding="utf-8")
    return load(folder / "postroom.toml", environ={})


# ---- By role ---------------------------------------------------------------------------------------


def test_workers_of_a_role_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(f"{HOW_TO}/run-workers-by-role.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    inside = Inside(monkeypatch, capsys)
    assert inside.run("config", "check", "--strict").out == "ok\n"
    inside.run("message", "put", "emails", '{"to": "ada"}')
    inside.run("message", "put", "chat", '{"who": "bob"}', "--kind", "joined")
    worked = Shell(tmp_path).run("worker", "--role", "fast", "--drain").stdout
    assert sorted(worked.splitlines()) == ["bob joined", "to ada"]


# ---- Kubernetes ------------------------------------------------------------------------------------


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    documents = [
        each for block in shown("run-on-kubernetes.md", "yaml") for each in yaml.safe_load_all(block.text)
    ]
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def pod(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of a Deployment: its pods, and their only container."""
    deployment = manifests()["Deployment", name]["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    spec = deployment["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


def test_pods_start_what_there_is_with_a_configuration_that_holds(tmp_path: Path) -> None:
    config = loaded(manifests()["ConfigMap", "postroom"]["data"]["postroom.toml"], tmp_path)
    for name, command in (("postroom-fast", "worker"), ("postroom-server", "serve")):
        spec, container = pod(name)
        assert container["command"][0] == "postroom"
        assert read_postroom(container["command"][1:]) == [command]
        (mount,), (volume,) = container["volumeMounts"], spec["volumes"]
        assert mount["name"] == volume["name"]
        assert container["env"][0]["value"] == f"{mount['mountPath']}/postroom.toml"
        assert manifests()["ConfigMap", volume["configMap"]["name"]]
        assert manifests()["Secret", container["envFrom"][0]["secretRef"]["name"]]["stringData"].keys() == {
            "POSTROOM_URL"
        }
    spec, container = pod("postroom-fast")
    role = config.role(container["command"][3])
    assert spec["terminationGracePeriodSeconds"] * 1_000 > role.stop_timeout
    assert pod("postroom-server")[0]["terminationGracePeriodSeconds"] > 10


def test_probes_and_ports_are_those_that_are_served(tmp_path: Path) -> None:
    config = loaded(manifests()["ConfigMap", "postroom"]["data"]["postroom.toml"], tmp_path)
    _, server = pod("postroom-server")
    assert [port["containerPort"] for port in server["ports"]] == [config.http.port]
    _, worker = pod("postroom-fast")
    assert str(worker["ports"][0]["containerPort"]) in worker["command"]
    assert worker["livenessProbe"]["tcpSocket"]["port"] == worker["ports"][0]["name"]
    for probe in ("livenessProbe", "readinessProbe"):
        assert server[probe]["httpGet"]["port"] == server["ports"][0]["name"]
    assert (server["livenessProbe"]["httpGet"]["path"], server["readinessProbe"]["httpGet"]["path"]) == (
        "/healthz",
        "/readyz",
    )
    (served,) = manifests()["Service", "postroom"]["spec"]["ports"]
    assert served["targetPort"] == server["ports"][0]["name"]


@pytest.mark.parametrize("name", ["postroom-fast", "postroom-server"])
def test_pods_answer_their_probes_and_end_in_time(name: str, tmp_path: Path) -> None:
    """As a node would have it: the command, the variables and the file, but on loopback and another port."""
    spec, container = pod(name)
    ((there,), (port, held)) = container["ports"], servers.claimed_port()

    def here(text: str) -> str:
        return text.replace("0.0.0.0", servers.HOST).replace(str(there["containerPort"]), str(port))

    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "jobs.py").write_text("handlers = {'emails': print}\n", encoding="utf-8")
    config = tmp_path / "postroom.toml"
    config.write_text(here(manifests()["ConfigMap", "postroom"]["data"]["postroom.toml"]), encoding="utf-8")
    command = [*COMMAND, *map(here, container["command"][1:])]
    with held, servers.single() as server, (tmp_path / "log").open("w") as log:
        environ = CLEAN | {container["env"][0]["name"]: str(config), "POSTROOM_URL": server.url()}
        with subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=log, stderr=log) as process:
            try:
                for kind in {"livenessProbe", "readinessProbe"} & container.keys():
                    probe = container[kind]
                    servers.until(lambda probe=probe: is_well(probe, port), f"{kind} fails")  # type: ignore[misc]
                process.terminate()
                assert process.wait(spec["terminationGracePeriodSeconds"]) == 0
            finally:
                process.kill()


def is_well(probe: dict[str, Any], port: int) -> bool:
    """What a node makes of a probe: it asks by an address of the pod, which no list of hosts names."""
    try:
        if "httpGet" not in probe:
            with socket.create_connection((servers.HOST, port), 1):
                return True
        asked = httpx.get(
            f"http://{servers.HOST}:{port}{probe['httpGet']['path']}", headers={"host": f"10.0.0.7:{port}"}
        )
        return asked.is_success
    except (OSError, httpx.TransportError):
        return False


# ---- Redis -----------------------------------------------------------------------------------------


def directives(block: Block) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in block.text.splitlines() if not line.startswith("user "))


def test_the_doctor_has_nothing_to_say_about_the_configuration() -> None:
    first, _ = shown("redis-in-production.md", "conf")
    with servers.single(directives(first)) as server, postroom.open(server.url(**servers.PATIENT)) as room:
        assert [finding for finding in room.engine.inspect() if finding.level is not Level.OK] == []


def test_the_user_of_the_page_is_allowed_all_that_is_needed_and_the_default_user_nothing() -> None:
    _, users = shown("redis-in-production.md", "conf")
    off, app = users.text.splitlines()
    assert off == "user default off"
    permissions = app.removeprefix("user app on >secret ")
    with (
        servers.single(password="secret", acl=permissions) as server,
        postroom.open(server.url(**servers.PATIENT)) as room,
    ):
        with redis.Redis(port=server.port) as default:
            default.execute_command("ACL", "SETUSER", *off.split()[1:])
        queue = room.queue("emails", policy=postroom.Policy(max_attempts=1))
        queue.put_many([1, 2])
        postroom.Worker(room, {"emails": lambda delivery: 1 / (2 - delivery.body)}).run(drain=True)
        assert (queue.stats().counters["acked"], queue.stats().dead) == (1, 1)
        assert room.engine.inspect()


# ---- FastAPI ---------------------------------------------------------------------------------------


@contextmanager
def web(folder: Path) -> Iterator[str]:
    """`uvicorn web:app`, as on the page, on a port of its own; its address."""
    port, held = servers.claimed_port()
    command = [sys.executable, "-m", "uvicorn", "web:app", "--timeout-graceful-shutdown", "10"]
    with held, (folder / "web.log").open("w") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command, "--port", str(port)],
            cwd=folder, env=CLEAN, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            address = f"http://127.0.0.1:{port}"
            servers.until(lambda: process.poll() is not None or answers(address), "nobody serves")
            yield address
        finally:
            process.terminate()
            try:
                process.wait(servers.PATIENCE)
            finally:
                process.kill()
                process.wait()


def answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/jobs/readyz").is_success
    except httpx.TransportError:
        return False


def test_the_service_with_fastapi_runs(tmp_path: Path) -> None:
    """Put twice by a route, seen through the mounted API, worked on by a worker of its own."""
    write_files(f"{HOW_TO}/use-with-fastapi.md", tmp_path)
    shell = Shell(tmp_path)
    token = shell.run("token", "create", "ada", "--role", "admin").stdout.strip()
    with web(tmp_path) as address, httpx.Client(base_url=address, timeout=servers.PATIENCE) as client:
        ada = {"address": "ada@example.org"}
        puts = [client.post("/signups", json=ada) for _ in range(2)]
        assert [put.status_code for put in puts] == [202, 202], (tmp_path / "web.log").read_text()
        assert [put.json()["created"] for put in puts] == [True, False]
        assert client.post("/reminders", json=ada).status_code == 202
        assert client.get("/jobs/api/v1/queues").status_code == 401
        client.headers["Authorization"] = f"Bearer {token}"
        (seen,) = client.get("/jobs/api/v1/queues").json()["queues"]
        assert (seen["stats"]["ready"], seen["stats"]["scheduled"]) == (1, 1)
        assert "Postroom" in client.get("/jobs/").text
        servers.until(lambda: client.get("/jobs/api/v1/stats").json()["keeper"], "its lifespan never began")
        assert shell.run("worker", "--role", "mail", "--drain").stdout == "welcome, ada@example.org\n"
    assert "Application shutdown complete" in (tmp_path / "web.log").read_text()
