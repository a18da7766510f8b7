"""Where these tests work."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def fast_path() -> Iterator[Path]:
    """A directory in memory where tests/conftest.py has found room. Not below pytest's own, which
    other users may not enter."""
    base = os.environ.get("PYTEST_DEBUG_TEMPROOT")
    with tempfile.TemporaryDirectory(prefix="rmqctl-test-", dir=base) as name:
        yield Path(name)
