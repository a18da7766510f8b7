"""The engines as fixtures. On a machine where they cannot be built the tests are skipped, with the
reason in one line; with RMQCTL_INTEROP=require (as in CI) they fail instead."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.engine import VERSIONS, Engine, NotAvailable, Row, build
from tests.interop.stores import Messages, settings

StartEngine = Callable[[], Engine]
#: Gives a store with so many messages, and the settings with which it was written.
Sound = Callable[[int], tuple[Path, Row]]


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
    # All tests of a version run in one process, so that Java is started once for them.
    params=[pytest.param(v, marks=pytest.mark.xdist_group(f"interop-{v}")) for v in VERSIONS],
)
def version(request: pytest.FixtureRequest) -> str:
    wanted: str = request.param
    return wanted


@pytest.fixture(scope="session")
def start_engine(
    built: None, version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartEngine]:
    """A function that gives the version's running engine; after a kill, a new one."""
    running: list[Engine] = []

    def start() -> Engine:
        if not running or not running[-1].is_alive:
            log = tmp_path_factory.mktemp(f"engine-{version}") / "log"
            running.append(Engine(version, log))
        return running[-1]

    yield start
    for engine in running:
        engine.close()


@pytest.fixture(scope="session")
def sound(start_engine: StartEngine, tmp_path_factory: pytest.TempPathFactory) -> Sound:
    """``sound(messages)`` gives a sound store of many files, written by the engine and stopped
    cleanly. It is shared: a test that changes it takes a copy."""
    made: dict[int, tuple[Path, Row]] = {}

    def of(messages: int) -> tuple[Path, Row]:
        if messages not in made:
            engine = start_engine()
            chance = random.Random(f"sound {engine.version} {messages}")
            values = {**settings(chance, light_queues=False), "mappedFileSizeCommitLog": 16384}
            root = tmp_path_factory.mktemp("sound") / "store"
            store = engine.open(root, values)
            store.put(Messages(chance, values, engine.version).take(messages))
            store.settle()
            store.shutdown()
            made[messages] = root, values
        return made[messages]

    return of


@pytest.fixture
def engine(start_engine: StartEngine) -> Engine:
    return start_engine()
