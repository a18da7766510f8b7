"""verify on queues of which many units are wrong: what is told of them, and how much that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue, unit_dtype
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.operations.verify import ERROR
from rmqctl.operations.verify.findings import MULTI_DOUBTED, RECORD_DOUBTED
from tests.test_operations.small_store import CONFIG, QUEUE_SIZE, fill_light_queue, findings_of

COUNT = 3000
Units = NDArray[np.void]
Told = list[tuple[str, int | None, str | None]]


@pytest.fixture(scope="module", params=[QUEUE_SIZE, COUNT * UNIT_SIZE], ids=["files", "file"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One queue of many messages, 99 bytes each, over files of five units, or in one."""
    root = tmp_path_factory.mktemp("units") / "store"
    messages = (
        MessageExtBrokerInner("T", b"x", properties={"TAGS": "abc"[number % 3]})
        for number in range(COUNT)
    )
    config = replace(CONFIG, mapped_file_size_consume_queue=request.param)
    with MessageStore(root, config, writable=True, create=True) as store:
        for results in store.put_stream(messages, flush=False):
            assert all(result.is_ok for result in results)
    return root


@contextmanager
def changed(root: Path, work: Callable[[Units], Units]) -> Iterator[None]:
    """The store with other units; afterwards it has its own again."""
    files = sorted((root / "consumequeue" / "T" / "0").iterdir())
    before = b"".join(path.read_bytes() for path in files)
    units = np.frombuffer(before, unit_dtype()).copy()
    units[:COUNT] = work(units[:COUNT].copy())
    size = len(before) // len(files)

    def write(data: bytes) -> None:
        for number, path in enumerate(files):
            path.write_bytes(data[number * size :][:size])

    write(units.tobytes())
    try:
        yield
    finally:
        write(before)
        (root / "abort").unlink(missing_ok=True)


def up(units: Units) -> Units:
    """Each unit one place behind its own; the last one is gone."""
    return units[np.r_[0, 0 : COUNT - 1]]


def down_from(first: int) -> Callable[[Units], Units]:
    """Without the unit at ``first``; the last one is there twice."""
    return lambda units: units[np.r_[0:first, first + 1 : COUNT, COUNT - 1]]


def other_codes(units: Units) -> Units:
    units["tags_code"] += 1
    return units


def other_sizes(units: Units) -> Units:
    units["size"][10:] = 7
    return up(units)


WRONG: list[tuple[Callable[[Units], Units], Told]] = [
    (up, [("unit-mismatch", 1, "2999 units from offset 0, size 99, tags code 97")]),
    (other_codes, [("unit-mismatch", 0, "3000 units from offset 0, size 99, tags code 98")]),
    (other_sizes, [("unit-mismatch", 1, "2999 units from offset 0, size 99, tags code 97")]),
]


@pytest.mark.parametrize(("work", "told"), WRONG)
@pytest.mark.parametrize("abort", [False, True])
def test_many_wrong_units_are_one_finding_and_few_looks(
    sound: Path,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[Units], Units],
    told: Told,
    abort: bool,
) -> None:
    """Each unit is looked at a few times, however many are wrong: beside ``abort``, where each of
    them may be one that a kill has torn, too."""
    looked = 0
    original = ConsumeQueue.window

    def window(queue: ConsumeQueue, start: int, count: int) -> Units:
        nonlocal looked
        found = original(queue, start, count)
        looked += len(found)
        return found

    with changed(sound, work):
        if abort:
            (sound / "abort").write_bytes(b"")
        monkeypatch.setattr(ConsumeQueue, "window", window)
        findings, summary = findings_of(sound)
    assert [(f.code, f.queue_offset, f.found) for f in findings if f.severity == ERROR] == told
    assert summary.units == COUNT
    # A window reaches to the end of its file, and what stands shortly before is looked at again.
    assert looked < 40 * COUNT


@pytest.mark.parametrize("first", [0, 1, 4, 5, 6, 63, 64, 65, 70, 1234])
def test_a_gap_is_seen_wherever_files_end(sound: Path, first: int) -> None:
    """Units that stand one place before their own: told once, and the rest is sound there."""
    with changed(sound, down_from(first)):
        findings, _ = findings_of(sound)
    told = [(f.code, f.queue_offset, f.expected) for f in findings]
    assert told[:2] == [
        ("unit-mismatch", first, told[0][2]),
        ("unit-misplaced", first + 1, f"queue offset {first + 1}"),
    ]
    assert len(told) == 2


def test_a_unit_of_a_light_queue_that_stands_elsewhere(tmp_path: Path) -> None:
    """Its record names the queue: it is misplaced, and not of another queue."""
    root = tmp_path / "store"
    names = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        for topic, properties in (("T", names), ("T", names), ("U", {"TAGS": "t"})):
            sent = MessageExtBrokerInner(topic, b"x", properties=properties)
            assert writer.put_message(sent, flush=False).is_ok
    path = root / "consumequeue/%LMQ%a/0" / f"{0:020d}"
    other = (root / "consumequeue/U/0" / f"{0:020d}").read_bytes()[:20]
    with path.open("r+b") as file:
        units = file.read(40)
        file.write(units[:20] + other)
    findings, _ = findings_of(root)
    assert [(f.code, f.queue_offset) for f in findings if f.severity == ERROR] == [
        ("unit-misplaced", 2),
        ("unit-of-other-queue", 3),
    ]


@pytest.mark.parametrize("other", [11, 17, 50])
def test_two_units_that_were_exchanged_are_all_that_is_told(sound: Path, other: int) -> None:
    """A unit in front of its offset shifts the others only if they are in front of theirs, too."""

    def exchanged(units: Units) -> Units:
        units[[10, other]] = units[[other, 10]]
        return units

    with changed(sound, exchanged):
        findings, _ = findings_of(sound)
    assert sorted((one.code, one.queue_offset) for one in findings) == [
        ("unit-mismatch", 10),
        ("unit-misplaced", other),
        ("unit-misplaced", other),
    ]


def test_a_light_queue_whose_record_has_changed_is_to_stay(tmp_path: Path) -> None:
    """The units around that of the record are right. A queue made anew would have all units behind
    it at other offsets, or none of them."""
    root = tmp_path / "store"
    fill_light_queue(root)
    log = min((root / "commitlog").iterdir())
    before = log.read_bytes()
    for old, new, code in (
        (b"QUEUE_OFFSET\1" + b"4", b"QUEUE_OFFSET\1" + b"6", "unit-misplaced"),
        (b"QUEUE_OFFSET\1" + b"0", b"QUEUE_OFFSET\1" + b"7", "unit-misplaced"),
        (b"QUEUE_OFFSET\1" + b"8", b"QUEUE_OFFSXT\1" + b"8", "unit-of-other-queue"),
    ):
        log.write_bytes(before.replace(old, new))
        findings, _ = findings_of(root)
        assert {(one.code, one.advice) for one in findings} == {(code, MULTI_DOUBTED)}
    log.write_bytes(before)
    assert not findings_of(root)[0]


@pytest.mark.parametrize(("queue_offset", "other"), [(5, 7), (5, 1), (0, 8), (14, 12), (14, 16)])
def test_a_record_whose_queue_offset_has_changed_is_what_a_salvage_corrects(
    tmp_path: Path, queue_offset: int, other: int
) -> None:
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        for _ in range(15):
            message = MessageExtBrokerInner("T", b"x", properties={"TAGS": "t"})
            assert store.put_message(message, flush=False).is_ok
        size = store.max_offset // 15
    log = min((root / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(queue_offset * size + 20)
        assert int.from_bytes(file.read(8), "big") == queue_offset
        file.seek(queue_offset * size + 20)
        file.write(other.to_bytes(8, "big"))
    findings, _ = findings_of(root)
    advice = {one.advice for one in findings if one.code == "unit-misplaced"}
    assert advice == {RECORD_DOUBTED}
    # Nothing is told of those behind it.
    assert {one.physical_offset for one in findings} == {queue_offset * size}
