"""What a Redis URL says, and how it says that something is wrong with it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from postroom.engines.redis.urls import OPTIONS, SCHEMES, Node, Settings, Tls, read
from postroom.errors import ConfigError


def settings(url: str) -> Settings:
    return read(urlsplit(url))


@pytest.mark.parametrize(
    ("url", "host", "port", "db"),
    [
        ("redis://", "localhost", 6379, 0),
        ("redis://cache", "cache", 6379, 0),
        ("redis://cache/", "cache", 6379, 0),
        ("valkey://cache:7000/3", "cache", 7000, 3),
        ("redis://[::1]:7000/3", "::1", 7000, 3),
        ("redis://:7000", "localhost", 7000, 0),
    ],
)
def test_one_server(url: str, host: str, port: int, db: int) -> None:
    made = settings(url)
    assert (made.mode, made.nodes, made.db, made.tls) == ("single", (Node(host, port),), db, None)


def test_a_user_and_a_password_are_decoded() -> None:
    made = settings("redis://us%40er:p%3A%2F%23%25@host")
    assert (made.username, made.password) == ("us@er", "p:/#%")
    assert settings("redis://:only@host").username is None
    assert settings("redis://host").password is None


def test_the_defaults_bound_every_wait() -> None:
    made = settings("redis://host")
    assert (made.socket_connect_timeout, made.socket_timeout, made.health_check_interval) == (2, 5, 25)
    assert (made.max_connections, made.prefix, made.socket_keepalive) == (10, "postroom", True)


def test_every_option_is_read_by_its_type() -> None:
    made = settings(
        "redis://host?prefix=shop&socket_timeout=1500ms&socket_connect_timeout=0.5&socket_keepalive=no"
        "&health_check_interval=1m&retry_on_timeout=yes&max_connections=50&client_name=me&db=4"
    )
    assert (made.prefix, made.socket_timeout, made.socket_connect_timeout) == ("shop", 1.5, 0.5)
    assert (made.socket_keepalive, made.health_check_interval, made.retry_on_timeout) == (False, 60, True)
    assert (made.max_connections, made.client_name, made.db) == (50, "me", 4)


def test_sentinel() -> None:
    made = settings("redis+sentinel://user:pw@h1:1,h2,h3:3/main/2?sentinel_password=other")
    assert made.nodes == (Node("h1", 1), Node("h2", 26379), Node("h3", 3))
    assert (made.mode, made.service, made.db) == ("sentinel", "main", 2)
    assert (made.password, made.sentinel_password) == ("pw", "other")
    assert made.where == "redis+sentinel://h1:1,h2:26379,h3:3/main/2"


def test_cluster() -> None:
    made = settings("rediss+cluster://h1:1,h2")
    assert (made.mode, made.nodes, made.tls) == ("cluster", (Node("h1", 1), Node("h2", 6379)), Tls())


def test_a_unix_socket() -> None:
    made = settings("redis+socket://:pw@/run/redis%20x.sock?db=2")
    assert (made.mode, made.path, made.password, made.db) == ("socket", "/run/redis x.sock", "pw", 2)


def test_tls(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.touch()
    made = settings(f"rediss://host?ssl_ca_certs={file}&ssl_certfile={file}&ssl_keyfile={file}")
    assert made.tls == Tls(ca_certs=str(file), certfile=str(file), keyfile=str(file))
    assert settings("redis://host?ssl=yes").tls == Tls()
    loose = settings("valkeys://host?ssl_check_hostname=no&ssl_cert_reqs=none").tls
    assert loose == Tls(check_hostname=False, cert_reqs="none")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://host/x", "database is a number"),
        ("redis://host/1/2", "database is a number"),
        ("redis://host:0", "host:port"),
        ("redis://host:99999", "host:port"),
        (f"redis://{'x' * 70}", "host:port"),
        ("redis://h1,h2", "redis\\+cluster"),
        ("redis://host#x", "%23"),
        ("redis+sentinel://h1,h2", "names its primary"),
        ("redis+cluster://h1/1", "only database 0"),
        ("redis+cluster://h1?db=1", "only database 0"),
        ("redis+socket://", "takes a path"),
        ("redis://host?socket_timout=1", "did you mean socket_timeout"),
        ("redis://host?zzz=1", "there are prefix, "),
        ("redis://host?db=1&db=2", "given twice"),
        ("redis://host?socket_timeout=soon", "socket_timeout"),
        ("redis://host?socket_timeout=0", "between 1ms and 1h"),
        ("redis://host?socket_keepalive=maybe", "yes or no"),
        ("redis://host?max_connections=0", "from 1 to"),
        ("redis://host?max_connections=-1", "from 1 to"),
        ("redis://host?prefix=", "braces"),
        ("redis://host?prefix=a{b}", "braces"),
        ("redis://host?prefix=" + "x" * 101, "braces"),
        ("redis://host?client_name=a%20b", "without spaces"),
        ("rediss://host?ssl_ca_certs=/nowhere.pem", "no file"),
        ("rediss://host?ssl_cert_reqs=sometimes", "required or none"),
        ("rediss://host?ssl=no", "contradicts"),
        ("redis://host?ssl_check_hostname=no", "rediss:// only"),
        ("redis://host?sentinel_password=x", "sentinel:// only"),
    ],
)
def test_what_is_wrong_is_said(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        settings(url)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_text_holds_a_secret(scheme: str) -> None:
    hosts = "" if scheme.endswith("socket") else "h1"
    url = (
        f"{scheme}://user:hunter2@{hosts}/main"
        if "sentinel" in scheme
        else f"{scheme}://user:hunter2@{hosts}"
    )
    made = settings(url + "/x.sock" if scheme.endswith("socket") else url)
    assert made.password == "hunter2"
    assert "hunter2" not in f"{made!r} {made} {made.where}"


@pytest.mark.parametrize(
    "url", ["redis://user:hunt@er/2@host", "redis://u:hunter2@host:x", "redis://:a:hunter2"]
)
def test_an_unreadable_password_is_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(url)
    assert "hunt" not in str(caught.value)


def test_the_options_of_the_specification_are_known() -> None:
    table = "health_check_interval max_connections socket_timeout socket_connect_timeout socket_keepalive"
    assert {*table.split(), "retry_on_timeout", "client_name", "ssl"} <= OPTIONS.keys()
