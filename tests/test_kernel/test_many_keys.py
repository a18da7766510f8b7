"""Lookups of many keys: lines of the kernel say what each lookup by itself says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rmqctl import kernel
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.read.lines import Lines
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.errors import CannotRead
from rmqctl.operations.look.index import query
from rmqctl.operations.look.keyed import query_keys
from tests.conftest import Golden
from tests.golden_data import STORES, apply_damage, broker_conf, copy_tree, damage_case
from tests.test_kernel.test_reads import INDEX_CASES, keys_of

pytestmark = pytest.mark.usefixtures("compiled")

#: Of everything: what is asked for one by one, and together.
Said = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernel.VARIABLE, "compiled")


def told(rows: Iterable[Any]) -> Said:
    """Rows, and those of lines, as a reader of NDJSON has them."""
    said: Said = []
    for row in rows:
        if isinstance(row, Lines):
            said += [json.loads(line) for line in bytes(row.data).splitlines()]
        else:
            said.append(json.loads(json.dumps(row)))
    return said


def together(store: MessageStore, keys: Iterable[str | None], **limits: Any) -> Said:
    return told(query_keys(store, "t", keys, form="ndjson", **limits))


def one_by_one(store: MessageStore, topic: str, keys: list[str], **limits: Any) -> Said:
    """What lookups of each key by itself say, told as that of all of them."""
    said: Said = []
    total = dict.fromkeys(("messages", "collisions", "missing"), 0)
    absent = mismatches = 0
    for key in keys:
        *rows, summary = told(query(store, topic, key, **limits))
        said += rows
        for name in total:
            total[name] += summary[name]
        mismatches += summary.get("body_crc_mismatches", 0)
        if not rows:
            absent += 1
            counts = {name: summary[name] for name in ("collisions", "missing")}
            said.append({"type": "absent_key", "topic": topic, "key": key} | counts)
    files = {"index_files": len(store.index.paths)}
    counts = {"keys": len(keys), "absent_keys": absent} | total | files
    more = {"body_crc_mismatches": mismatches} if mismatches else {}
    return [*said, {"type": "summary"} | counts | more]


def assert_same(root: Path, name: str) -> None:
    with MessageStore(root, broker_conf(name)) as store:
        asked: dict[str, list[str]] = {}
        for topic, key in dict.fromkeys(keys_of(store)):
            asked.setdefault(topic, ["nobody"]).append(key)
        for number, (topic, keys) in enumerate(asked.items()):
            keys = [*keys[:70], "", keys[-1], "nothing", "\udcff", keys[-1]]
            most, body = 1 + number % 3, ("none", "utf8", "base64", "hex")[number % 4]
            limits: dict[str, Any] = {"max_messages": most, "body": body}
            try:
                expected = one_by_one(store, topic, keys, **limits)
            except CannotRead as error:
                with pytest.raises(CannotRead) as told_too:
                    told(query_keys(store, topic, keys, form="ndjson", **limits))
                assert str(told_too.value) == str(error)
                continue
            assert told(query_keys(store, topic, keys, form="ndjson", **limits)) == expected
            assert told(query_keys(store, topic, keys, **limits)) == expected


@pytest.mark.parametrize("name", STORES)
def test_golden_stores(name: str, golden: Golden) -> None:
    assert_same(golden(name), name)


@pytest.mark.parametrize("name", INDEX_CASES)
def test_damaged_stores(name: str, golden: Golden, tmp_path: Path) -> None:
    case = damage_case(name)
    root = copy_tree(golden(case["base"]), tmp_path / "store")
    apply_damage(root, case["ops"])
    assert_same(root, case["base"])


def put(store: MessageStore, *keys: str) -> None:
    messages = [
        MessageExtBrokerInner("t", key.encode(), 0, properties={"KEYS": key}) for key in keys
    ]
    assert all(result.is_ok for result in store.put_messages(messages))


def test_lines_come_of_many_keys_at_once(tmp_path: Path) -> None:
    keys = [f"key{number}" for number in range(1000)]
    with MessageStore(tmp_path, writable=True, create=True) as store:
        put(store, *keys)
    with MessageStore(tmp_path) as store:
        *lines, summary = query_keys(store, "t", keys, form="csv")
        assert sum(some.messages for some in lines if isinstance(some, Lines)) == 1000
        assert told([summary])[0]["messages"] == 1000
        # Rows of keys without a message stand between lines.
        keys[10] = keys[20] = "none"
        kinds = [type(row) for row in query_keys(store, "t", keys[:30], form="ndjson")]
        assert kinds == [Lines, dict, Lines, dict, Lines, dict]


def test_who_waits_is_answered(tmp_path: Path) -> None:
    with MessageStore(tmp_path, writable=True, create=True) as store:
        put(store, "a", "b")
        asked: list[str] = []

        def keys() -> Any:
            for key in ("a", None, None, "b", "c", None, "a"):
                asked.append(str(key))
                yield key

        rows = query_keys(store, "t", keys(), form="ndjson")
        assert told([next(rows)])[0]["properties"]["KEYS"] == "a"
        assert asked == ["a", "None"]
        assert told([next(rows)])[0]["properties"]["KEYS"] == "b"
        assert asked[2:] == ["None", "b", "c", "None"]
        *_, summary = told(rows)
        assert (summary["keys"], summary["absent_keys"]) == (4, 1)


@pytest.mark.parametrize("is_written_here", [True, False])
def test_messages_that_come_meanwhile_are_found(tmp_path: Path, is_written_here: bool) -> None:
    """Also by a store that was opened before, as long as the files are those that it knows."""
    with MessageStore(tmp_path, writable=True, create=True) as writer:
        put(writer, "old")
        with MessageStore(tmp_path) as reader:

            def keys() -> Any:
                yield from ("old", None)
                put(writer, "new", "old")
                writer.flush()
                yield from ("new", "old", None)

            store = writer if is_written_here else reader
            said = together(store, keys())
    assert [row.get("queue_offset") for row in said] == [0, 1, 0, 2, None]


def test_a_file_that_shrinks_is_told(tmp_path: Path) -> None:
    with MessageStore(tmp_path, writable=True, create=True) as store:
        put(store, "a", "b")
    with MessageStore(tmp_path) as store:
        assert len(together(store, ["a", "b"])) == 3
        for size in (60, 10, 0):
            os.truncate(store.index.paths[0], size)
            with pytest.raises(CannotRead, match="shorter"):
                together(store, ["a", "b"])


def test_many_hits_of_one_key_are_read_one_by_one(tmp_path: Path, compiled: ModuleType) -> None:
    with MessageStore(tmp_path, writable=True, create=True) as store:
        put(store, *["many"] * 100, "few")
    with MessageStore(tmp_path) as store:
        for most in (1, 64, 65, 1000):
            keys = ["few", "many", "few"]
            said = together(store, keys, max_messages=most)
            assert said == one_by_one(store, "t", keys, max_messages=most)
            offsets = [row["queue_offset"] for row in said[:-1]]
            assert offsets == [100, *range(100 - min(most, 100), 100), 100]


def test_long_messages_come_a_few_at_a_time(tmp_path: Path) -> None:
    """Memory does not grow with the keys: a MiB of lines is enough for one call, and a key
    with more than a few is read row by row."""
    with MessageStore(tmp_path, writable=True, create=True) as store:
        messages = [
            MessageExtBrokerInner("t", bytes(300_000), 0, properties={"KEYS": f"long{n % 10}"})
            for n in range(200)
        ]
        messages.append(MessageExtBrokerInner("t", b"", 0, properties={"KEYS": "short"}))
        assert all(result.is_ok for result in store.put_messages(messages))
    with MessageStore(tmp_path) as store:
        keys = [f"long{n}" for n in range(10)] + ["short"]
        for most in (1, 2, 20):
            limits: dict[str, Any] = {"max_messages": most, "body": "base64"}
            rows = list(query_keys(store, "t", keys, form="ndjson", **limits))
            assert all(len(row.data) < 5 << 20 for row in rows if isinstance(row, Lines))
            assert told(rows) == one_by_one(store, "t", keys, **limits)


def test_absent_keys_are_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore(tmp_path, writable=True, create=True) as written:
        put(written, "a")
    with MessageStore(tmp_path) as store:
        # On a busy machine a call ends early, and the next one goes on where it ended.
        done: list[int] = []
        own = store.index.lines_of_keys

        def counted(*asked: Any) -> Any:
            made = own(*asked)
            assert made is not None
            done.append(made[1])
            return made

        monkeypatch.setattr(store.index, "lines_of_keys", counted)
        keys = ["a", *(f"none{number}" for number in range(250)), "a"]
        said = told(query_keys(store, "t", keys, form="ndjson"))
        assert [row["type"] for row in said].count("absent_key") == 250
        assert said == one_by_one(store, "t", keys)
        assert min(done) > 0 and sum(done) == 252


def test_a_log_file_that_is_gone_is_met_at_its_key(tmp_path: Path) -> None:
    """Keys before it have their answers, and a newer message of the key, where one is asked for."""
    config = parse_broker_conf("mappedFileSizeCommitLog=4096\n")
    with MessageStore(tmp_path, config, writable=True, create=True) as store:
        put(store, "old", "both", *(f"key{number}" for number in range(60)), "both")
    with MessageStore(tmp_path, config) as store:
        first = next(iter(sorted((tmp_path / "commitlog").iterdir())))
        first.unlink()
        said: list[Any] = []
        with pytest.raises(CannotRead):
            for row in query_keys(store, "t", ["both", "key50", "old"], form="csv", max_messages=1):
                said.append(row)
        assert sum(row.messages if isinstance(row, Lines) else 1 for row in said) == 2
