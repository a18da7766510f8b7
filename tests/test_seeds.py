"""The same commit gets the same verdict, unless chance is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import seeds

TOP = Path(__file__).parents[1]
#: Tests that note what they have drawn.
DRAWING = """
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

DRAWN = []


def test_chance(chance):
    DRAWN.append(chance.random())


@given(st.integers())
def test_examples(number):
    DRAWN.append(number)


@pytest.mark.nightly
def test_long():
    DRAWN.append("long")


def test_without_lots():
    DRAWN.append("without")


@pytest.fixture(scope="session", autouse=True)
def noted():
    yield
    Path(os.environ["DRAWN"]).write_text(repr(DRAWN))
"""


@pytest.fixture(scope="module")
def drawing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("drawing")
    (directory / "conftest.py").write_text("from tests.conftest import *\n")
    (directory / "test_drawing.py").write_text(DRAWING)
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    nightly\n")
    return directory


def drawn(directory: Path, *arguments: str, **variables: str) -> list[object]:
    """What a run of the tests has drawn."""
    ours = (seeds.SEED_VARIABLE, "HYPOTHESIS_PROFILE", "PYTEST_XDIST_WORKER")
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    note = directory / "drawn"
    environment = {**clean, "PYTHONPATH": str(TOP), "DRAWN": str(note), **variables}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)
    found: list[object] = eval(note.read_text())
    return found


@pytest.fixture(scope="module")
def fixed(drawing: Path) -> list[object]:
    """What a run draws of itself."""
    return drawn(drawing)


def test_two_runs_draw_the_same(drawing: Path, fixed: list[object]) -> None:
    assert len(fixed) == 1 + 50 + 1
    assert drawn(drawing, "-m", "not nightly") == fixed


@pytest.mark.parametrize("is_ci", [False, True])
def test_other_lots_are_asked_for(
    drawing: Path, fixed: list[object], monkeypatch: pytest.MonkeyPatch, is_ci: bool
) -> None:
    monkeypatch.delenv("CI", raising=False)
    if is_ci:
        monkeypatch.setenv("CI", "true")
    one, other = drawn(drawing, "--random"), drawn(drawing, "--random")
    assert one[0] != other[0]
    assert one[1:51] != other[1:51]
    given = drawn(drawing, RMQCTL_TEST_SEED="77")
    assert given == drawn(drawing, "--random", RMQCTL_TEST_SEED="77")
    assert given[:51] != fixed[:51]


def test_the_nightly_run_goes_deep(drawing: Path) -> None:
    found = drawn(drawing, "-m", "nightly")
    assert "without" not in found
    assert found.count("long") == 1
    assert len(found) == 20 + 1000 + 1
    assert len({*found[:20]}) == 20


@pytest.mark.parametrize(
    ("expression", "is_asked"),
    [
        ("", False),
        ("nightly", True),
        ("nightly and interop", True),
        ("interop or nightly", True),
        ("not nightly", False),
        ("slow and not nightly", False),
        ("not slow and nightly", True),
        ("knightly", False),
    ],
)
def test_nightly_is_asked_for(expression: str, is_asked: bool) -> None:
    assert seeds.asks_for_nightly(expression) == is_asked
