"""Damage before the end of a log that was closed: nothing is put that a broker's start would take
away."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import EncodedMessage, MessageExtBrokerInner, encode, encoded_size
from rmqctl.engine.rehearsal.rehearse import rehearse
from rmqctl.errors import DamagedStore
from rmqctl.operations.change.put import DryPut
from tests.test_safety.support import fill_files, message, small_config, tree

CONFIG = small_config(log=1 << 13)
FILES = 6


def damage(root: Path, number: int, what: str) -> None:
    path = sorted((root / "commitlog").iterdir())[number]
    data = bytearray(path.read_bytes())
    if what == "body":
        data[data.index(b"x" * 50)] ^= 1
    elif what == "magic":
        data[4] ^= 1
    else:
        data[:100] = bytes(100)
    path.write_bytes(data)


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "abort"])
@pytest.mark.parametrize("what", ["body", "magic", "zeros"])
@pytest.mark.parametrize("number", range(FILES))
def test_what_a_start_would_delete_is_not_put(
    tmp_path: Path, number: int, what: str, abort: bool
) -> None:
    root = tmp_path / "store"
    fill_files(root, CONFIG, FILES, more=1)
    with MessageStore(root, CONFIG) as store:
        end = store.max_offset
    damage(root, number, what)
    if not abort:
        (root / "checkpoint").unlink()  # Opening it would make one.
    is_read = number >= FILES - 3
    started = rehearse(root, CONFIG, as_5=False)
    assert (started.max_offset < end) == is_read
    if abort and number >= FILES - 2:
        return  # A start after a crash reads those files, and is refused.
    if abort:
        (root / "abort").touch()
        assert rehearse(root, CONFIG, as_5=False).max_offset == end
    refused = pytest.raises(DamagedStore) if is_read else nullcontext()
    with MessageStore(root, CONFIG) as store, refused:
        DryPut(store, store.start_plan())
    before = tree(root)
    if abort and is_read:
        with pytest.raises(DamagedStore, match="Nothing was put"):
            MessageStore(root, CONFIG, writable=True)
        assert tree(root) == before
        return
    if is_read:
        with pytest.raises(DamagedStore, match="Nothing was put"):
            MessageStore(root, CONFIG, writable=True, puts=True)
        assert tree(root) == before
    with MessageStore(root, CONFIG, writable=True) as store:
        if is_read:
            for _ in range(2):
                with pytest.raises(DamagedStore, match="Nothing was put"):
                    store.put_message(message(0))
            with pytest.raises(DamagedStore, match="Nothing was put"):
                list(store.put_stream([message(0), message(1)]))
            with pytest.raises(DamagedStore, match="Nothing was put"):
                store.put_messages([message(0), message(0)], batch=True)
        else:
            assert store.put_message(message(0)).is_ok
    if is_read:
        kept = {name: data for name, data in tree(root).items() if name in before}
        assert {name for name in kept if kept[name] != before[name]} <= {"checkpoint"}
    else:
        assert rehearse(root, CONFIG, as_5=False).max_offset > end


def test_a_file_that_was_copied_behind_the_log_is_no_place_to_begin(tmp_path: Path) -> None:
    """Its records are old, and a crash's start would begin there: what stands before it would have
    an end without a blank, at which the next one deletes what was put behind."""
    root = tmp_path / "store"
    fill_files(root, CONFIG, FILES, more=1)
    files = sorted((root / "commitlog").iterdir())
    behind = int(files[-1].name) + (1 << 13)
    with MessageStore(root, CONFIG) as store:
        end = store.max_offset
    (root / "commitlog" / f"{behind:020d}").write_bytes(files[0].read_bytes())
    (root / "abort").touch()
    with MessageStore(root, CONFIG, writable=True) as store:
        result = store.put_message(message(0, body=b"y"))
        assert result.append is not None and result.append.wrote_offset == end
    for abort in (False, True):
        if abort:
            (root / "abort").touch()
        assert rehearse(root, CONFIG, as_5=False).max_offset > end


@pytest.mark.parametrize("how", ["single", "batch", "stream"])
@pytest.mark.parametrize(("left", "is_put"), [(0, True), (1, False), (7, False), (8, True)])
def test_a_file_without_room_for_a_blank_is_not_gone_on_with(
    tmp_path: Path, left: int, is_put: bool, how: str
) -> None:
    """No writer leaves such a file. A broker goes on throwing exceptions at each put."""
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        first = store.put_message(MessageExtBrokerInner("T", b"x")).stored
        assert first is not None
    at = first.wrote_bytes
    room = (1 << 13) - left - at - encoded_size(MessageExtBrokerInner("T", b""))
    last = encode(MessageExtBrokerInner("T", b"y" * room), 1 << 20)
    assert isinstance(last, EncodedMessage)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(at)
        file.write(last.record(1, at, first.store_timestamp))
    (root / "abort").touch()
    with MessageStore(root, CONFIG, writable=True) as store:
        assert store.max_offset == (1 << 13) - left
        with nullcontext() if is_put else pytest.raises(DamagedStore, match=f"leaves {left} bytes"):
            more = [MessageExtBrokerInner("T", b"z")]
            if how == "single":
                assert store.put_message(more[0]).is_ok
            elif how == "batch":
                assert store.put_batch(more).is_ok
            else:
                assert [result.is_ok for bulk in store.put_stream(more) for result in bulk] == [
                    True
                ]
        queue = store.consume_queue("T", 0)
        assert queue is not None and queue.max_offset == 2 + is_put
    assert not (root / "abort").exists()
