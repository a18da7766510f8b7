"""rebuild --missing as a command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.test_cli.conftest import Cli, state

LINE = ("rebuild", "all", "--missing", "--format", "ndjson")


def test_what_is_missing_is_added_once(cli: Cli, store: Path) -> None:
    shutil.rmtree(store / "consumequeue/orders/1")
    before = state(store)
    for more, units in ((("--dry-run",), 29), ((), 29), ((), 0)):
        (row,) = cli(*LINE, *more, store=store).rows
        assert row["type"] == "summary" and row["output"] is None
        assert (row["units"], row["queues"], row["index_items"]) == (units, int(units > 0), 0)
        if more:
            assert state(store) == before
    assert cli("verify", store=store).code == 0
    assert not (store / "abort").exists()


@pytest.mark.parametrize(
    "other", [("--in-place", "--yes"), ("--output", "new"), ("--topic", "orders"), ("--purge",)]
)
def test_it_goes_with_nothing_but_a_dry_run(cli: Cli, store: Path, other: tuple[str, ...]) -> None:
    before = state(store)
    done = cli(*LINE, *other, store=store)
    assert done.code == 2
    assert f"leave {other[0]} out of rebuild --missing: it " in done.err
    assert state(store) == before


def test_damage_in_the_log_is_told(cli: Cli, store: Path) -> None:
    file = min((store / "commitlog").iterdir())
    data = bytearray(file.read_bytes())
    data[4] ^= 1
    file.write_bytes(data)
    shutil.rmtree(store / "consumequeue/orders/1")
    done = cli(*LINE, store=store)
    assert done.code == 1
    assert [row["type"] for row in done.rows] == ["damage", "summary"]
