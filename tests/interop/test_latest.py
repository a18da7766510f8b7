"""The newest version of the engine, for what every store has. Its tests are skipped, with the
reason, where its artefacts cannot be had."""

from __future__ import annotations

import pytest

from tests.interop import test_round_trips
from tests.interop.engine import LATEST, NotAvailable, build_latest

test_rmqctl_writes = test_round_trips.test_rmqctl_writes_and_the_engine_reads
test_the_engine_writes = test_round_trips.test_the_engine_writes_and_rmqctl_reads
test_turns = test_round_trips.test_turns


@pytest.fixture(scope="session")
def built() -> None:
    try:
        build_latest()
    except NotAvailable as problem:
        pytest.skip(str(problem))


@pytest.fixture(
    scope="session", params=[pytest.param(LATEST, marks=pytest.mark.xdist_group("interop-latest"))]
)
def version(request: pytest.FixtureRequest) -> str:
    wanted: str = request.param
    return wanted
