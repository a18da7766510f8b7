"""The engines as fixtures. Where they cannot be had, the tests are skipped, and the reason is one
line; with RMQCTL_INTEROP=require (as in CI) they fail instead."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.engine import VERSIONS, Engine, NotAvailable, build

StartEngine = Callable[[], Engine]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def built() -> None:
    try:
        build()
    except NotAvailable as problem:
        if os.environ.get("RMQCTL_INTEROP") == "require":
            raise
        pytest.skip(str(problem))


@pytest.fixture(
    scope="session",
    # One process of the tests runs all tests of a version, so that Java starts once for them.
    params=[pytest.param(v, marks=pytest.mark.xdist_group(f"interop-{v}")) for v in VERSIONS],
)
def version(request: pytest.FixtureRequest) -> str:
    wanted: str = request.param
    return wanted


@pytest.fixture(scope="session")
def start_engine(
    built: None, version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartEngine]:
    """Gives the version's running engine, a fresh one after a kill."""
    running: list[Engine] = []

    def start() -> Engine:
        if not running or not running[-1].is_alive:
            log = tmp_path_factory.mktemp(f"engine-{version}") / "log"
            running.append(Engine(version, log))
        return running[-1]

    yield start
    for engine in running:
        engine.close()


@pytest.fixture
def engine(start_engine: StartEngine) -> Engine:
    return start_engine()
