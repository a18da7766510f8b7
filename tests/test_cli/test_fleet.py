"""``rmqctl fleet``: one row a store, and it is what the command of one store says."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import golden_data
from tests.test_cli.conftest import BORN, NASTY, Cli, put_at, state

NDJSON = ("--format", "ndjson", "--jobs", "1")
#: A golden store for each, and what was done to it.
STORES = {
    "sound": ("basic", None),
    "damaged": ("basic", "flip-body-late"),
    "cut": ("crash", None),
    "half": ("transaction", None),
}


@pytest.fixture(scope="session")
def stores(
    golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Stores with a broker.conf beside each, and one that is none."""
    top = tmp_path_factory.mktemp("fleet")
    found = {}
    for name, (base, case) in STORES.items():
        (top / name).mkdir()
        root = golden_data.copy_tree(golden(base), top / name / "store")
        if case is not None:
            golden_data.apply_damage(root, golden_data.damage_case(case)["ops"])
        (top / name / "broker.conf").write_text(golden_data.broker_conf_text(base))
        found[name] = golden_data.forced(root)
    (top / "none" / "store").mkdir(parents=True)
    found["none"] = top / "none" / "store"
    return found


def listing(stores: dict[str, Path], path: Path, *more: str) -> Path:
    path.write_text("\n".join([*map(str, stores.values()), *more]) + "\n")
    return path


def by_store(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["store"]: row for row in rows if row["type"] == "fleet_store"}


def test_rows_of_verify_are_what_verify_says(
    stores: dict[str, Path], cli: Cli, tmp_path: Path
) -> None:
    before = {name: state(root) for name, root in stores.items()}
    done = cli("fleet", "verify", "--stores", listing(stores, tmp_path / "list"), *NDJSON)
    assert (done.code, done.err) == (3, "")
    rows = by_store(done.rows)
    assert list(rows) == list(stores)
    for name, root in stores.items():
        conf = root.parent / "broker.conf"
        one = cli(
            *("verify", "--store", root, "--format", "ndjson"),
            *(("--broker-conf", conf) if conf.exists() else ()),
        )
        assert rows[name]["exit_code"] == one.code, name
        if name == "none":
            assert f"{root} is not a RocketMQ store: it has no" in rows[name]["error"]
            assert "Correct its line" in rows[name]["error"]
            assert rows[name]["records"] is None
            continue
        *findings, summary = one.rows
        same = ("records", "min_offset", "max_offset", "errors", "warnings", "infos", "queues")
        assert {key: rows[name][key] for key in same} == {key: summary[key] for key in same}
        codes = [row["code"] for row in findings]
        assert rows[name]["worst"] in codes if codes else rows[name]["worst"] is None
    assert rows["damaged"]["worst"] == "body-crc-mismatch"
    assert {name: state(root) for name, root in stores.items()} == before
    summary = done.rows[-1]
    assert (summary["stores"], summary["failed"], summary["unclean"]) == (5, 1, 1)
    assert summary["records"] == sum(row["records"] or 0 for row in rows.values())


def test_rows_of_stats_and_du_are_what_those_say(
    stores: dict[str, Path], cli: Cli, tmp_path: Path
) -> None:
    known = {name: root for name, root in stores.items() if name != "none"}
    known["folder"] = tmp_path / "folder" / "store"
    shutil.copytree(known["sound"].parent, known["folder"].parent)
    golden_data.forced(known["folder"])
    # What has the name of a log file is none.
    (known["folder"] / "commitlog" / f"{1 << 40:020d}").mkdir()
    where = ("--stores", listing(known, tmp_path / "list"), *NDJSON)
    counted, space = cli("fleet", "stats", *where), cli("fleet", "du", *where)
    assert (counted.code, space.code) == (1, 0)
    for name, root in known.items():
        place = ("--store", root, "--broker-conf", root.parent / "broker.conf", "--json")
        alone = cli("stats", *place)
        told = json.loads(alone.out)
        (one,) = (row for row in told if row["type"] == "store")
        row = by_store(counted.rows)[name]
        assert row["exit_code"] == alone.code == int(name == "folder")
        summary = told[-1]
        assert row["records"] == one["messages"]
        assert row["record_bytes"] == one["bytes"]
        assert row["last_store_timestamp"] == one["last_store_timestamp"]
        assert row["first_store_timestamp"] >= one["first_store_timestamp"]
        assert [row[key] for key in ("damages", "retries", "dead_letters")] == [
            summary[key] for key in ("damages", "retries", "dead_letters")
        ]
        queues = json.loads(cli("queues", *place).out)
        assert row["queues"] == sum(1 for one in queues if one["type"] == "queue")
        used = json.loads(cli("du", *place).out)[-1]
        row = by_store(space.rows)[name]
        assert row["records"] == used["messages"] and row["record_bytes"] == used["bytes"]
        same = ("damages", "damaged_bytes", "blank_bytes", "allocated_bytes")
        assert [row[key] for key in same] == [used[key] for key in same]
        (info,) = json.loads(cli("info", *place).out)
        low, high = info["min_physical_offset"], info["max_physical_offset"]
        for row in (by_store(done.rows)[name] for done in (counted, space)):
            assert (row["min_offset"], row["max_offset"], row["bytes"]) == (low, high, high - low)
    disk = cli("fleet", "du", "--disk", *where).rows
    assert disk[-1]["allocated_bytes"] == space.rows[-1]["allocated_bytes"]
    assert disk[0]["records"] is None and disk[0]["first_store_timestamp"]


def test_the_last_time_is_the_latest_one(cli: Cli, tmp_path: Path) -> None:
    """A clock may go back: the last file has not the latest time."""
    root = tmp_path / "broker-a" / "store"
    times = [BORN + 10, BORN + 990, BORN + 400]
    put_at(root, times)
    for verb in ("stats", "du", "verify"):
        row = cli("fleet", verb, "--stores", root, *NDJSON).rows[0]
        assert (row["first_store_timestamp"], row["last_store_timestamp"]) == (times[0], times[1])


def test_a_second_run_goes_on(stores: dict[str, Path], cli: Cli, tmp_path: Path) -> None:
    where = ("--stores", listing(stores, tmp_path / "list"), "--state", tmp_path / "state", *NDJSON)
    first, second = (cli("fleet", "verify", *where) for _ in range(2))
    assert (first.code, second.code) == (3, 3)
    for one, other in zip(
        by_store(first.rows).values(), by_store(second.rows).values(), strict=True
    ):
        if one["error"] is None:
            assert other == {**one, "kept": True}
        else:
            assert other["error"] == one["error"] and not other["kept"]
    assert (first.rows[-1]["kept"], second.rows[-1]["kept"]) == (0, 4)
    assert cli("fleet", "verify", *where, "--again").rows[-1]["kept"] == 0
    assert cli("fleet", "stats", *where).rows[-1]["kept"] == 0


def test_what_is_wrong_with_a_list_is_said(cli: Cli, tmp_path: Path) -> None:
    said = {
        "list, line 1: it is no UTF-8": b"\xff",
        "it names no store": b"# none\n",
        "2 stores are called a": b"a=/x\na=/y\n",
    }
    for text, data in said.items():
        (tmp_path / "list").write_bytes(data)
        done = cli("fleet", "du", "--stores", tmp_path / "list")
        assert done.code == 2 and text in done.err
    done = cli("fleet", "du", "--stores", f"{tmp_path}/*/none")
    assert done.code == 2 and "it matches no directory" in done.err
    assert cli("fleet", "du", "--stores", tmp_path, "--again").code == 2


def test_each_line_that_is_no_store_is_a_row(
    stores: dict[str, Path], cli: Cli, tmp_path: Path
) -> None:
    some = {"sound": stores["sound"]}
    lines = (f"gone={tmp_path}/gone", f"bad={NASTY}", f"{tmp_path}/*/none", "u=memory://no")
    where = ("--stores", listing(some, tmp_path / "list", *lines), "--jobs", "1")
    done = cli("fleet", "verify", *where, "--format", "ndjson")
    rows = by_store(done.rows)
    assert done.code == 3 and len(rows) == 5
    assert rows["sound"]["exit_code"] == 0
    assert rows["gone"]["exit_code"] == 3 and "there is no directory" in rows["gone"]["error"]
    assert (rows["u"]["exit_code"], "maps a store's files" in rows["u"]["error"]) == (2, True)
    for text in (done.out, cli("fleet", "verify", *where).out):
        assert not set("\x1b\x07\x9b\u202e") & set(text)
    table = cli("fleet", "verify", *where, "--format", "csv")
    header, *cells = csv.reader(io.StringIO(table.out))
    assert len(cells) == 5 and header[:2] == ["type", "store"]


def test_a_missing_broker_conf_is_that_stores_error(
    stores: dict[str, Path], cli: Cli, tmp_path: Path
) -> None:
    some = {name: stores[name] for name in ("sound", "half")}
    (tmp_path / "sound.conf").write_text(golden_data.broker_conf_text("basic"))
    where = ("--stores", listing(some, tmp_path / "list"), *NDJSON)
    done = cli("fleet", "du", *where, "--broker-conf", f"{tmp_path}/{{name}}.conf")
    rows = by_store(done.rows)
    assert (done.code, rows["sound"]["error"]) == (2, None)
    assert f"{tmp_path}/half.conf: No such file" in rows["half"]["error"]


def test_what_is_no_broker_conf_beside_a_store_is_that_stores_error(
    stores: dict[str, Path], cli: Cli, tmp_path: Path
) -> None:
    """The sizes of a broker without a broker.conf would make findings of a sound store. The parent
    of the last store may not be looked at: the name is too long for the system."""
    for name in ("folder", "dangling", "pipe"):
        (tmp_path / name).mkdir()
        golden_data.copy_tree(stores["half"], tmp_path / name / "store")
    (tmp_path / "folder/broker.conf").mkdir()
    (tmp_path / "dangling/broker.conf").symlink_to("gone")
    os.mkfifo(tmp_path / "pipe/broker.conf")
    lines = [f"{name} = {tmp_path / name / 'store'}" for name in ("folder", "dangling", "pipe")]
    lines.append(f"long = {tmp_path / ('x' * 300) / 'store'}")
    some = {"sound": stores["sound"]}
    line = ["fleet", "du", "--stores", listing(some, tmp_path / "list", *lines), *NDJSON]
    done = cli(*line, "--report", tmp_path / "page.html")
    rows = by_store(done.rows)
    assert rows["sound"]["error"] is None and rows["pipe"]["error"] is None
    assert "broker.conf: Is a directory" in rows["folder"]["error"]
    assert "broker.conf: No such file" in rows["dangling"]["error"]
    assert "File name too long" in rows["long"]["error"]
    assert done.code == 2


def test_a_table_has_a_line_a_store(stores: dict[str, Path], cli: Cli, tmp_path: Path) -> None:
    out = cli("fleet", "verify", "--stores", listing(stores, tmp_path / "list"), "--jobs", "1").out
    header, *rows, _, title, told, _, summary = out.splitlines()
    assert header.split()[:3] == ["store", "records", "bytes"]
    assert [row.split()[0] for row in rows] == list(stores)
    assert title == "# Stores that could not be read"
    assert told.startswith(f"none: {stores['none']} is not a RocketMQ store: ")
    assert told.endswith("name the directory that holds commitlog/ and consumequeue/.")
    assert summary.startswith("summary: stores=5, kept=0, failed=1, unclean=1")


def test_stores_may_be_files_as_urls(stores: dict[str, Path], cli: Cli) -> None:
    root = stores["sound"]
    for url in (f"file://{root}", f"file:{root}"):
        done = cli("fleet", "stats", "--stores", url, *NDJSON)
        assert done.code == 0, done.err
        assert by_store(done.rows)["sound"]["path"] == str(root)


def test_a_table_of_the_fleet_has_no_size_to_be_counted_in_digits(cli: Cli, store: Path) -> None:
    done = cli("fleet", "du", "--stores", str(store), "--format", "table")
    (told,) = [line for line in done.out.splitlines() if line.startswith("summary: ")]
    size = re.search(r" size=([^,]*),", told)
    assert size and re.fullmatch(r"[0-9.]+ [KMG]iB", size[1]), told


def test_state_keeps_what_has_left_the_list_and_speaks_of_the_list_alone(
    cli: Cli, store: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    other = tmp_path / "other"
    shutil.copytree(store, other)
    line = ("fleet", "du", "--state", str(tmp_path / "state"), "--format", "ndjson", "--stores")
    assert cli(*line, str(store), "--stores", str(other)).rows[-1]["stores"] == 2
    done = cli(*line, str(store))
    assert [row["path"] for row in done.rows[:-1]] == [str(store)]
    assert (done.rows[-1]["stores"], done.rows[-1]["kept"]) == (1, 1)
    assert len(list((tmp_path / "state/du").glob("*.parquet"))) == 2
    assert cli(*line, str(other)).rows[-1]["kept"] == 1


def test_state_lies_where_a_name_is_no_utf8(cli: Cli, store: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    place = store.rename(tmp_path / os.fsdecode(b"bro\xffker"))
    state = tmp_path / os.fsdecode(b"st\xffte")
    line = ("fleet", "du", "--state", str(state), "--format", "ndjson", "--stores", str(place))
    for kept in (0, 1):
        done = cli(*line)
        assert done.code == 0, done.err
        assert (done.rows[-1]["stores"], done.rows[-1]["kept"]) == (1, kept)


def test_a_row_that_is_not_kept_ends_no_run(
    stores: dict[str, Path], cli: Cli, tmp_path: Path
) -> None:
    """A full disk may be one, too: whatever cannot be kept, each store is looked at and told."""
    pytest.importorskip("pyarrow")
    line = ("fleet", "stats", "--stores", listing(stores, tmp_path / "list"), "--jobs", "1")
    whole = cli(*line, *NDJSON)
    kept = (*line, "--state", tmp_path / "state", "--report", tmp_path / "page.html", *NDJSON)
    assert cli(*kept).code == whole.code
    files = sorted((tmp_path / "state/stats").glob("*.parquet"))
    for one in files[:2]:
        one.unlink()
        one.mkdir()
    (tmp_path / "page.html").unlink()
    done = cli(*kept)
    assert [row["store"] for row in done.rows[:-1]] == [row["store"] for row in whole.rows[:-1]]
    assert done.rows[-1] == {**whole.rows[-1], "kept": len(files) - 2}
    assert done.code == 5 and (tmp_path / "page.html").exists()
    told, _, which = done.err.partition(": cannot write ")
    assert told == "error: the rows of 2 stores are not kept, the first because"
    assert which.startswith((f"{files[0]}: it is not a", f"{files[1]}: it is not a"))


def test_quiet_leaves_errors_on_stderr(stores: dict[str, Path], cli: Cli, tmp_path: Path) -> None:
    """The exit code alone says not which store it is of."""
    absent = [f"/absent/{number}/store" for number in range(30)]
    done = cli("fleet", "du", "--stores", listing(stores, tmp_path / "list"), *NDJSON, "-q")
    assert (done.code, done.out) == (3, "")
    (line,) = done.err.splitlines()
    assert line.startswith("error: none: ") and "is not a RocketMQ store" in line
    (tmp_path / "many").write_text("\n".join(absent))
    done = cli("fleet", "du", "--stores", tmp_path / "many", *NDJSON, "-q")
    lines = done.err.splitlines()
    assert len(lines) == 21 and "10 stores more could not be read" in lines[-1]
    loud = cli("fleet", "du", "--stores", listing(stores, tmp_path / "list"), *NDJSON)
    assert loud.err == ""
