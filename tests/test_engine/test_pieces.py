"""A log that comes in bits: whole entries out, and a store that is the same then."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from formats.constants import BLANK_MAGIC_CODE
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.pieces import BadEntry, LogPiece, PieceReader
from rmqctl.engine.record.record import BLANK
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from tests.conftest import Golden
from tests.golden_data import broker_conf, tree_content

FILE_SIZE = 4096
CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=FILE_SIZE,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=20,
    max_index_num=60,
    max_message_size=2048,
)
LONGEST = 1 << 16


def log_bytes(root: Path, start: int, end: int) -> bytes:
    """The log of a store as a master sends it, its blanks in full."""
    with MessageStore(root) as store:
        pieces, at = [], start
        while at < end:
            mapped, position = store.commit_log.locate(at)
            pieces.append(mapped.read(position, min(mapped.size - position, end - at)))
            at += len(pieces[-1])
    return b"".join(pieces)


@pytest.fixture
def master(tmp_path: Path) -> tuple[Path, bytes]:
    """A store with some files of log, and the bytes of that."""
    root, chance = tmp_path / "master", random.Random(3)
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        for number in range(60):
            body = chance.randbytes(chance.choice((0, 10, 500)))
            properties = {"KEYS": f"k{number}"}
            message = MessageExtBrokerInner("t", body, number % 3, properties=properties)
            assert store.put_message(message, flush=False).is_ok
        end = store.max_offset
    return root, log_bytes(root, 0, end)


def cut(data: bytes, sizes: random.Random, start: int = 0) -> list[LogPiece]:
    reader = PieceReader(start, FILE_SIZE, LONGEST)
    pieces: list[LogPiece] = []
    at = 0
    while at < len(data):
        size = sizes.choice((1, 7, 100, 5000))
        pieces += reader.feed(data[at : at + size])
        at += size
    assert reader.end == reader.received == start + len(data)
    return pieces


@pytest.mark.parametrize("seed", range(5))
def test_pieces_are_whole_entries_of_one_file(master: tuple[Path, bytes], seed: int) -> None:
    _, data = master
    pieces = cut(data, random.Random(seed))
    assert b"".join(piece.data for piece in pieces) == data
    assert sum(piece.records for piece in pieces) == 60
    assert sum(piece.is_blank for piece in pieces) == (len(data) - 1) // FILE_SIZE
    for piece in pieces:
        assert piece.physical_offset // FILE_SIZE == (piece.end_offset - 1) // FILE_SIZE
        assert not piece.mismatches


def test_a_store_that_gets_them_is_the_same(master: tuple[Path, bytes], tmp_path: Path) -> None:
    root, data = master
    pieces = cut(data, random.Random(1))
    half = len(pieces) // 2
    copy = tmp_path / "copy"
    for some in (pieces[:half], pieces[half:]):
        with WritableStore(copy, CONFIG, create=True) as store:
            for piece in some:
                store.writer.append_piece(piece)
    same_files(root, copy)


def test_a_store_that_is_opened_anew_for_each_piece_is_the_same(
    master: tuple[Path, bytes], tmp_path: Path
) -> None:
    """Opening ends the log before a blank with no file behind it. The master's next piece comes
    from behind the blank, or is the blank once more."""
    root, data = master
    pieces = cut(data, random.Random(2))
    assert sum(piece.is_blank for piece in pieces) > 1
    for name, again in (("once", 1), ("twice", 2)):
        for piece in pieces:
            for _ in range(again if piece.is_blank else 1):
                with WritableStore(tmp_path / name, CONFIG, create=True) as store:
                    store.writer.append_piece(piece)
        same_files(root, tmp_path / name)


def same_files(one: Path, other: Path) -> None:
    """Log and queues byte by byte."""
    for name in ("commitlog", "consumequeue"):
        assert tree_content(one / name) == tree_content(other / name), name


@pytest.mark.parametrize("name", ["basic", "broker"])
def test_a_log_of_the_real_engine_comes_over(golden: Golden, tmp_path: Path, name: str) -> None:
    root, config = golden(name), broker_conf(name)
    with MessageStore(root, config) as store:
        start, end, size = store.min_offset, store.max_offset, store.commit_log.file_size
    reader = PieceReader(start, size, LONGEST)
    with WritableStore(tmp_path / "copy", config, create=True) as copy:
        for piece in reader.feed(log_bytes(root, start, end)):
            copy.writer.append_piece(piece)
        assert copy.max_offset == end
    same_files(root, tmp_path / "copy")


def test_what_a_blank_covers_comes_over(master: tuple[Path, bytes], tmp_path: Path) -> None:
    """Java's writer leaves behind a blank what was there before."""
    _, data = master
    blank = next(piece for piece in cut(data, random.Random(1)) if piece.is_blank)
    changed = bytearray(data)
    changed[blank.end_offset - 1] = 7
    with WritableStore(tmp_path / "copy", CONFIG, create=True) as store:
        for piece in cut(bytes(changed), random.Random(2)):
            store.writer.append_piece(piece)
    copied = log_bytes(tmp_path / "copy", 0, len(data))
    assert copied == changed


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, b"\x7f\xff\xff\xff", "total-size-out-of-range"),
        (0, b"\0\0\0\x01", "total-size-out-of-range"),
        (0, bytes(8), "bad-magic"),
        (4, b"none", "bad-magic"),
        (0, BLANK.pack(64, BLANK_MAGIC_CODE), "blank-size-mismatch"),
        (0, BLANK.pack(FILE_SIZE, BLANK_MAGIC_CODE), "blank-size-mismatch"),
        (28, b"\0\0\0\0\0\0\0\x01", "physical-offset-mismatch"),
        (84, b"\x7f\xff\xff\xff", "body-length-out-of-range"),
    ],
)
def test_what_is_no_entry_ends_it(
    master: tuple[Path, bytes], at: int, value: bytes, reason: str
) -> None:
    _, data = master
    changed = data[:at] + value + data[at + len(value) :]
    reader = PieceReader(0, FILE_SIZE, LONGEST)
    with pytest.raises(BadEntry, match=reason) as raised:
        list(reader.feed(changed))
    assert raised.value.damage.physical_offset == reader.end == 0


def test_what_comes_before_damage_is_given_first(master: tuple[Path, bytes]) -> None:
    _, data = master
    reader = PieceReader(0, FILE_SIZE, LONGEST)
    first = next(reader.feed(data))
    size = first.heads[1]
    reader, got = PieceReader(0, FILE_SIZE, LONGEST), []
    with pytest.raises(BadEntry):
        for piece in reader.feed(data[:size] + b"damage!!" + bytes(200)):
            got.append(piece)
    assert [piece.data for piece in got] == [data[:size]]


def test_a_body_that_is_not_what_was_stored_is_named(master: tuple[Path, bytes]) -> None:
    _, data = master
    pieces = cut(data, random.Random(1))
    piece = next(one for one in pieces if len(one.data) > 600)
    changed = bytearray(data)
    for head in piece.heads:
        if BLANK.unpack_from(piece.data, head)[0] > 500:
            place = piece.physical_offset + head
            changed[place + 100] ^= 1
            break
    found = [offset for one in cut(bytes(changed), random.Random(4)) for offset in one.mismatches]
    assert found == [place]
