"""The geometry of index files that no configuration tells."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from formats.geometry import Geometry
from rmqctl.engine.index.geometry import known_geometry, proven_geometry
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.store import Store
from rmqctl.operations.verify import Finding, verify

USUAL = MessageStoreConfig()


def _store(path: Path, slots: int, items: int, messages: int, keys: int = 2) -> Path:
    config = MessageStoreConfig(
        mapped_file_size_commit_log=1 << 16,
        mapped_file_size_consume_queue=4000,
        max_hash_slot_num=slots,
        max_index_num=items,
    )
    with MessageStore(path, config, writable=True, create=True) as store:
        store.put_messages(
            [
                MessageExtBrokerInner(
                    "orders",
                    b"x",
                    properties={"KEYS": " ".join(f"k{number}-{key}" for key in range(keys))},
                )
                for number in range(messages)
            ]
        )
    return path


def _files(store: Path) -> list[Path]:
    return sorted((store / "index").iterdir())


@pytest.mark.parametrize(
    ("slots", "items", "messages", "keys"),
    [(50, 200, 40, 2), (1, 60, 29, 1), (1000, 20_000, 300, 5), (7, 16, 7, 2), (64, 4096, 2, 3)],
)
def test_links_prove_the_geometry(
    slots: int, items: int, messages: int, keys: int, tmp_path: Path
) -> None:
    store = _store(tmp_path / "s", slots, items, messages, keys)
    assert proven_geometry(_files(store)[0]) == Geometry(slots, items)
    assert known_geometry(store / "index", USUAL) == Geometry(slots, items)
    with Store(store) as opened:
        for number in (0, messages - 1):
            (match,) = opened.query_message("orders", f"k{number}-0")
            assert match.matches
    found = [one.code for one in verify(store, USUAL) if isinstance(one, Finding)]
    assert found == ["index-sizes-unusual"]


def test_full_files_and_more_of_them(tmp_path: Path) -> None:
    store = _store(tmp_path / "s", 13, 137, 240)
    assert len(_files(store)) == 4
    assert known_geometry(store / "index", USUAL) == Geometry(13, 137)
    for path in _files(store)[1:]:
        path.unlink()
    assert proven_geometry(_files(store)[0]) == Geometry(13, 137)
    assert known_geometry(store / "index", USUAL) == Geometry(), "one odd length may be a cut one"


def test_a_broker_conf_is_what_its_broker_goes_by(tmp_path: Path) -> None:
    store = _store(tmp_path / "s", 50, 200, 20)
    for text in ("maxIndexNum=300", "fileReservedTime=48"):
        config = parse_broker_conf(text)
        assert known_geometry(store / "index", config) == config.index_geometry
        codes = [one.code for one in verify(store, config) if isinstance(one, Finding)]
        assert "index-length-mismatch" in codes


def test_what_proves_nothing_is_not_taken(tmp_path: Path) -> None:
    store = _store(tmp_path / "s", 50, 200, 20)
    (path,) = _files(store)
    sound = path.read_bytes()
    for position in (3, 12, 31, 39, 40 + 4 * 50 + 20 * 40 + 3):
        changed = bytearray(sound)
        changed[position] ^= 0x40
        path.write_bytes(changed)
        assert proven_geometry(path) in (None, Geometry(50, 200)), position
    for data in (b"", sound[:39], sound[:40], sound[:41], bytes(len(sound)), b"\xff" * 9000):
        path.write_bytes(data)
        assert proven_geometry(path) is None if len(data) >= 40 else True
        assert known_geometry(store / "index", USUAL) == Geometry()
    # Cut by a record: no longer what somebody has written into a broker.conf.
    path.write_bytes(sound[:-20])
    assert known_geometry(store / "index", USUAL) == Geometry()
    # An index of one message at the log's begin.
    alone = _store(tmp_path / "alone", 50, 200, 1)
    assert proven_geometry(_files(alone)[0]) is None


def test_files_that_disagree_prove_nothing(tmp_path: Path) -> None:
    one = _store(tmp_path / "one", 50, 200, 20)
    # 50 fewer slots, 10 more items: the same length.
    other = _store(tmp_path / "other", 100, 190, 20)
    assert _files(one)[0].stat().st_size == _files(other)[0].stat().st_size
    (one / "index" / "20991231235959999").write_bytes(_files(other)[0].read_bytes())
    assert known_geometry(one / "index", USUAL) == Geometry()


def test_any_bytes_prove_nothing_and_take_no_time(tmp_path: Path) -> None:
    chance = random.Random(11)
    path = tmp_path / "20240501120000000"
    for size in (40, 44, 1000, 100_000):
        path.write_bytes(chance.randbytes(size))
        assert proven_geometry(path) is None
    # The header's offset at every place there is.
    header = bytes(16) + bytes(8) + b"\x01" * 8 + bytes(4) + b"\0\0\0\x05"
    path.write_bytes(header + b"\x01" * 400_000)
    assert proven_geometry(path) is None
