"""``rmqctl du``: sums that a plain walk confirms."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.text import cell_of, human_size
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.operations.look import du
from tests import golden_data
from tests.test_cli.conftest import BORN, BROKER_CONF, CONFIG, NASTY, Cli, state

BY = "topic,queue,tag,producer-host,day"


def by_walk(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], tuple[int, int]]:
    """The same sums from the rows of ``walk commitlog``."""
    messages: Counter[tuple[Any, ...]] = Counter()
    sizes: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        if row["type"] == "message":
            key = (
                row["topic"],
                row["queue_id"],
                row["properties"].get("TAGS"),
                row["born_host"].rpartition(":")[0].strip("[]"),
                datetime.fromtimestamp(row["store_timestamp"] / 1000).strftime("%Y-%m-%d"),
            )
            messages[key] += 1
            sizes[key] += row["total_size"]
    return {key: (messages[key], sizes[key]) for key in messages}


@pytest.mark.parametrize("name", golden_data.STORES)
def test_the_sums_are_those_of_a_walk(
    name: str, cli: Cli, golden: Any, broker_conf_file: Any
) -> None:
    where = ("--store", golden(name), "--broker-conf", broker_conf_file(name))
    done = cli("du", *where, "--by", BY, "--format", "ndjson")
    walk = cli("walk", "commitlog", *where, "--format", "ndjson")
    assert done.code == walk.code
    usage = [row for row in done.rows if row["type"] == "usage"]
    found = {
        (row["topic"], row["queue_id"], row["tag"], row["producer_host"], row["day"]): (
            row["messages"],
            row["bytes"],
        )
        for row in usage
    }
    assert found == by_walk(walk.rows) and len(found) == len(usage)
    sizes = [row["bytes"] for row in usage]
    assert sizes == sorted(sizes, reverse=True)
    assert done.rows[-1]["messages"] == sum(row["messages"] for row in usage)
    assert done.rows[-1]["bytes"] == sum(sizes)
    blanks = sum(row["total_size"] for row in walk.rows if row["type"] == "blank")
    assert done.rows[-1]["blank_bytes"] == blanks


def test_space_on_disk_counts_blocks(cli: Cli, store: Path) -> None:
    before = state(store)
    rows = cli("du", "--disk", "--format", "ndjson", store=store).rows
    assert state(store) == before
    for row in rows[:-1]:
        if row["structure"] != "other":
            files = [p.lstat() for p in (store / row["structure"]).rglob("*") if p.is_file()]
            assert row["files"] == len(files)
            assert row["size"] == sum(status.st_size for status in files)
            assert row["allocated_bytes"] == sum(status.st_blocks * 512 for status in files)
    everything = [p.lstat().st_blocks * 512 for p in store.rglob("*") if p.is_file()]
    assert rows[-1] == {"type": "summary", "allocated_bytes": sum(everything)}
    table = cli("du", "--disk", store=store).out.splitlines()[1:]
    for row, line in zip(rows[:-1], table, strict=False):
        shown = [str(row["files"]), human_size(row["size"]), human_size(row["allocated_bytes"])]
        assert line.split() == " ".join([row["structure"], *shown]).split()
    lines = cli("du", store=store).out.splitlines()
    at = lines.index("# Files on disk")
    alone = cli("du", "--disk", store=store).out.splitlines()[:-1]
    assert lines[at - 1] == "" and lines[at + 1 : at + 1 + len(alone)] == alone
    # A record's size is compared with another's, to the byte.
    assert cell_of({"type": "unit", "size": 123_456}, "size") == "123456"


@pytest.mark.parametrize(
    "option",
    ["--by=tag", "--topic=orders", "--since=-2h", "--until=now", "--limit=1"],
)
def test_space_on_disk_is_of_whole_directories(cli: Cli, store: Path, option: str) -> None:
    """What it would pass over is refused: the sizes would be taken for those of a topic."""
    done = cli("du", "--disk", option, store=store)
    assert (done.code, done.out) == (2, "") and option.partition("=")[0] in done.err


def test_filters_and_limits(cli: Cli, store: Path) -> None:
    rows = cli("du", "--topic", "orders", "--by", "queue", "--format", "ndjson", store=store).rows
    usage = [row for row in rows if row["type"] == "usage"]
    assert [(row["queue_id"], row["messages"]) for row in usage] == [(0, 30), (1, 29)]
    late = cli(
        "du", "--since", str(BORN + 1030), "--until", str(BORN + 1039), "--json", store=store
    )
    assert json.loads(late.out)[-1]["messages"] == 10
    for times, count in (
        (("--since", str(BORN + 1030)), 30),
        (("--until", str(BORN + 1039)), 40),
        (("--since", str(BORN + 1030), "--until", str(BORN + 1030)), 1),
    ):
        done = cli("du", *times, "--format", "ndjson", store=store)
        assert done.code == 0 and done.rows[-1]["messages"] == count
    turned = cli("du", "--since", str(BORN + 2), "--until", str(BORN + 1), store=store)
    assert turned.code == 2 and "swap them" in turned.err
    one = cli("du", "--by", "topic,queue", "--limit", "1", "--format", "ndjson", store=store)
    assert [row["type"] for row in one.rows].count("usage") == 1
    assert one.rows[-1]["groups"] == 3
    assert cli("du", "--topic", "absent", store=store).code == 1
    for wrong in ("colour", "topic,topic", "", "topic,"):
        assert cli("du", "--by", wrong, store=store).code == 2


def test_nothing_of_the_store_reaches_a_terminal_raw(cli: Cli, store: Path) -> None:
    clock = iter(range(BORN + 2000, BORN + 10**6))
    with MessageStore(store, CONFIG, writable=True, clock=lambda: next(clock)) as opened:
        opened.put_message(MessageExtBrokerInner("t", b"x", properties={"TAGS": NASTY}))
    for form in ("table", "csv", "ndjson"):
        out = cli("du", "--by", "topic,tag", "--format", form, store=store).out
        assert "red" in out and not {"\x1b", "\x07", "\x9b", "\u202e"} & set(out)


def test_damage_is_counted_and_told(cli: Cli, store: Path) -> None:
    with (store / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.write(b"\xff" * 8)
    done = cli("du", "--format", "ndjson", store=store)
    assert done.code == 1
    assert done.rows[-1]["damages"] == 1 and done.rows[-1]["messages"] == 59
    assert done.rows[-1]["damaged_bytes"] > 0


def test_a_store_with_a_tag_for_every_message_stays_small(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after the bound is in no group, and no message is counted twice or lost."""
    store = tmp_path / "store"
    clock = iter(range(BORN, BORN + 10**6))
    with MessageStore(
        store, CONFIG, writable=True, create=True, clock=lambda: next(clock)
    ) as opened:
        opened.put_messages(
            [
                MessageExtBrokerInner("t", b"", properties={"TAGS": f"tag-{number % 150}"})
                for number in range(300)
            ],
            flush=False,
        )
    monkeypatch.setattr(du, "MAX_GROUPS", 100)
    for by in ("tag", "tag,queue"):
        rows = cli("du", "--by", by, "--format", "ndjson", store=store).rows
        usage = [row for row in rows if row["type"] == "usage"]
        assert len(usage) == rows[-1]["groups"] == 100
        assert {row["messages"] for row in usage} == {2}
        assert rows[-1]["ungrouped_messages"] == 100 and rows[-1]["messages"] == 300
        sizes = [row["bytes"] for row in usage]
        assert sum(sizes) + rows[-1]["ungrouped_bytes"] == rows[-1]["bytes"]
    monkeypatch.setattr(du, "MAX_NAME_BYTES", 50)
    rows = cli("du", "--by", "tag", "--format", "ndjson", store=store).rows
    assert rows[-1]["groups"] == 10 and rows[-1]["messages"] == 300
    # Groups that are many by numbers alone.
    monkeypatch.setattr(du, "MAX_GROUPS", 1)
    rows = cli("du", "--by", "topic,queue", "--format", "ndjson", store=store).rows
    assert rows[-1]["groups"] == 1 and rows[-1]["messages"] == 300


def test_times_that_no_calendar_has(tmp_path: Path, cli: Cli) -> None:
    store = tmp_path / "store"
    times = iter((0, 2**62, -(2**62), BORN))
    with MessageStore(
        store, CONFIG, writable=True, create=True, clock=lambda: next(times)
    ) as opened:
        for _ in range(4):
            assert opened.put_message(MessageExtBrokerInner("t", b"x")).is_ok
    rows = cli("du", "--by", "day", "--format", "ndjson", store=store).rows
    days = {row["day"]: row["messages"] for row in rows if row["type"] == "usage"}
    assert days == {"1970-01-01": 1, "2023-11-14": 1, None: 2}


@pytest.mark.parametrize(
    ("zone", "midnight"),
    [
        ("UTC", 0),
        ("Asia/Kathmandu", -(5 * 60 + 45)),
        ("Asia/Kolkata", -(5 * 60 + 30)),
        ("America/St_Johns", 3 * 60 + 30),
    ],
)
def test_a_day_is_the_local_one(
    zone: str, midnight: int, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zones are not whole hours from UTC: the last and the first millisecond of a day are not of
    the same one."""
    store = tmp_path / "store"
    first = int(datetime(2024, 1, 10, tzinfo=UTC).timestamp() * 1000) + midnight * 60_000
    times = iter((first - 1, first, first + 86_399_999, first + 86_400_000))
    with MessageStore(
        store, CONFIG, writable=True, create=True, clock=lambda: next(times)
    ) as opened:
        for _ in range(4):
            assert opened.put_message(MessageExtBrokerInner("t", b"x")).is_ok
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        rows = cli("du", "--by", "day", "--format", "ndjson", store=store).rows
    finally:
        monkeypatch.undo()
        time.tzset()
    days = {row["day"]: row["messages"] for row in rows if row["type"] == "usage"}
    assert days == {"2024-01-09": 1, "2024-01-10": 2, "2024-01-11": 1}


def test_links_count_as_links(cli: Cli, store: Path) -> None:
    """What a link leads to is not the store's, and may be anything."""
    large = store.parent / "large"
    large.write_bytes(bytes(1 << 20))
    rows = cli("du", "--disk", "--format", "ndjson", store=store).rows
    (store / "config").mkdir()
    (store / "config/linked").symlink_to(large)
    (store / "other").symlink_to(store.parent)
    more = cli("du", "--disk", "--format", "ndjson", store=store).rows
    assert more[-1]["allocated_bytes"] - rows[-1]["allocated_bytes"] < 1 << 16
    (config,) = (row for row in more if row.get("structure") == "config")
    assert (config["files"], config["size"]) == (1, len(str(large)))


def test_a_file_that_goes_meanwhile_is_not_counted(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker deletes its oldest files while it runs."""
    before = cli("du", "--disk", "--format", "ndjson", store=store).rows
    gone = store / "commitlog" / f"{0:020d}"
    real = os.walk

    def walk(top: Any, *arguments: Any, **named: Any) -> Any:
        for found in real(top, *arguments, **named):
            if Path(found[0]).name == "commitlog":
                gone.unlink()
            yield found

    monkeypatch.setattr(os, "walk", walk)
    done = cli("du", "--disk", "--format", "ndjson", store=store)
    assert done.code == 0
    assert done.rows[0]["files"] == before[0]["files"] - 1


@pytest.mark.parametrize("places", ["disk", "disk,empty", "disk,absent", "inside,empty"])
def test_a_log_that_lies_elsewhere_counts_as_the_log(
    places: str, cli: Cli, store: Path, tmp_path: Path
) -> None:
    """``storePathCommitLog`` may name one directory or several, also in the store itself."""
    before = cli("info", "--store", store, "--format", "ndjson").rows[0]["allocated_bytes"]
    (whole,) = [row for row in disk_rows(cli, store) if row["structure"] == "commitlog"]
    paths = [store / name if name == "inside" else tmp_path / name for name in places.split(",")]
    (store / "commitlog").rename(paths[0])
    (tmp_path / "empty").mkdir()
    # The whole disk of a log: what is not the log's is not counted.
    (tmp_path / "empty" / "lost+found").mkdir()
    (tmp_path / "empty" / "lost+found" / "file").write_bytes(bytes(5000))
    conf = tmp_path / "broker.conf"
    told = ",".join(map(str, paths))
    conf.write_text(f"{BROKER_CONF}storePathRootDir={store}\nstorePathCommitLog={told}\n")
    for more in ((), ("--disk",)):
        rows = disk_rows(cli, store, "--broker-conf", conf, *more)
        assert [row for row in rows if row["structure"] == "commitlog"] == [whole]
    info = cli("info", "--store", store, "--broker-conf", conf, "--format", "ndjson").rows[0]
    assert info["allocated_bytes"] == before


def disk_rows(cli: Cli, store: Path, *options: object) -> list[dict[str, Any]]:
    done = cli("du", "--store", store, "--format", "ndjson", *options)
    assert done.code == 0, done.err
    return [row for row in done.rows if row["type"] == "disk"]
