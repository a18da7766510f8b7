"""A dry run of a put refuses what the put refuses, for the same reason, and changes nothing."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("option", [("--body", "x"), ("--delay", "1m")])
def test_options_of_one_message_go_with_no_stream(
    option: tuple[str, str], cli: Cli, store: Path, tmp_path: Path
) -> None:
    lines = tmp_path / "in"
    lines.write_text('{"topic": "a", "body": "y"}\n')
    put = ("put", "--from", lines, *option)
    dry, done = (cli(*put, *more, store=store) for more in (("--dry-run",), ()))
    assert (dry.code, done.code) == (2, 2) and dry.err == done.err


def test_a_dry_run_says_of_batches_what_the_put_says(cli: Cli, store: Path, tmp_path: Path) -> None:
    rows = [
        *({"topic": "a", "body": "x"} for _ in range(3)),
        {"topic": "b", "body": "x"},
        {"topic": "b", "body": "x", "delay_level": 1},
        {"topic": "a", "body": "x"},
        {"topic": "a", "body": "x", "properties": {"DELAY": "x"}},
        {"topic": "c", "body": "x"},
    ]
    lines = tmp_path / "in"
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    put = ("put", "--from", lines, "--batch", "2", "--format", "ndjson")
    dry, done = (cli(*put, *more, store=store) for more in (("--dry-run",), ()))
    told = ("topic", "queue_id", "status", "messages", "reason")
    assert [[row.get(name) for name in told] for row in dry.rows] == [
        [row.get(name) for name in told] for row in done.rows
    ]
    assert (dry.code, done.code) == (5, 5)
    assert "line 7: MESSAGE_ILLEGAL" in dry.err and "line 7: MESSAGE_ILLEGAL" in done.err
    assert "is stored" in done.err and "is stored" not in dry.err


@pytest.mark.parametrize("more", [(), ("--batch", "5")])
def test_a_dry_run_has_nobody_go_on_behind_what_was_not_stored(
    more: tuple[str, ...], cli: Cli, store: Path, tmp_path: Path
) -> None:
    lines = tmp_path / "in"
    lines.write_text('{"topic": "a", "body": "x"}\nnonsense\n')
    put = ("put", "--from", lines, *more)
    done = cli(*put, "--dry-run", store=store)
    assert done.code == 2 and "line 2: not JSON" in done.err
    assert "Nothing was stored" in done.err and "tail" not in done.err
    assert "continue with `tail -n +2`" in cli(*put, store=store).err


@pytest.mark.parametrize("is_there", [False, True])
def test_a_dry_run_makes_no_store(is_there: bool, cli: Cli, tmp_path: Path) -> None:
    new = tmp_path / "new"
    if is_there:
        new.mkdir()
    put = ("put", "--topic", "a", "--body", "x", "--dry-run")
    done = cli(*put, "--create", store=new)
    assert done.code == 2 and "there is no store" in done.err and "--dry-run makes none" in done.err
    assert cli(*put, store=new).code == 3
    assert new.exists() == is_there
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    assert cli(*put, "--create", store=tmp_path / "other").code == 3
