"""Fixtures and profiles that all tests share."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import golden_data

# Deadlines measure the machine; how long a command may take is asserted where it matters.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=50, **_COMMON)
settings.register_profile("ci", max_examples=150, **_COMMON)
settings.register_profile("deep", max_examples=2000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Stores wait for the disk a lot, and nothing here is about the disk itself: a file system in
# memory makes the tests several times faster where there is one with room.
_MEMORY = Path("/dev/shm")
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 << 30 and os.access(_MEMORY, os.W_OK):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# Random places, moments and stores. The processes of a parallel run take it from here.
SEED = os.environ.setdefault("RMQCTL_TEST_SEED", str(random.randrange(1 << 32)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"random tests: RMQCTL_TEST_SEED={SEED} runs the same ones again")


Golden = Callable[[str], Path]


@pytest.fixture(scope="session")
def golden_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where golden stores are unpacked; all workers of a run share it."""
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "golden-stores"
    directory.mkdir(exist_ok=True)
    return directory


@pytest.fixture(scope="session")
def golden(golden_directory: Path) -> Iterator[Golden]:
    """``golden(name)``: the path of an unpacked golden store, for reading only.

    At the end of the run every one that was handed out must be as it was.
    """
    handed_out: dict[Path, dict[str, tuple[int, ...]]] = {}

    def path_of(name: str) -> Path:
        store = golden_data.unpacked(name, golden_directory)
        if store not in handed_out:
            handed_out[store] = golden_data.state(store)
        return store

    yield path_of
    for store, state in handed_out.items():
        assert golden_data.state(store) == state, f"a test has changed {store}"


@pytest.fixture(scope="session")
def broker_conf_file(golden_directory: Path) -> Callable[[str], Path]:
    """``broker_conf_file(name)``: a ``broker.conf`` with a golden store's settings."""

    def path_of(name: str) -> Path:
        path = golden_directory / f"{name}.{os.getpid()}.broker.conf"
        path.write_text(golden_data.broker_conf_text(name), "utf-8")
        return path

    return path_of


@pytest.fixture
def copy_store(golden: Golden, tmp_path: Path) -> Callable[[str], Path]:
    """``copy_store(name)``: a copy of a golden store that the test may change."""
    return lambda name: golden_data.copy_tree(golden(name), tmp_path / name)
