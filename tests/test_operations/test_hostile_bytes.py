"""Arbitrary bytes in any file: rmqctl's own errors or findings, soon, and without much memory."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats import layouts
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.errors import RmqctlError
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from rmqctl.operations.verify import verify
from tests.conftest import Golden
from tests.golden_data import broker_conf, copy_tree, tree_content
from tests.test_operations.small_store import CONFIG, make_small_store, read_everything

BORDERS = [0, 1, 19, 20, 91, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small_store(tmp_path_factory.mktemp("hostile") / "sound")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("hostile-copies")
    yield directory
    shutil.rmtree(directory)


def files_of(root: Path) -> list[str]:
    found = [path for path in root.rglob("*") if path.is_file() and path.name != "lock"]
    return sorted(str(path.relative_to(root)) for path in found)


@st.composite
def changes(draw: st.DrawFn, names: int) -> list[tuple[int, str, int, bytes]]:
    """``(file, what, place in the file, bytes)``: one to three changes of a store."""
    data = st.one_of(
        st.binary(max_size=300),
        st.sampled_from(BORDERS).map(lambda n: n.to_bytes(8, "big").lstrip(b"\0") or b"\0"),
        st.sampled_from(BORDERS).map(lambda n: n.to_bytes(8, "big")),
        st.sampled_from([bytes(40), b"\xff" * 40, b"\xda\xa3\x20\xa7" * 9, b"\xcb\xd4\x31\x94"]),
    )
    change = st.tuples(
        st.integers(0, names - 1),
        st.sampled_from(["write", "write", "write", "truncate", "replace", "delete"]),
        st.integers(0, 4095),
        data,
    )
    return draw(st.lists(change, min_size=1, max_size=3))


def damage(root: Path, names: list[str], done: list[tuple[int, str, int, bytes]]) -> None:
    for number, what, at, data in done:
        path = root / names[number]
        if not path.exists():
            continue
        size = path.stat().st_size
        if what == "delete":
            path.unlink()
        elif what == "replace":
            path.write_bytes(data)
        elif what == "truncate":
            with path.open("r+b") as file:
                file.truncate(at % (size + 1))
        elif size:
            with path.open("r+b") as file:
                file.seek(at % size)
                file.write(data[: size - at % size])


def write_once(root: Path) -> None:
    """Opens for writing and puts one message: an error of rmqctl's, or a store that holds it."""
    try:
        with MessageStore(root, CONFIG, writable=True, clock=lambda: 1_700_000_900_000) as store:
            result = store.put_message(MessageExtBrokerInner("TopicA", b"new", 0), flush=False)
            if result.append is not None:
                assert store.look_message_by_offset(result.append.wrote_offset).topic == "TopicA"
    except RmqctlError:
        pass


@given(data=st.data())
def test_only_our_errors_or_findings(sound: Path, place: Path, data: st.DataObject) -> None:
    names = files_of(sound)
    root = place / "store"
    shutil.rmtree(root, ignore_errors=True)
    copy_tree(sound, root)
    damage(root, names, data.draw(changes(len(names))))
    before = tree_content(root)
    raised = read_everything(root, place / "output")
    # verify's purpose is damage: only files of other lengths than the settings' keep it from it.
    error = raised["verify"]
    assert error is None or error.exit_code in (3, 5)
    assert tree_content(root) == before, "a reading command has changed the store"
    write_once(root)


@given(data=st.data())
def test_any_bytes_in_the_extension(golden: Golden, place: Path, data: st.DataObject) -> None:
    """The same for ``consumequeue_ext/``, whose units the queue units point to."""
    config = broker_conf("cqext")
    root = place / "cqext"
    if not root.exists():
        copy_tree(golden("cqext"), root)
    path = data.draw(st.sampled_from(sorted((root / "consumequeue_ext").rglob("0*0"))))
    sound_bytes = path.read_bytes()
    at = data.draw(st.integers(0, len(sound_bytes) - 1))
    new = data.draw(st.binary(min_size=1, max_size=60) | st.sampled_from([b"", b"\xff" * 40]))
    try:
        changed = sound_bytes[:at] + new + sound_bytes[at + len(new) :]
        path.write_bytes(changed[: len(sound_bytes)] if new else sound_bytes[:at])
        list(verify(root, config))
        topic, queue_id = path.parent.parent.name, int(path.parent.name)
        with MessageStore(root, config) as store:
            from rmqctl.engine.filters.tags import TagFilter

            store.get_message(topic, queue_id, 0, 32, TagFilter("TagA"))
    except RmqctlError:
        pass
    finally:
        path.write_bytes(sound_bytes)


def claims() -> Iterator[tuple[str, int, bytes]]:
    """``(structure, position in its first file, bytes)`` that claim something huge."""
    at = {field.name: field.offset for field in layouts.RECORD_PREFIX[0].fields}
    huge = (2**31 - 1).to_bytes(4, "big")
    for name in ("total_size", "body_length", "queue_id"):
        yield "commitlog", at[name], huge
    for name in ("queue_offset", "physical_offset"):
        yield "commitlog", at[name], (2**63 - 1).to_bytes(8, "big")
        yield "commitlog", at[name], (2**40).to_bytes(8, "big")
    yield "consumequeue", 0, (2**62).to_bytes(8, "big")
    yield "consumequeue", 8, huge
    for position in (32, 36):
        yield "index", position, huge
    for position in (0, 8, 16, 24):
        yield "index", position, (2**63 - 1).to_bytes(8, "big")
    yield "index", 40, huge * 16


@pytest.mark.parametrize("structure, position, data", list(claims()))
def test_a_claim_allocates_nothing(
    sound: Path, tmp_path: Path, structure: str, position: int, data: bytes
) -> None:
    root = copy_tree(sound, tmp_path / "store")
    path = next(p for p in sorted((root / structure).rglob("*")) if p.is_file())
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    read_everything(sound, tmp_path / "warm-up")
    tracemalloc.start()
    try:
        read_everything(root, tmp_path / "output")
        write_once(root)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


def test_damaged_topics_that_read_alike_are_one_queue(tmp_path: Path) -> None:
    """A rebuild writes every unit of it, and verify has nothing to say of that."""
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        for number in range(6):
            message = MessageExtBrokerInner("tö", b"x", properties={"KEYS": f"k{number}"})
            assert store.put_message(message, flush=False).is_ok
        records = [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    for number, record in enumerate(records):
        topic_at = record.body_position + record.body_length + 1
        assert data[topic_at : topic_at + 3] == "tö".encode()
        data[topic_at + 1 + number % 2] = 0xFF
    path.write_bytes(data)
    summary = rebuild_in_place(plan_rebuild(root, CONFIG, "all"))
    assert (summary.records, summary.units, summary.queues) == (6, 6, 1)
    with MessageStore(root, CONFIG) as store:
        queue = store.consume_queue("t\ufffd\ufffd", 0)
        assert queue is not None and queue.max_offset == 6
    *found, _ = verify(root, CONFIG)
    assert found == []
