"""Every page in both themes, as the documentation shows it: taken with every run, so that it can be."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.dashboard.pictures import DESK, names, take_all
from tests.dashboard.scenes import PHONE

REPO = Path(__file__).parents[2]
#: Here lie those of the last run, to be looked at.
TAKEN, SHOWN = REPO / "build" / "images", REPO / "docs" / "images"


@pytest.mark.timeout(900)
def test_every_page_has_its_picture_in_both_themes(browser: Browser) -> None:
    shutil.rmtree(TAKEN, ignore_errors=True)
    take_all(browser, TAKEN)
    assert {picture.name for picture in TAKEN.iterdir()} == names()
    for picture in sorted(TAKEN.iterdir()):
        size = PHONE if "-phone-" in picture.name else DESK
        assert measured(picture) == (size["width"], size["height"]), picture.name
        if not (SHOWN / picture.name).exists():  # of a page that is new
            shutil.copy(picture, SHOWN)


def measured(picture: Path) -> tuple[int, int]:
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    return width, height
