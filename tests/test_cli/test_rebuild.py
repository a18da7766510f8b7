"""rmqctl rebuild: what it says of what it does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

import pytest

from formats import layouts
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from tests.golden_data import tree_content
from tests.test_cli.conftest import BROKER_CONF, Cli


@pytest.mark.parametrize("how", ["--dry-run", "--yes"])
def test_queues_that_broker_conf_does_not_explain_are_built_and_told(
    tmp_path: Path, cli: Cli, how: str
) -> None:
    root, conf = tmp_path / "store", tmp_path / "turned.conf"
    written = parse_broker_conf(BROKER_CONF + "enableMultiDispatch=true\nenableLmq=true\n")
    with MessageStore(root, written, writable=True, create=True) as store:
        message = MessageExtBrokerInner("T", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
        assert store.put_message(message).is_ok
    before = tree_content(root / "consumequeue")
    conf.write_text(BROKER_CONF + "enableMultiDispatch=false\n")
    line = ["rebuild", "all", "--in-place", how, "--store", root, "--broker-conf", conf]
    done = cli(*line, "--format", "ndjson")
    assert done.code == 0, done.err
    assert "opposite of what broker.conf says of enableMultiDispatch" in done.err
    assert tree_content(root / "consumequeue") == before
    if how == "--dry-run":
        assert done.rows[0]["overruled"] == ["enableMultiDispatch"]
        assert done.rows[0]["unexplained"] == []
    # Nothing is said where queues are left alone.
    assert "note" not in cli("rebuild", "index", *line[2:]).err


def unknown(wanted: tuple[str, ...], kept: bool) -> bool:
    return "Nope" in wanted or ("orders" in wanted and not kept)


@pytest.mark.parametrize("kept", [True, False], ids=["queues there", "queues lost"])
def test_a_dry_run_ends_as_the_rebuild_does(tmp_path: Path, cli: Cli, kept: bool) -> None:
    """Which queues match the log says, where their directories are lost."""
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(BROKER_CONF)
    with MessageStore(root, parse_broker_conf(BROKER_CONF), writable=True, create=True) as store:
        assert store.put_message(MessageExtBrokerInner("orders", b"x", queue_id=1)).is_ok
    if not kept:
        rmtree(root / "consumequeue")
    for wanted, code in (
        (("--topic", "Nope"), 1),
        (("--topic", "orders", "--queue-id", "0"), 1),
        (("--queue-id", "2"), 1),
        (("--topic", "orders"), 0),
        (("--queue-id", "1"), 0),
        ((), 0),
    ):
        line = ["rebuild", "queues", *wanted, "--store", root, "--broker-conf", conf]
        planned = cli(*line, "--in-place", "--dry-run")
        done = cli(*line, "--output", tmp_path / "-".join(["built", *wanted]))
        assert planned.code == done.code == code, (wanted, planned.err, done.err)
        say = "has no queue of topic" if unknown(wanted, kept) else "no message of such a queue"
        for one in (planned, done):
            notes = [line for line in one.err.splitlines() if line.startswith("note: ")]
            assert [say in note for note in notes] == [True] * code, one.err


def test_a_lost_topic_that_is_made_anew_is_not_called_a_mistyped_one(
    tmp_path: Path, cli: Cli
) -> None:
    """It is what verify says is next of `queue-missing`."""
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(BROKER_CONF)
    with MessageStore(root, parse_broker_conf(BROKER_CONF), writable=True, create=True) as store:
        for topic in ("TopicA", "TopicB"):
            assert store.put_message(MessageExtBrokerInner(topic, b"x")).is_ok
    rmtree(root / "consumequeue/TopicA")
    line = ("rebuild", "queues", "--in-place", "--yes", "--store", root, "--broker-conf", conf)
    done = cli(*line, "--topic", "TopicA")
    said = " ".join(done.err.split())
    assert done.code == 0 and "did you mean" not in said
    done = cli(*line, "--topic", "TopicA")
    assert done.code == 0 and done.err == ""
    assert cli(*line, "--topic", "TopicC").code == 1


@pytest.mark.parametrize("abort", [False, True])
def test_a_store_that_cannot_be_brought_in_order_is_called_what_it_is(
    store: Path, cli: Cli, abort: bool
) -> None:
    """A file of the log is too short: nobody writes such a store. It may have been closed all the
    same."""
    if abort:
        (store / "abort").touch()
    path = min((store / "commitlog").iterdir())
    os.truncate(path, path.stat().st_size // 2)
    done = cli("rebuild", "index", "--in-place", "--yes", store=store)
    assert ("was not closed cleanly" in done.err) is abort
    assert ("could not be brought in order" in done.err) is not abort


def test_what_a_rebuild_has_done_is_told_also_where_the_checkpoint_cannot_be_read(
    store: Path, cli: Cli
) -> None:
    (store / "checkpoint").unlink()
    (store / "checkpoint").mkdir()
    done = cli("rebuild", "index", "--in-place", "--yes", "--format", "ndjson", store=store)
    assert done.code == 0 and "checkpoint: it is not a regular file" in done.err
    (kept,) = done.rows[-1]["kept"]
    assert (store / kept).is_dir()


@pytest.mark.parametrize("what", ["index", "queues", "all"])
def test_no_dry_run_plans_queues_of_a_log_that_is_missing(store: Path, cli: Cli, what: str) -> None:
    rmtree(store / "commitlog")
    for more in ("--dry-run", "--yes"):
        done = cli("rebuild", what, "--in-place", more, store=store)
        assert done.code == 5 and "commitlog has no file" in done.err and not done.out


def with_offsets(root: Path, offset_of: Callable[[int], int]) -> None:
    """A store with 12 messages of one queue, and those queue offsets in its log."""
    config = parse_broker_conf(BROKER_CONF)
    with MessageStore(root, config, writable=True, create=True) as store:
        for _ in range(12):
            assert store.put_message(MessageExtBrokerInner("T", b"x"), flush=False).is_ok
        records = [one for one in store.commit_log.walk() if isinstance(one, Record)]
        log = store.commit_log.files.entries[0].path
    at = next(
        field.offset for field in layouts.RECORD_PREFIX[0].fields if field.name == "queue_offset"
    )
    with log.open("r+b") as file:
        for record in records:
            file.seek(record.physical_offset + at)
            file.write(offset_of(record.queue_offset).to_bytes(8, "big"))


@pytest.mark.parametrize("how", ["--in-place", "--output", "--missing"])
@pytest.mark.parametrize(
    ("offset_of", "misplaced", "without_unit", "code"),
    [
        # Left out, as by a broker that was killed; given twice; begun again.
        (lambda number: number + 3 * (number > 7), 4, 0, "unit-misplaced"),
        (lambda number: number - 3 * (number > 7), 0, 3, "queue-offset-repeated"),
        (lambda number: number - 8 * (number > 7), 1, 3, "queue-offset-repeated"),
        (lambda number: number + 90, 0, 0, None),
    ],
)
def test_records_that_have_no_place_at_their_own_queue_offset_are_told(
    tmp_path: Path,
    cli: Cli,
    how: str,
    offset_of: Callable[[int], int],
    misplaced: int,
    without_unit: int,
    code: str | None,
) -> None:
    """A broker's dispatch appends them, or passes over them; verify then says the same."""
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(BROKER_CONF)
    with_offsets(root, offset_of)
    where = ("--store", root, "--broker-conf", conf, "--format", "ndjson")
    built = tmp_path / "built"
    if how == "--missing":
        rmtree(root / "consumequeue")
    more: dict[str, list[str | Path]] = {"--in-place": ["--yes"], "--output": [built]}
    done = cli("rebuild", "queues", how, *more.get(how, []), *where)
    if how == "--output":
        rmtree(root / "consumequeue")
        (built / "consumequeue").rename(root / "consumequeue")
    summary = done.rows[-1]
    told = summary["misplaced"], summary["without_unit"], summary["units"]
    assert told == (misplaced, without_unit, 12 - without_unit)
    assert done.code == 0, done.err
    checked = cli("verify", *where)
    found = {row["code"]: row for row in checked.rows if row["type"] == "finding"}
    assert checked.code == int(code is not None) and (code is None or code in found)
    if code is None:
        assert "note" not in done.err
        return
    first = min(row["physical_offset"] for row in found.values())
    assert f"is at physical offset {first}; `rmqctl verify" in done.err
    assert ("not at the queue offset" in done.err) == (misplaced > 0)
    assert ("without a unit" in done.err) == (without_unit > 0)
