"""What all tests share."""

from __future__ import annotations

import pytest

# The contract's asserts live in the package; rewritten, they explain themselves like any test's.
pytest.register_assert_rewrite("postroom.testing")
