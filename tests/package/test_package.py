"""What is built is whole, and works where nothing else is installed; `make package` tries every extra."""

from __future__ import annotations

import importlib.util
import re
import tarfile
import tomllib
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest

from tests.package.building import REPO, build, differences, empty_venv, install, smoke, wheel_from
from tests.package.smoke import EXTRAS

PACKAGE = REPO / "src" / "postroom"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("dist"))


def files_of(folder: Path) -> set[str]:
    """What is meant for users: no caches, and nothing that only helps to write the dashboard."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    names = {str(path.relative_to(folder.parent)) for path in paths}
    return {name for name in names if not name.endswith((".d.ts", "dashboard/README.md"))}


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    names = {name for name in zipfile.ZipFile(built[0]).namelist() if ".dist-info/" not in name}
    assert names == files_of(PACKAGE)
    assert "postroom/py.typed" in names


def test_the_source_can_be_built_and_tested(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in files_of(PACKAGE)} <= names
    assert {"pyproject.toml", "LICENSE", "README.md", "SECURITY.md", "Makefile", "tools/setup"} <= names
    assert not [name for name in names if re.search(r"\.venv|__pycache__|\.db$|\.git/", name)]


def test_the_source_makes_the_same_wheel_as_the_tree(built: tuple[Path, Path], tmp_path: Path) -> None:
    """So what `make package` tries with each extra, it tries for both."""
    wheel, source = built
    assert differences(wheel, wheel_from(source, tmp_path)) == []


def test_it_works_where_only_what_it_needs_is_installed(built: tuple[Path, Path], tmp_path: Path) -> None:
    """The core needs msgspec, which is taken from here: a test asks no index of packages."""
    python = empty_venv(tmp_path / "venv")
    install(python, "--no-deps", "--no-index", built[0])
    (site,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    spec = importlib.util.find_spec("msgspec")
    assert spec and spec.origin
    (site / "msgspec").symlink_to(Path(spec.origin).parent)
    assert smoke(python) == "ok: core\nok: nothing_else\n"


def test_the_extras_bring_what_kombus_redis_transport_needs() -> None:
    """`celery migrate` uses it, and kombu asks for it only with an extra of its own."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    brought = {name_of(each) for extra in ("celery", "redis") for each in extras[extra]}
    needed = {name_of(each) for each in requires("kombu") or () if re.search(r"extra == .redis", each)}
    assert "redis" in needed
    assert needed <= brought


def name_of(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement)[0]


def test_every_extra_is_tried_by_make_package() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["dependencies"] == ["msgspec>=0.19"]
    ours = project["optional-dependencies"].keys() - {"all", "dev", "bench", "race", "package"}
    assert set(EXTRAS) == ours
    assert set(re.findall(r"\w+", project["optional-dependencies"]["all"][0].partition("[")[2])) == ours
