"""verify finds any one flipped bit that a CRC or a cross-reference covers.

What is covered is defined in :func:`tests.test_operations.small_store.covered_places`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.operations.verify import CODES
from tests.golden_data import tree_content
from tests.test_operations.small_store import (
    Place,
    Places,
    covered_places,
    findings_of,
    make_small_store,
)

KINDS = [
    "body",
    "body CRC",
    "chain",
    "header",
    "identity",
    "item",
    "properties",
    "slot",
    "transaction",
    "unit",
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small_store(tmp_path_factory.mktemp("flips") / "store")


@pytest.fixture(scope="module")
def places(store: Path) -> Places:
    return covered_places(store)


def flipped(root: Path, place: Place, bit: int) -> set[str]:
    """Codes of what verify finds with one bit flipped; the bit is put back."""
    path = root / place.path
    with path.open("r+b", buffering=0) as file:
        file.seek(place.position)
        (value,) = file.read(1)
        for byte in (value ^ 1 << bit, value):
            file.seek(place.position)
            file.write(bytes((byte,)))
            if byte != value:
                try:
                    findings, summary = findings_of(root)
                except BaseException:
                    file.seek(place.position)
                    file.write(bytes((value,)))
                    raise
    return {f.code for f in findings} if not summary.is_clean else set()


def test_the_small_store_is_clean_and_has_everything(store: Path, places: Places) -> None:
    findings, summary = findings_of(store)
    assert not findings
    assert summary.blanks >= 2
    assert len(list((store / "index").iterdir())) >= 2
    assert len(list((store / "commitlog").iterdir())) >= 3
    assert len(list((store / "consumequeue").iterdir())) == 6
    assert sorted(places) == KINDS
    assert all(places.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_flipped_bit_is_found(store: Path, places: Places, kind: str, is_deep: bool) -> None:
    """All of them in the nightly run (some minutes), else each 29th or, of very many, 87th."""
    flips = [(place, bit) for place in places[kind] for bit in range(8) if place.bits >> bit & 1]
    # Odd: each bit of a byte comes to its turn.
    step = 1 if is_deep else 87 if len(flips) > 5000 else 29
    codes = {
        (place.path, place.position, bit): flipped(store, place, bit)
        for place, bit in flips[::step]
    }
    assert [flip for flip, found in codes.items() if not found] == []
    assert set().union(*codes.values()) <= set(CODES)


def test_flips_are_put_back(store: Path, places: Places) -> None:
    before = tree_content(store)
    flipped(store, places["body"][0], 3)
    assert tree_content(store) == before
