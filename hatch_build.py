"""Hatch asks this before it builds: there must be no wheel without the dashboard's packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class VendorHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make vendor/ if it is not there; raises if it cannot be made. An editable install does without."""
        if version == "editable":
            return
        found = importlib.util.spec_from_file_location("vendor", Path(self.root) / "tools" / "vendor.py")
        assert found and found.loader
        vendor = importlib.util.module_from_spec(found)
        found.loader.exec_module(vendor)
        vendor.ensure()
