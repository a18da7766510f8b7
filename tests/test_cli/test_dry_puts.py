"""A dry run of a put refuses what the put refuses, for the same reason, and changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.test_cli.conftest import Cli, state

TOPIC, QUEUE = "orders", Path("consumequeue/orders/0")


def _irregular_file_of_another_queue(store: Path) -> None:
    other = next(one for one in (store / "consumequeue").glob("*/*") if one != store / QUEUE)
    os.truncate(max(other.iterdir()), 30)


def _index_of_other_sizes(store: Path) -> None:
    for path in (store / "index").iterdir():
        os.truncate(path, path.stat().st_size + 20)


def _link(relative: Path) -> Callable[[Path], None]:
    def make(store: Path) -> None:
        place, elsewhere = store / relative, store.parent / "elsewhere"
        place.rename(elsewhere)
        place.symlink_to(elsewhere)

    return make


def _file_instead(relative: Path) -> Callable[[Path], None]:
    def make(store: Path) -> None:
        shutil.rmtree(store / relative)
        (store / relative).write_bytes(b"x")

    return make


def _last_file_linked(store: Path) -> None:
    _link(max((store / QUEUE).iterdir()).relative_to(store))(store)


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        (_irregular_file_of_another_queue, "30 bytes, but"),
        (_index_of_other_sizes, "an index file of"),
        (_link(QUEUE), "is a symbolic link"),
        (_link(QUEUE.parent), "is a symbolic link"),
        (_last_file_linked, "is a symbolic link"),
        (_file_instead(QUEUE), "it is no directory"),
        (_link(Path("commitlog")), "is a symbolic link"),
    ],
)
def test_what_a_put_refuses(
    trouble: Callable[[Path], None], error: str, cli: Cli, store: Path
) -> None:
    trouble(store)
    put = ("put", "--topic", TOPIC, "--queue-id", "0", "--body", "x", "--format", "ndjson")
    before = state(store)
    dry = cli(*put, "--dry-run", store=store)
    assert state(store) == before
    done = cli(*put, store=store)
    assert (dry.code, done.code) == (5, 5)
    assert error in dry.err and error in done.err
    assert not dry.rows
