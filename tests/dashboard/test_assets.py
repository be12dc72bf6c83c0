"""How the dashboard's files are served, and that a wheel has all of them."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from postroom.errors import NotFound
from postroom.http.assets import FOLDER, Assets
from tests.http.servers import PATIENCE, Served

REPO = Path(__file__).parents[2]
#: Everything that is loaded at first, compressed.
MOST = 150_000


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return httpx.Client(base_url=served.address, timeout=PATIENCE)


def test_a_browser_keeps_every_file_but_the_first(http: httpx.Client) -> None:
    with http:
        index = http.get("/")
        assert index.headers["cache-control"] == "no-cache"
        assert "script-src 'self'" in index.headers["content-security-policy"]
        again = http.get("/", headers={"if-none-match": index.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        places = re.findall(r'(?:href|src)="(assets/[^"]+)"', index.text)
        assert len(places) > 20
        for place in set(places):
            found = http.get(f"/{place}")
            assert found.status_code == 200, place
            assert "immutable" in found.headers["cache-control"]


def test_all_of_it_is_small(http: httpx.Client) -> None:
    with http:
        places = set(re.findall(r'(?:href|src)="(assets/[^"]+)"', http.get("/").text))
        sizes = {place: _size(http, place) for place in places}
    assert sum(sizes.values()) < MOST, sizes


def test_what_is_imported_at_once_is_fetched_at_once_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "vendor").mkdir()
    (tmp_path / "index.html").write_text("<!-- preload -->")
    (tmp_path / "app.js").write_text('import {\n  one,\n} from "./lib/one.js";\nimport "./lib/two.js";\n')
    for name, text in {
        "lib/one.js": 'export * from "../vendor/three.js";\nconst later = () => import("./later.js");\n',
        "lib/two.js": 'import { one } from "./one.js";\n// from "./later.js";\n',
        "lib/later.js": "",
        "vendor/three.js": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = re.findall(r"assets/\w+/([^\"]+)", Assets(tmp_path).index().content.decode())
    assert found == ["lib/one.js", "lib/two.js", "vendor/three.js"]


def _size(http: httpx.Client, place: str) -> int:
    with http.stream("GET", f"/{place}", headers={"accept-encoding": "gzip"}) as found:
        return len(b"".join(found.iter_raw()))


@pytest.mark.parametrize(
    "path",
    [
        "../http/auth.py",
        "..%2Fhttp%2Fauth.py",
        "%2e%2e/http/auth.py",
        "README.md",
        "vendor/VENDOR.json",
        "lib",
    ],
)
def test_only_files_of_the_dashboard_are_served(http: httpx.Client, path: str) -> None:
    with http:
        hash = re.findall(r"assets/(\w+)/", http.get("/").text)[0]
        assert _status(http.base_url.netloc.decode(), f"/assets/{hash}/{path}") == 404
        assert http.get("/assets/0123456789abcdef/app.js").status_code == 404


def _status(address: str, path: str) -> int:
    """Asked for exactly as it is written: httpx would tidy the path up."""
    with closing(HTTPConnection(address, timeout=PATIENCE)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def test_what_a_developer_changes_is_seen_with_the_next_page(tmp_path: Path) -> None:
    folder = tmp_path / "dashboard"
    shutil.copytree(FOLDER, folder)
    assets = Assets(folder)
    before, hash = assets.index(), assets.hash
    (folder / "app.js").write_text("changed")
    assert assets.index() != before
    with pytest.raises(NotFound):
        assets.file(hash, "app.js")
    assert gzip.decompress(assets.file(assets.hash, "app.js").compressed) == b"changed"


def test_without_its_packages_there_is_no_dashboard(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<html>")
    with pytest.raises(NotFound, match="make setup"):
        Assets(tmp_path).index()


# ---- The wheel ------------------------------------------------------------------------------------


def build(repo: Path, out: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    return subprocess.run(command, cwd=repo, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What git has of this repository, and nothing that was made."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPO, capture_output=True, text=True, check=True,
    )  # fmt: skip
    target = tmp_path / "checkout"
    for name in listed.stdout.splitlines():
        if (name.startswith(("src/", "tools/")) or "/" not in name) and (REPO / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, target / name)
    return target


def test_a_wheel_has_the_dashboard_with_its_packages(checkout: Path, tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "vendor", checkout / "src/postroom/dashboard/vendor")
    run = build(checkout, tmp_path / "dist", PATH="")  # what is there is taken: no npm is asked
    assert run.returncode == 0, run.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    served = {f"postroom/dashboard/{name}" for name in Assets()._paths()}
    assert "postroom/dashboard/vendor/preact.js" in served
    assert served <= names
    assert not [name for name in names if name.endswith(".d.ts")]


def test_no_wheel_comes_to_be_without_them(checkout: Path, tmp_path: Path) -> None:
    run = build(checkout, tmp_path / "dist", PATH="")
    assert run.returncode != 0
    assert "npm is missing" in run.stderr
    assert not list((tmp_path / "dist").glob("*.whl"))
