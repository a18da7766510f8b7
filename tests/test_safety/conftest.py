"""Where these tests work: in memory, since no power fails here and each store syncs its files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def fast_path() -> Iterator[Path]:
    """A directory in memory where the machine has such a place."""
    base = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="rmqctl-test-", dir=base) as name:
        yield Path(name)
