"""The states in which rmqctl may find a store that it is to write to: after a clean stop or a
crash, with a torn end of the log, with files that are lost, or that hold less or more than the log.
Each is made from a sound base."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.constants import MAX_ADDR, MIN_EXT_UNIT_SIZE
from tests.golden_data import copy_tree
from tests.interop.engine import VERSIONS, Row
from tests.interop.recovery import surgery
from tests.interop.recovery.bases import HALF, LONG_TOPIC, OP, RARE, Base, full_index_time
from tests.interop.stores import TOPICS

Make = Callable[[Path, Base, random.Random], None]

#: A store time (ms) that no message has: the year 2100.
FUTURE = 4_102_444_800_000
#: Older than the 72 hours after which a log file expires.
EXPIRED_HOURS = 80


@dataclass(frozen=True)
class State:
    """How a state is made. ``make`` changes a copy of the base of ``family``. With ``settles`` the
    engine is then started and stopped once, and ``then`` makes a further change; with ``expires``
    the engine deletes expired log files, too. ``affected`` is a queue that has lost something."""

    name: str
    make: Make
    family: str = "plain"
    versions: tuple[str, ...] = tuple(VERSIONS)
    affected: tuple[str, int] = (TOPICS[0], 0)
    settles: bool = False
    expires: bool = False
    then: Make | None = None


# --- checkpoints, and the end of a process ---------------------------------------------------


def nothing(root: Path, base: Base, chance: random.Random) -> None:
    """A clean stop."""


def killed(root: Path, base: Base, chance: random.Random) -> None:
    """A crash: the file ``abort`` is there, and the checkpoint has the times of the newest
    message."""
    surgery.write_abort(root, base.version)


def killed_long_behind(root: Path, base: Base, chance: random.Random) -> None:
    """A crash, with a checkpoint from the moment when the log ended at the base's cut."""
    killed(root, base, chance)
    at_cut = base.time_at(base.cut)
    surgery.write_checkpoint(root, at_cut, at_cut, full_index_time(base.early))


def killed_at_once(root: Path, base: Base, chance: random.Random) -> None:
    killed(root, base, chance)
    surgery.write_checkpoint(root, 0, 0, 0)


def killed_without_checkpoint(root: Path, base: Base, chance: random.Random) -> None:
    killed(root, base, chance)
    (root / "checkpoint").unlink()


def killed_in_the_future(root: Path, base: Base, chance: random.Random) -> None:
    killed(root, base, chance)
    surgery.write_checkpoint(root, FUTURE, FUTURE, FUTURE)


# --- the log ---------------------------------------------------------------------------------


def last_record(base: Base, back: int = 0) -> Row:
    return base.records[-1 - back]


def drop_last_unit(root: Path, base: Base) -> None:
    """Takes away the unit of the last record (which is in no index), as if it was never
    dispatched."""
    offset = last_record(base)["physicalOffset"]
    assert surgery.zero_units(root, lambda unit: unit.physical_offset >= offset) == 1


def torn_tail_garbage(root: Path, base: Base, chance: random.Random) -> None:
    """Random bytes from somewhere inside the last record up to the end of the file."""
    drop_last_unit(root, base)
    row = last_record(base)
    start = row["physicalOffset"] + chance.randrange(1, row["size"])
    surgery.write_log(root, start, chance.randbytes(surgery.log_bytes(root) - start))


def torn_tail_zeros(root: Path, base: Base, chance: random.Random) -> None:
    drop_last_unit(root, base)
    row = last_record(base)
    surgery.zero_log(root, row["physicalOffset"] + chance.randrange(1, row["size"]))


def zeroed_tail(root: Path, base: Base, chance: random.Random) -> None:
    """Zeros from the middle of the last record but one, which has its unit and its index items."""
    drop_last_unit(root, base)
    row = last_record(base, 1)
    surgery.zero_log(root, row["physicalOffset"] + row["size"] // 2)


def zeroed_tail_bare(root: Path, base: Base, chance: random.Random) -> None:
    """Zeros from the middle of the last record, which has neither a unit nor index items."""
    drop_last_unit(root, base)
    row = last_record(base)
    surgery.zero_log(root, row["physicalOffset"] + row["size"] // 2)


def last_log_file_lost(root: Path, base: Base, chance: random.Random) -> None:
    surgery.log_files(root)[-1].unlink()


def queue_ahead(root: Path, base: Base, chance: random.Random) -> None:
    """The last records are gone from the log, while their units and index items are there."""
    surgery.zero_log(root, last_record(base, chance.randint(4, 9))["physicalOffset"])


# --- queues ----------------------------------------------------------------------------------


def queues_behind(root: Path, base: Base, chance: random.Random) -> None:
    """No queue has a unit of any record behind the cut."""
    surgery.zero_units(root, lambda unit: unit.physical_offset >= base.cut)


def back_to_the_cut(root: Path, base: Base, chance: random.Random) -> None:
    """Queues and index as they were when the log ended at the cut."""
    for name in ("consumequeue", "consumequeue_ext", "index"):
        replace(root, base, name)


def replace(root: Path, base: Base, name: str) -> None:
    """Puts a directory back as it was when the log ended at the cut."""
    shutil.rmtree(root / name, ignore_errors=True)
    if (base.early / name).exists():
        copy_tree(base.early / name, root / name)


def one_queue_behind(root: Path, base: Base, chance: random.Random) -> None:
    lost = surgery.zero_units(root, lambda u: u.topic == RARE and u.physical_offset >= base.cut)
    assert lost > 3


def half_queues_behind(root: Path, base: Base, chance: random.Random) -> None:
    topics = (HALF, OP)
    surgery.zero_units(root, lambda u: u.topic in topics and u.physical_offset >= base.cut)


def last_queue_file(root: Path) -> Path:
    return max((root / "consumequeue" / TOPICS[0] / "0").iterdir())


def last_queue_file_empty(root: Path, base: Base, chance: random.Random) -> None:
    os.truncate(last_queue_file(root), 0)


def last_queue_file_half(root: Path, base: Base, chance: random.Random) -> None:
    os.truncate(last_queue_file(root), last_queue_file(root).stat().st_size // 2)


def last_queue_file_zeroed(root: Path, base: Base, chance: random.Random) -> None:
    path = last_queue_file(root)
    surgery.write(path, 0, bytes(path.stat().st_size))


def queue_lost(root: Path, base: Base, chance: random.Random) -> None:
    shutil.rmtree(root / "consumequeue" / TOPICS[0] / "0")


def queues_lost(root: Path, base: Base, chance: random.Random) -> None:
    shutil.rmtree(root / "consumequeue")


def light_queues_lost(root: Path, base: Base, chance: random.Random) -> None:
    lost = list((root / "consumequeue").glob("%LMQ%*"))
    assert lost
    for path in lost:
        shutil.rmtree(path)


# --- index -----------------------------------------------------------------------------------


def index_behind(root: Path, base: Base, chance: random.Random) -> None:
    replace(root, base, "index")


def index_deleted(root: Path, base: Base, chance: random.Random) -> None:
    shutil.rmtree(root / "index")


def write_index_count(root: Path, more: int) -> None:
    path = surgery.index_files(root)[-1]
    header = surgery.index_header(path)
    count = header._replace(index_count=header.index_count + more)
    surgery.write(path, 0, surgery.INDEX_HEADER.pack(*count))


def index_count_big(root: Path, base: Base, chance: random.Random) -> None:
    """The header counts items that were never written."""
    write_index_count(root, 40)


def index_count_small(root: Path, base: Base, chance: random.Random) -> None:
    """The header counts fewer items than there are."""
    write_index_count(root, -chance.randint(5, 15))


def index_header_garbage(root: Path, base: Base, chance: random.Random) -> None:
    path = surgery.index_files(root)[-1]
    surgery.write(path, 0, chance.randbytes(surgery.INDEX_HEADER.size))


# --- the queues' extension -------------------------------------------------------------------


def ext_ahead(root: Path, base: Base, chance: random.Random) -> None:
    """The extension has units that no queue points to."""
    replace(root, base, "consumequeue")
    replace(root, base, "index")


def ext_behind(root: Path, base: Base, chance: random.Random) -> None:
    """Queues point to units that the extension does not have."""
    replace(root, base, "consumequeue_ext")


def longer_units_behind(root: Path, base: Base, chance: random.Random) -> None:
    """Puts other old bytes behind the end at which the engine has cut off an extension: units with
    bit maps of filters, which have another length than the units that will overwrite them."""
    newest: dict[Path, int] = {}
    for unit in surgery.units(root):
        if unit.tags_code <= MAX_ADDR:
            where = root / "consumequeue_ext" / unit.topic / str(unit.queue_id)
            newest[where] = unit.tags_code + (1 << 63)
    assert newest
    for directory, offset in newest.items():
        size = base.values["mappedFileSizeConsumeQueueExt"]
        position = offset % size + MIN_EXT_UNIT_SIZE
        old = surgery.ext_units(size - position, chance)
        surgery.write(directory / f"{offset - offset % size:020d}", position, old)


def longer_units_behind_killed(root: Path, base: Base, chance: random.Random) -> None:
    longer_units_behind(root, base, chance)
    killed(root, base, chance)


# --- retention -------------------------------------------------------------------------------


def first_files_expired(root: Path, base: Base, chance: random.Random) -> None:
    expire(root, 3)


def expire(root: Path, count: int) -> None:
    """Makes the log's first ``count`` files old enough to be deleted, and the others not."""
    now = time.time()
    for number, path in enumerate(surgery.log_files(root)):
        age = 3600 * EXPIRED_HOURS if number < count else 0
        os.utime(path, (now - age, now - age))


# --- all of them -----------------------------------------------------------------------------


def _both(name: str, make: Make, end: Make = killed, /, **more: Any) -> Iterator[State]:
    """Two states: one after a clean stop, and one after a crash, which ``end`` makes of it."""

    def crashed(root: Path, base: Base, chance: random.Random) -> None:
        make(root, base, chance)
        end(root, base, chance)

    yield State(name, make, **more)
    yield State(f"{name}-abort", crashed, **more)


def _states() -> Iterator[State]:
    yield State("clean", nothing)
    yield State("abort", killed)
    yield State("abort-old-checkpoint", killed_long_behind)
    yield State("abort-zero-checkpoint", killed_at_once)
    yield State("abort-no-checkpoint", killed_without_checkpoint)
    yield State("abort-future-checkpoint", killed_in_the_future)
    yield from _both("torn-tail-garbage", torn_tail_garbage)
    yield from _both("torn-tail-zeros", torn_tail_zeros)
    yield from _both("zeroed-tail", zeroed_tail)
    yield from _both("zeroed-tail-bare", zeroed_tail_bare)
    yield from _both("last-log-file-lost", last_log_file_lost)
    yield from _both("queue-ahead", queue_ahead)
    yield from _both("queues-behind", back_to_the_cut, killed_long_behind)
    yield from _both("queues-far-behind", queues_behind, killed_long_behind, family="big")
    rare: dict[str, Any] = {"affected": (RARE, 0)}
    yield from _both("one-queue-behind", one_queue_behind, killed_long_behind, **rare)
    yield from _both(
        "one-queue-far-behind", one_queue_behind, killed_long_behind, family="big", **rare
    )
    yield from _both("half-queues-behind", half_queues_behind, killed_long_behind)
    yield from _both("last-queue-file-empty", last_queue_file_empty)
    yield from _both("last-queue-file-half", last_queue_file_half)
    yield from _both("last-queue-file-zeroed", last_queue_file_zeroed)
    yield from _both("queue-lost", queue_lost)
    yield from _both("queues-lost", queues_lost)
    yield from _both("index-behind", index_behind)
    yield from _both("index-deleted", index_deleted)
    yield from _both("index-count-big", index_count_big)
    yield from _both("index-count-small", index_count_small)
    yield from _both("index-header-garbage", index_header_garbage)
    yield from _both("ext", nothing, family="ext")
    yield from _both("ext-ahead", ext_ahead, killed_long_behind, family="ext")
    yield from _both("ext-behind", ext_behind, killed_long_behind, family="ext")
    # When the engine cuts something off, the old bytes stay in the files behind the new end.
    old_bytes: dict[str, Any] = {"family": "ext", "settles": True}
    yield State("ext-old-bytes", last_log_file_lost, **old_bytes, then=longer_units_behind)
    yield State(
        "ext-old-bytes-abort", last_log_file_lost, **old_bytes, then=longer_units_behind_killed
    )
    expired: dict[str, Any] = {"settles": True, "expires": True}
    yield State("oldest-expired", first_files_expired, **expired)
    yield State("oldest-expired-abort", first_files_expired, **expired, then=killed)
    yield State(
        "oldest-expired-abort-old-checkpoint",
        first_files_expired,
        **expired,
        then=killed_at_once,
    )
    yield from _both("two-directories", nothing, family="two")
    yield from _both("two-directories-zeroed-tail", zeroed_tail, family="two")
    yield from _both("two-directories-file-lost", last_log_file_lost, family="two")
    yield from _both("light", nothing, family="light")
    yield from _both("light-queues-behind", back_to_the_cut, killed_long_behind, family="light")
    light: dict[str, Any] = {"family": "light", "affected": ("%LMQ%one", 0)}
    yield from _both("light-queues-lost", light_queues_lost, **light)
    yield from _both(
        "light-queues-lost-long-behind", light_queues_lost, killed_long_behind, **light
    )
    v2: dict[str, Any] = {
        "family": "long",
        "versions": ("5.3.3",),
        "affected": (LONG_TOPIC, 0),
    }
    yield from _both("later-records", nothing, **v2)
    yield from _both("later-records-zeroed-tail", zeroed_tail, **v2)
    yield from _both("later-records-behind", back_to_the_cut, killed_long_behind, **v2)


STATES = {state.name: state for state in _states()}
