"""``rmqctl clean``: a plan that is kept, kills that are survived, readers that are named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.storeconfig import load_broker_conf
from tests import golden_data
from tests.test_cli.conftest import Cli
from tests.test_engine.test_retention import CONFIG, FOUR, NOON, store_of
from tests.test_safety.support import Clock, assert_clean, broker_conf, message, times, tree

AT = ("--now", str(FOUR), "--disk-ratio", "10", "--format", "ndjson")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of 17 log files, 13 of them expired, with two groups."""
    root = store_of(tmp_path / "store", 13)
    (tmp_path / "old.conf").write_text(broker_conf(CONFIG))
    (root / "config").mkdir()
    (root / "config/consumerOffset.json").write_text(
        '{"offsetTable":{"topic0@behind":{0:7,1:50},"topic0@done":{0:50,1:50},'
        '"topic1@new":{0:0},"gone@done":{0:3}}}'
    )
    return root


def clean(cli: Cli, root: Path, *arguments: str) -> Any:
    conf = root.parent / "old.conf"
    return cli("clean", "--store", root, "--broker-conf", conf, *AT, *arguments)


def files(rows: list[dict[str, Any]]) -> list[str]:
    return [row["path"] for row in rows if row["type"] == "file"]


def test_what_if_the_configuration_were_another_one(cli: Cli, old: Path) -> None:
    """The same plans as with the values in broker.conf, which stays as it is."""
    conf = old.parent / "old.conf"
    text = conf.read_text()
    for options, lines in (
        (("--file-reserved-time", "1000000"), "fileReservedTime=1000000\n"),
        (("--delete-when", "5;23"), "deleteWhen=5;23\n"),
        (("--max-used-ratio", "95", "--disk-ratio", "86"), "diskMaxUsedSpaceRatio=95\n"),
        (("--no-clean-forcibly", "--disk-ratio", "86"), "cleanFileForciblyEnable=false\n"),
    ):
        moments = times(old)
        told = clean(cli, old, "--dry-run", *options)
        assert conf.read_text() == text and times(old) == moments
        conf.write_text(text + lines)
        rest = options[2:] if options[0][2:5] != "no-" else options[1:]
        assert told == clean(cli, old, "--dry-run", *rest), options
        conf.write_text(text)
        assert told != clean(cli, old, "--dry-run", *rest), options
    assert clean(cli, old, "--dry-run", "--delete-when", "noon").code == 2
    assert clean(cli, old, "--dry-run", "--file-reserved-time", "-1").code == 2


def test_other_values_count_when_files_go_too(cli: Cli, old: Path) -> None:
    dry = clean(cli, old, "--dry-run", "--file-reserved-time", "0")
    assert len(files(dry.rows)) > 34
    done = clean(cli, old, "--yes", "--file-reserved-time", "0")
    assert done.code == 0 and files(done.rows) == files(dry.rows)
    assert_clean(old, CONFIG)


def test_a_dry_run_says_what_yes_does(cli: Cli, old: Path) -> None:
    before, moments = tree(old), times(old)
    dry = clean(cli, old, "--dry-run")
    assert dry.code == 0 and times(old) == moments and tree(old) == before
    assert len(files(dry.rows)) == 34
    done = clean(cli, old, "--yes")
    assert done.code == 0
    assert files(done.rows) == files(dry.rows)
    assert done.rows[-1] | {"dry_run": True} == dry.rows[-1]
    assert before.keys() - tree(old).keys() == set(files(dry.rows))
    assert all(before[name] == data for name, data in tree(old).items())
    assert_clean(old, CONFIG)
    again = clean(cli, old, "--yes")
    assert again.code == 0 and files(again.rows) == []
    assert again.rows[-1]["min_offset"] == again.rows[-1]["new_min_offset"] == 13 * 4096


def test_without_consent_nothing_happens(cli: Cli, old: Path) -> None:
    moments = times(old)
    refused = clean(cli, old)
    assert refused.code == 6 and refused.out == "" and times(old) == moments
    assert "34 files" in refused.err and "71 unread messages" in refused.err
    assert "--yes" in refused.err and "--dry-run" in refused.err
    assert clean(cli, old, "--yes", "--dry-run").code == 2
    # Nothing to delete needs no consent.
    late = clean(cli, old, "--now", str(NOON))
    assert late.code == 0 and files(late.rows) == [] and times(old) == moments


def test_who_would_lose_what(cli: Cli, old: Path) -> None:
    rows = clean(cli, old, "--dry-run").rows
    readers = {
        (row["topic"], row["queue_id"], row["group"]): (row["lag"], row["lost"])
        for row in rows
        if row["type"] == "progress"
    }
    assert readers == {
        ("topic0", 0, "behind"): (43, 32),
        ("topic0", 1, "behind"): (0, 0),
        ("topic0", 0, "done"): (0, 0),
        ("topic0", 1, "done"): (0, 0),
        ("topic1", 0, "new"): (50, 39),
    }
    lost = [row["lost"] for row in rows if row["type"] == "progress"]
    assert lost == sorted(lost, reverse=True)
    assert rows[-1]["lost"] == 71 and rows[-1]["losing_groups"] == 2
    assert rows[-1]["messages"] == 39 * 5 + 38


def test_delayed_messages_that_are_not_delivered_count(cli: Cli, copy_store: Any) -> None:
    root = copy_store("crash")
    conf = root.parent / "old.conf"
    conf.write_text(golden_data.broker_conf_text("crash"))
    rows = clean(cli, root, "--disk-ratio", "91", "--dry-run").rows
    delayed = [row for row in rows if row["type"] == "progress"]
    assert delayed and {row["topic"] for row in delayed} == {"SCHEDULE_TOPIC_XXXX"}
    assert all(row["group"] is None for row in delayed) and rows[-1]["lost"] > 0


def test_readers_get_the_first_message_that_is_left(cli: Cli, old: Path) -> None:
    assert clean(cli, old, "--yes").code == 0
    conf = old.parent / "old.conf"
    where = ("--store", old, "--broker-conf", conf, "--format", "ndjson")
    done = cli("pull", "--topic", "topic0", "--queue-id", "0", "--offset", "7", *where)
    summary = done.rows[-1]
    assert summary["status"] == "OFFSET_TOO_SMALL"
    assert summary["next_begin_offset"] == summary["min_offset"] == 39


def test_a_store_in_use_is_left_alone(cli: Cli, old: Path) -> None:
    lock = StoreLock(old)
    try:
        moments = times(old)
        assert clean(cli, old, "--yes").code == 4
        assert clean(cli, old, "--dry-run").code == 0
        assert times(old) == moments
    finally:
        lock.release()


def test_messages_in_no_queue_are_not_deleted(cli: Cli, old: Path) -> None:
    """A broker's start puts them into their queues before its retention comes."""
    for path in old.glob("consumequeue/*/*/*"):
        if path.name != f"{0:020d}":
            path.unlink()
    before = tree(old)
    (recovery,) = [r for r in clean(cli, old, "--dry-run").rows if r["type"] == "recovery"]
    assert recovery["bytes_to_dispatch"] > 0 and tree(old) == before
    assert clean(cli, old, "--yes").code == 0
    with MessageStore(old, CONFIG) as store:
        assert store.dispatched_to == store.max_offset


def test_broken_offsets_refuse_a_plan(cli: Cli, old: Path) -> None:
    path = old / "config/consumerOffset.json"
    path.write_text(path.read_text()[:-3])
    refused = clean(cli, old, "--yes")
    assert refused.code == 5 and "config check" in refused.err and "line 1" in refused.err
    assert len(list((old / "commitlog").iterdir())) == 17


KILLS = """
import json, os, signal, shutil, sys
from pathlib import Path
from rmqctl.cli.main import run
plan = json.loads(sys.argv[1])
real = os.unlink
for at in range(plan["removals"]):
    target = Path(plan["base"]) / f"killed{at}"
    shutil.copytree(plan["store"], target)
    child = os.fork()
    if child == 0:
        seen = 0
        def unlink(*arguments, **more):
            global seen
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1
            real(*arguments, **more)
        os.unlink = unlink
        run(["clean", "--store", str(target), *plan["arguments"]])
        os._exit(9)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, "not killed"
"""


def test_a_kill_at_any_removal_leaves_a_valid_store(cli: Cli, tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", 5, messages=120)
    conf = tmp_path / "old.conf"
    conf.write_text(broker_conf(CONFIG))
    shutil.copytree(store, tmp_path / "whole")  # Keeps the times of modification.
    removals = files(clean(cli, tmp_path / "whole", "--yes").rows)
    structures = [name.split("/")[0] for name in removals]
    assert {n: structures.count(n) for n in structures} == {
        "commitlog": 5,
        "consumequeue": 6,
        "index": 1,
    }
    expected = tree(tmp_path / "whole")
    plan = {
        "store": str(store),
        "base": str(tmp_path),
        "removals": len(removals),
        "arguments": ["--broker-conf", str(conf), *AT, "--yes", "-q"],
    }
    subprocess.run([sys.executable, "-c", KILLS, json.dumps(plan)], check=True, cwd=os.getcwd())
    for at in range(len(removals)):
        killed = tmp_path / f"killed{at}"
        assert tree(store).keys() - tree(killed).keys() == set(removals[:at])
        assert_clean(killed, CONFIG)
        assert files(clean(cli, killed, "--yes").rows) == removals[at:]
        assert tree(killed) == expected


def test_a_log_in_several_directories(cli: Cli, tmp_path: Path) -> None:
    """One log: the oldest files go, wherever they lie, also from a directory outside the store."""
    store, places = tmp_path / "store", [tmp_path / "disk1", tmp_path / "disk2"]
    listed = f"storePathCommitLog={','.join(map(str, places))}\n"
    conf = tmp_path / "old.conf"
    conf.write_text(broker_conf(CONFIG) + listed)
    config = load_broker_conf(conf)
    with MessageStore(store, config, writable=True, create=True, clock=Clock()) as opened:
        opened.put_messages([message(number) for number in range(120)], flush=False)
    files_by_name = sorted((f for place in places for f in place.iterdir()), key=lambda f: f.name)
    for path in files_by_name[:4]:
        os.utime(path, ns=(0, 0))
    for path in files_by_name[4:]:
        os.utime(path, ns=(FOUR * 10**6,) * 2)
    done = clean(cli, store, "--yes")
    assert done.code == 0, done.err
    gone = [path for path in files_by_name if not path.exists()]
    assert gone == files_by_name[:4] and {path.parent for path in gone} == set(places)
    assert files(done.rows)[:4] == [str(path) for path in gone]
    assert_clean(store, config)


def test_queues_follow_at_any_hour(cli: Cli, old: Path) -> None:
    """What a killed run left is completed though nothing expires now."""
    removals = files(clean(cli, old, "--dry-run").rows)
    for name in removals[:15]:
        (old / name).unlink()
    late = clean(cli, old, "--now", str(NOON), "--yes")
    assert late.code == 0 and files(late.rows) == removals[15:]


def test_tables_show_files_then_readers(cli: Cli, old: Path) -> None:
    done = clean(cli, old, "--dry-run", "--format", "table")
    lines = done.out.splitlines()
    assert lines[0].split()[:3] == ["path", "reason", "allocated_bytes"]
    assert any(line.split()[:3] == ["topic", "queue_id", "group"] for line in lines)
    assert lines[-1].startswith("summary: dry_run=yes")


def head_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)


@pytest.mark.parametrize("name", golden_data.STORES)
def test_a_dry_run_touches_nothing_of_a_real_store(
    name: str, cli: Cli, golden: Any, broker_conf_file: Any
) -> None:
    """The session's end compares every byte and time of the golden stores."""
    where = ("--store", golden(name), "--broker-conf", broker_conf_file(name))
    done = cli("clean", *where, "--dry-run", "--disk-ratio", "91", "--format", "ndjson")
    assert done.code == 0, done.err
    # Above 85 per cent all files but the last one go; one made ahead, of zeros, is not the last.
    log = sorted((golden(name) / "commitlog").iterdir())
    while len(log) > 1 and not any(head_of(log[-1])):
        log.pop()
    gone = [name for name in files(done.rows) if name.startswith("commitlog")]
    assert gone == [f"commitlog/{path.name}" for path in log[:-1]]
    assert done.rows[-1]["new_min_offset"] == int(log[-1].name)


def progress(rows: list[dict[str, Any]]) -> dict[tuple[str, int, str], tuple[int, int, int]]:
    return {
        (row["topic"], row["queue_id"], row["group"]): (
            row["consumer_offset"],
            row["lag"],
            row["lost"],
        )
        for row in rows
        if row["type"] == "progress"
    }


def test_what_was_lost_before_is_not_lost_again(cli: Cli, old: Path) -> None:
    """A group's lag counts from the first message that is left, and is never less than none."""
    assert clean(cli, old, "--yes").code == 0
    path = old / "config/consumerOffset.json"
    path.write_text('{"offsetTable":{"topic0@behind":{0:7},"topic0@ahead":{0:60}}}')
    late = clean(cli, old, "--now", str(NOON), "--dry-run")
    assert progress(late.rows) == {
        ("topic0", 0, "behind"): (7, 11, 0),
        ("topic0", 0, "ahead"): (60, 0, 0),
    }
    assert late.rows[-1]["lost"] == late.rows[-1]["messages"] == 0


def test_a_store_with_queues_of_another_kind_is_left_alone(cli: Cli, old: Path) -> None:
    """Who has read what of queues in RocksDB is not known, nor what of them would have to go."""
    (old / "consumequeue_r").mkdir()
    (old / "consumequeue_r/CURRENT").write_text("MANIFEST-000004\n")
    before = tree(old)
    refused = clean(cli, old, "--yes")
    assert refused.code == 5 and "RocksDB" in refused.err and tree(old) == before
