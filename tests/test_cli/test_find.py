"""``rmqctl find`` and ``walk --key``: a message of which a text is known."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from tests import golden_data
from tests.conftest import Golden
from tests.test_cli.conftest import BORN, BROKER_CONF, CONFIG, Cli, message, state

NDJSON = ("--format", "ndjson")
Rows = list[dict[str, Any]]


def found(rows: Rows) -> dict[int, str]:
    return {r["physical_offset"]: r["found_by"] for r in rows if r["type"] == "message"}


@pytest.fixture
def broker(golden: Golden, broker_conf_file: Callable[[str], Path]) -> tuple[str | Path, ...]:
    return ("--store", golden("broker"), "--broker-conf", broker_conf_file("broker"))


def test_every_key_id_and_unique_key_of_a_brokers_store(
    cli: Cli, broker: tuple[str | Path, ...]
) -> None:
    """Against a walk: the places of every third message, by each of its names."""
    walk = cli("walk", "commitlog", *NDJSON, *broker).rows
    rows = [row for row in walk if row["type"] == "message"]
    keys: dict[str, set[int]] = {}
    uniques: dict[str, set[int]] = {}
    for row in rows:
        for key in row["properties"].get("KEYS", "").split():
            keys.setdefault(key, set()).add(row["physical_offset"])
        if "UNIQ_KEY" in row["properties"]:
            uniques.setdefault(row["properties"]["UNIQ_KEY"], set()).add(row["physical_offset"])
    for names, how in ((keys, "key"), (uniques, "unique-key")):
        assert len(names) > 20
        for name in sorted(names)[::40]:
            hits = found(cli("find", name, "--limit", "999", *NDJSON, *broker).rows)
            assert hits == dict.fromkeys(names[name], how)
    for row in rows[::200]:
        for text in (row["msg_id"], row["msg_id"].lower()):
            assert found(cli("find", text, *NDJSON, *broker).rows) == {
                row["physical_offset"]: "message-id"
            }


@pytest.mark.parametrize("text", ["x", "7", "DefaultCluster", "{", "aaaa"])
def test_a_scan_finds_what_a_look_at_each_message_finds(
    text: str, cli: Cli, broker: tuple[str | Path, ...]
) -> None:
    """Compressed bodies too."""
    shown = ("--body-as", "hex", "--decompress")
    walk = cli("walk", "commitlog", *shown, *NDJSON, *broker).rows
    expected = {}
    for row in walk:
        if row["type"] != "message":
            continue
        if any(text in part for pair in row["properties"].items() for part in pair):
            expected[row["physical_offset"]] = False
        elif text.encode() in bytes.fromhex(row["body"]):
            expected[row["physical_offset"]] = True
    done = cli("find", text, "--scan", "--limit", "99999", *NDJSON, *broker)
    assert {place: how == "body" for place, how in found(done.rows).items()} == expected
    assert done.rows[-1]["not_searched"] == [] and done.code == int(not expected)


def test_what_was_not_looked_at_is_said(cli: Cli, store: Path) -> None:
    before = state(store)
    done = cli("find", "order-7", *NDJSON, store=store)
    row, summary = done.rows
    assert (row["queue_offset"], row["found_by"], done.code) == (3, "key", 0)
    assert summary["not_searched"] == ["log"] and "find order-7 --scan" in done.err
    done = cli("find", "body 42", *NDJSON, store=store)
    assert done.code == 1 and f"`rmqctl find 'body 42' --scan --store {store} " in done.err
    done = cli("find", "body 42", "--scan", "--body-as", "utf8", *NDJSON, store=store)
    assert [row.get("body") for row in done.rows] == ["body 42", None] and done.err == ""
    assert done.rows[0]["found_by"] == "body"
    done = cli("find", "red", "--scan", "--topic", "orders", *NDJSON, store=store)
    assert done.code == 1 and done.rows[-1]["not_searched"] == ["other-topics"]
    assert found(cli("find", "red", "--scan", *NDJSON, store=store).rows).popitem()[1] == "property"
    done = cli("find", "all", "--limit", "5", *NDJSON, store=store)
    assert len(done.rows) == 6 and done.rows[-1]["not_searched"] == ["log", "beyond-limit"]
    done = cli("find", "body", "--limit", "3", "--scan", *NDJSON, store=store)
    assert done.rows[-1]["scanned_bytes"] == sum(row["total_size"] for row in done.rows[:-1])
    done = cli("find", "all", "--limit", "59", "--scan", *NDJSON, store=store)
    assert len(done.rows) == 60 and done.rows[-1]["not_searched"] == []
    assert state(store) == before


def test_the_index_is_behind_or_gone(cli: Cli, store: Path) -> None:
    shutil.rmtree(store / "index")
    done = cli("find", "order-7", *NDJSON, store=store)
    assert done.code == 1 and done.rows[-1]["not_searched"] == ["log", "no-index"]
    assert "rebuild index" in done.err
    done = cli("find", "order-7", "--scan", *NDJSON, store=store)
    assert done.rows[0]["found_by"] == "key" and done.rows[-1]["messages"] == 1


def test_an_index_of_a_dledger_log_begins_with_it(
    cli: Cli, golden: Golden, broker_conf_file: Callable[[str], Path]
) -> None:
    """Its first record stands behind an entry's header."""
    store = ("--store", golden("dledger"), "--broker-conf", broker_conf_file("dledger"))
    row, summary = cli("find", "k0", *NDJSON, *store).rows
    assert row["physical_offset"] > 0 and summary["not_searched"] == ["log"]


def test_uploaded_messages_are_not_looked_at(
    cli: Cli, golden_directory: Path, tmp_path: Path
) -> None:
    """A retention takes from the log what is uploaded; a scan does not see it either."""
    golden = golden_data.unpacked("tiered", golden_directory, golden_data.LATER)
    for more in ((), ("--scan",)):
        done = cli("find", "nowhere", *more, *NDJSON, "--store", golden)
        assert done.code == 1 and "uploaded-files" in done.rows[-1]["not_searched"]
        assert "tiered query" in done.err


def test_a_broken_topics_json_hides_no_message(cli: Cli, store: Path) -> None:
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text("{")
    done = cli("find", "order-7", *NDJSON, store=store)
    assert (done.code, done.rows[-1]["messages"]) == (0, 1) and "config check" in done.err
    assert done.rows[-1]["not_searched"] == ["topics-without-queues", "log"]
    assert cli("find", "order-7", "--scan", *NDJSON, store=store).rows[-1]["not_searched"] == []


def test_topics_that_only_topics_json_names_are_asked_for(cli: Cli, store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "orders")
    assert cli("find", "order-7", store=store).code == 1
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text('{"topicConfigTable":{"orders":{}}}')
    assert found(cli("find", "order-7", *NDJSON, store=store).rows).popitem()[1] == "key"


def test_times_topics_and_bytes_beyond_damage(cli: Cli, store: Path) -> None:
    when = ("--since", str(BORN + 1010), "--until", str(BORN + 1019))
    for scan in ((), ("--scan",)):
        rows = cli("find", "all", *when, *scan, *NDJSON, store=store).rows
        assert [row["store_timestamp"] for row in rows[:-1]] == list(
            range(BORN + 1010, BORN + 1020)
        )
    assert cli("find", "order-3", "--topic", "other", *NDJSON, store=store).code == 1
    log = store / "commitlog" / f"{2048:020d}"
    data = bytearray(log.read_bytes())
    data[4:8] = b"\xff" * 4
    log.write_bytes(data)
    done = cli("find", "no such", "--scan", *NDJSON, store=store)
    assert done.code == 1 and done.rows[-1]["not_searched"] == ["damaged-parts"]
    assert done.rows[-1]["damages"] == 1 and "rmqctl verify" in done.err


def test_compressed_bodies(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore(path, CONFIG, writable=True, create=True) as opened:
        for body in (b"needle in a stack" * 9, b"hay" * 99):
            packed = zlib.compress(body)
            opened.put_message(message(0, body=packed, sys_flag=1, properties={}))
    rows = cli("find", "stackneedle", "--scan", *NDJSON, store=path).rows
    assert found(rows) == {0: "body"}
    limit = ("--body-as", "utf8", "--decompress", "--decompress-limit", "200")
    done = cli("find", "hayhay", "--scan", *limit, *NDJSON, store=path)
    assert done.rows[-1]["unread_bodies"] == 1 and done.code == 1
    assert done.rows[-1]["not_searched"] == ["compressed-bodies"]


def test_a_text_that_is_no_utf8_or_nothing(cli: Cli, store: Path) -> None:
    assert (
        cli("find", "\udcff", "--scan", *NDJSON, store=store).rows[0]["topic"].startswith("nasty")
    )
    assert cli("find", "", store=store).code == 2
    assert cli("find", "x", "--since", "5", "--until", "4", store=store).code == 2


def test_walk_by_key(cli: Cli, store: Path) -> None:
    rows = cli("walk", "commitlog", "--key", "order-7", *NDJSON, store=store).rows
    assert [row["properties"]["KEYS"] for row in rows[:-1]] == ["order-7 all"]
    assert cli("walk", "commitlog", "--key", "all", "-q", store=store).code == 0
    assert cli("walk", "commitlog", "--key", "order-7 all", "-q", store=store).code == 1


def test_a_scan_needs_no_geometry_of_the_index(cli: Cli, tmp_path: Path) -> None:
    """One message proves no geometry: only a broker.conf tells it, or nobody has to ask."""
    store, conf = tmp_path / "s", tmp_path / "broker.conf"
    conf.write_text(BROKER_CONF)
    put = ("put", "--create", "--topic", "t", "--key", "k", "--body", "x")
    assert cli(*put, "--store", store, "--broker-conf", conf).code == 0
    assert cli("find", "k", "--store", store).code == 5
    done = cli("find", "k", "--scan", "--store", store, "--format", "ndjson")
    assert done.code == 0 and done.rows[0]["found_by"] == "key"
    assert done.rows[-1]["not_searched"] == []


def test_an_index_of_other_sizes_is_read_without_a_broker_conf(cli: Cli, store: Path) -> None:
    for line in (
        ("find", "order-7"),
        ("find", "order-7", "--scan"),
        ("index", "query", "--topic", "orders", "--key", "order-7"),
    ):
        done = cli(*line, "--store", store, "--format", "ndjson")
        assert (done.code, done.rows[-1]["messages"]) == (0, 1), done.err
    done = cli("info", "--store", store, "--format", "ndjson")
    assert done.rows[0]["max_hash_slot_num"] == 50 and done.rows[0]["max_index_num"] == 200
    assert cli("walk", "index", "--store", store).code == 0
    assert cli("verify", "--store", store).out.startswith("OK: 60 messages, 3 queues, 1 index file")
    done = cli("put", "--topic", "t", "--key", "k", "--body", "x", "--store", store)
    assert done.code == 5 and "--broker-conf" in done.err, "who writes must know"
