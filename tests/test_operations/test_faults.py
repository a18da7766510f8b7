"""Random faults: verify names each, or the page says why it cannot; both engines say the same, and
nothing fails, hangs or changes the store."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import seeds
from tests.faults.anatomy import STRUCTURES
from tests.faults.kinds import KINDS
from tests.faults.table import BEGIN, END, PAGE, REASONS, table, unexplained, with_table
from tests.faults.trials import Subject, Trial, subjects, trials
from tests.golden_data import tree_content

COUNT = 200
#: Bytes that checks of stores of some megabytes may add to the memory of their process.
_MEMORY = 400 << 20


@pytest.fixture(scope="module")
def stores(
    golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Subject]]:
    """Copies of the golden stores, each of which must be as it was at the end."""
    made = subjects(golden, tmp_path_factory.mktemp("faults"))
    before = [tree_content(one.root) for one in made]
    yield made
    assert [tree_content(one.root) for one in made] == before


def tried(stores: list[Subject], count: int) -> list[Trial]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = list(trials(stores, seeds.seed(), range(count)))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < _MEMORY
    return found


def test_every_fault_is_found_or_the_page_says_why(stores: list[Subject]) -> None:
    found = tried(stores, COUNT)
    assert unexplained(found) == []
    assert {trial.fault.kind for trial in found} == set(KINDS)
    assert max(trial.seconds for trial in found) < 20
    shown = table(found)
    assert shown.count("\n| ") > len(KINDS) + len(STRUCTURES)


@pytest.mark.nightly
def test_so_are_very_many(stores: list[Subject]) -> None:
    assert unexplained(tried(stores, seeds.times(500))) == []


def test_the_page_has_the_tables_and_every_reason_is_one_of_them() -> None:
    page = PAGE.read_text("utf-8")
    shown = page.partition(BEGIN)[2].partition(END)[0]
    rows = [line.split(" | ") for line in shown.splitlines() if line.startswith("| ")]
    assert [row[0].strip("| ") for row in rows if len(row) == len(STRUCTURES) + 2] == [
        "", *KINDS, "all",
    ]  # fmt: skip
    told = {(row[0].strip("| "), row[1].strip("`")): row[-1].strip("| ") for row in rows}
    reasons = {key: why for key, why in told.items() if key in REASONS}
    assert len(reasons) > 20
    assert all(REASONS[key] == why for key, why in reasons.items())
    assert with_table(page, "new").count(BEGIN) == 1
