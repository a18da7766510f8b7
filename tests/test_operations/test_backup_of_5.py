"""Backups of a store that a broker of 5.x is writing: its batch queues, and its timer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from formats import constants
from formats.constants import TIMER_TOPIC
from rmqctl.engine.files import paths
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.queue.batchqueue import BATCH_UNIT
from rmqctl.engine.queue.consumequeue import UNIT
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.services.timer import Timer
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.timer.timercheck import TimerCheckpoint, encode
from rmqctl.engine.timer.timerlog import BLANK, BLANK_MAGIC, UNIT_SIZE
from rmqctl.engine.timer.timerlog import UNIT as TIMER_UNIT
from rmqctl.engine.timer.wheel import SLOT, SLOT_SIZE, WHEEL_SIZE, TimerWheel
from rmqctl.operations.backup import create as creating
from rmqctl.operations.backup import listing as listings
from rmqctl.operations.backup import source
from rmqctl.operations.backup.create import Created, Wanted, create
from rmqctl.operations.backup.listing import Found, Opener, SourceFile
from rmqctl.operations.backup.restore import plan_restore, restore
from rmqctl.operations.verify.timer import check_timer
from tests import golden_data
from tests.test_safety.support import TIME, Clock, assert_clean, small_config

TOPIC = "BatchTopic"
SAID = json.loads((golden_data.LATER / "batch-queues.json").read_text("utf-8"))
BATCHES = parse_broker_conf("".join(f"{name}={value}\n" for name, value in SAID["config"].items()))

#: What a :class:`Replay` does not write.
NOT_THERE = ("index-missing", "checkpoint-missing")


def live(
    root: Path, output: Path, happens: Callable[[], None], config: MessageStoreConfig
) -> Created:
    """A backup while somebody writes: something happens with each piece that is copied."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(creating, "is_locked", lambda root: True)
        patch.setattr(source, "_DISPATCH_SECONDS", 0.001)
        return create(Wanted(root, config, str(output)), lambda done, total: happens())


def restored(backup: Path, output: Path) -> Path:
    restore(plan_restore([str(backup)], output))
    return output


class Replay:
    """Writes a store again as its broker has written it, record by record: the log, then the units.
    It has no index."""

    def __init__(self, whole: Path, root: Path) -> None:
        self._whole, self._root = whole, root
        with MessageStore(whole, BATCHES) as store:
            walked = [one for one in store.commit_log.walk() if isinstance(one, Record)]
        self._ends = [one.physical_offset + one.total_size for one in walked]
        self.shown = 0
        self.end = 0

    def show(self, records: int) -> None:
        """Appends so many records more, if they are there, and their units."""
        self.append(records)
        self.dispatch()

    def append(self, records: int) -> None:
        self.shown = min(self.shown + records, len(self._ends))
        self.end = self._ends[self.shown - 1]
        for path in (self._whole / "commitlog").iterdir():
            start = int(path.name)
            if start < self.end:
                self._write(path, path.read_bytes()[: self.end - start])

    def dispatch(self) -> None:
        for name, layout in ((paths.CONSUME_QUEUE, UNIT), (paths.BATCH_CONSUME_QUEUE, BATCH_UNIT)):
            for path in (self._whole / name).glob("*/*/*"):
                self._show_units(path, layout.size)

    def _show_units(self, path: Path, size: int) -> None:
        data = path.read_bytes()
        units = [data[at : at + size] for at in range(0, len(data), size)]
        shown = [one for one in units if int.from_bytes(one[:8], "big") < self.end and any(one)]
        if shown:
            self._write(path, b"".join(shown))

    def _write(self, path: Path, data: bytes) -> None:
        target = self._root / path.relative_to(self._whole)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("r+b" if target.exists() else "wb") as file:
            file.truncate(path.stat().st_size)
            file.write(data)


@pytest.fixture
def replay(golden_directory: Path, tmp_path: Path) -> Replay:
    whole = golden_data.unpacked("batch-queues", golden_directory, golden_data.LATER)
    made = Replay(whole, tmp_path / "store")
    made.show(20)
    return made


@pytest.mark.parametrize("kind", ["full", "full.tar.zst"])
@pytest.mark.parametrize("at_a_time", [1, 5])
def test_batch_queues_are_cut_where_the_log_is(
    replay: Replay, tmp_path: Path, kind: str, at_a_time: int
) -> None:
    before = replay.end
    made = live(tmp_path / "store", tmp_path / kind, lambda: replay.show(at_a_time), BATCHES)
    head = made.manifest.head
    assert head.physical_offset is not None and before <= head.physical_offset < replay.end
    assert head.dispatched_offset == head.physical_offset
    new = restored(tmp_path / kind, tmp_path / "new")
    assert_clean(new, BATCHES, *NOT_THERE)
    units = 0
    for path in (new / paths.BATCH_CONSUME_QUEUE).glob("*/*/*"):
        data = path.read_bytes()
        assert len(data) == BATCHES.mapper_file_size_batch_consume_queue and data.strip(b"\0")
        stored = [one for one in BATCH_UNIT.iter_unpack(data) if any(one)]
        assert all(offset + size <= head.physical_offset for offset, size, *_ in stored)
        units += len(stored)
    with MessageStore(new, BATCHES) as store:
        assert store.max_offset == head.physical_offset
        walked = [one for one in store.commit_log.walk() if isinstance(one, Record)]
    assert units == sum(one.topic == TOPIC for one in walked) > 0


def test_units_of_batch_queues_that_are_not_there_yet_are_waited_for(
    replay: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the end the log has records of batch queues alone."""
    replay.append(3)
    waited = 0

    def sleep(seconds: float) -> None:
        nonlocal waited
        waited += 1
        if waited == 3:
            replay.dispatch()

    monkeypatch.setattr("rmqctl.operations.backup.source.time.sleep", sleep)
    made = live(tmp_path / "store", tmp_path / "full", lambda: None, BATCHES)
    assert waited == 3 and made.manifest.head.dispatched_offset == replay.end
    assert_clean(restored(tmp_path / "full", tmp_path / "new"), BATCHES, *NOT_THERE)


def test_batch_queues_of_a_dispatch_that_stands_still_are_cut_there(
    replay: Replay, tmp_path: Path
) -> None:
    """It goes on when the end of the log and that of the units are noted."""
    dispatched = replay.end
    replay.append(9)
    pieces = 0

    def happens() -> None:
        nonlocal pieces
        pieces += 1
        replay.dispatch()

    made = live(tmp_path / "store", tmp_path / "full", happens, BATCHES)
    head = made.manifest.head
    assert pieces and (head.dispatched_offset, head.physical_offset) == (dispatched, replay.end)
    new = restored(tmp_path / "full", tmp_path / "new")
    assert_clean(new, BATCHES, *NOT_THERE, "not-dispatched")


def test_half_a_unit_of_a_batch_queue_is_not_copied(replay: Replay, tmp_path: Path) -> None:
    """A unit that is being written, of which some bytes are there: its offset seems to lie before
    the end of the log."""
    path = max((tmp_path / "store" / paths.BATCH_CONSUME_QUEUE / TOPIC / "0").iterdir())
    data = path.read_bytes()
    end = -(-len(data.rstrip(b"\0")) // BATCH_UNIT.size) * BATCH_UNIT.size
    assert end < len(data)
    path.write_bytes(data[:end] + replay.end.to_bytes(8, "big")[:7] + bytes(len(data) - end - 7))
    live(tmp_path / "store", tmp_path / "full", lambda: None, BATCHES)
    new = restored(tmp_path / "full", tmp_path / "new")
    assert (new / path.relative_to(tmp_path / "store")).read_bytes() == data
    assert_clean(new, BATCHES, *NOT_THERE)


TIMED = small_config()
#: A file of the timer log has nine units and a blank.
TIMER_FILE = 520
#: The read clock of the timer (ms): all messages are for later.
READ = TIME + 1_000_000


class TimedBroker:
    """Puts timed messages, and then each into the timer log and the wheel
    (``TimerMessageStore#doEnqueue``). ``flush`` writes what only the next flush of a broker would:
    the wheel, and the check point with the messages that are counted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = WritableStore(root, TIMED, create=True, clock=Clock(TIME))
        self.put = self.enqueued = self.counted = 0
        self.end = self.flushed = 0
        #: Slot time (s) → first and last position, and messages less recalls.
        self.slots: dict[int, tuple[int, int, int]] = {}
        self._waiting: list[tuple[int, int, int, bool]] = []
        (root / paths.TIMER_LOG).mkdir()
        (root / "config").mkdir()
        with (root / paths.TIMER_WHEEL).open("wb") as file:
            file.truncate(WHEEL_SIZE)
        self._wheel = (root / paths.TIMER_WHEEL).open("r+b", buffering=0)
        self.flush()

    def send(self, count: int) -> None:
        """Half of the messages go into three slots, each other one into a new slot; every eighth
        is a recall."""
        for number in range(self.put, self.put + count):
            out = READ + 1000 * (number % 3 if number % 2 else 10 + number)
            properties = {"REAL_TOPIC": "t", "REAL_QID": "0", "TIMER_OUT_MS": str(out)}
            properties["UNIQ_KEY"] = f"u{number}"
            if is_recall := number % 8 == 5:
                properties["TIMER_DEL_UNIQKEY"] = f"nobody{number}"
            done = self.store.put_message(
                MessageExtBrokerInner(TIMER_TOPIC, b"x" * 40, 0, properties=properties)
            )
            assert done.is_ok and done.append is not None
            place = done.append.wrote_offset, done.append.wrote_bytes
            self._waiting.append((*place, out, is_recall))
        self.put += count

    def enqueue(self) -> None:
        """Puts all that was sent into timer log and wheel."""
        for offset, size, out, is_recall in self._waiting[self.enqueued :]:
            if self.end % TIMER_FILE + UNIT_SIZE + 16 > TIMER_FILE:
                left = TIMER_FILE - self.end % TIMER_FILE
                self.write(BLANK.pack(left, 0, BLANK_MAGIC))
                self.end += left
            time = out // 1000
            first, last, count = self.slots.get(time, (self.end, -1, 0))
            magic = 1 | constants.TIMER_MAGIC_DELETE * is_recall
            write = READ - 1000
            self.write(
                TIMER_UNIT.pack(UNIT_SIZE, last, magic, write, out - write, offset, size, 0, 0)
            )
            self.slots[time] = first, self.end, count + (-1 if is_recall else 1)
            self.end += UNIT_SIZE
        self.enqueued = len(self._waiting)

    def write(self, data: bytes) -> None:
        """Writes at the end of the timer log, but does not move that."""
        path = self.root / paths.TIMER_LOG / f"{self.end // TIMER_FILE * TIMER_FILE:020d}"
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(TIMER_FILE)
            file.seek(self.end % TIMER_FILE)
            file.write(data)

    def flush(self, counted: int | None = None) -> None:
        self.counted = self.enqueued if counted is None else counted
        for time, (first, last, count) in self.slots.items():
            self._wheel.seek(time % constants.TIMER_SLOTS * SLOT_SIZE)
            self._wheel.write(SLOT.pack(time, first, last, count, 0))
        check = TimerCheckpoint(READ, self.flushed, self.counted, self.counted)
        (self.root / paths.TIMER_CHECKPOINT).write_bytes(encode(check))
        self.flushed = self.end

    def go_on(self) -> None:
        self.send(3)
        self.enqueue()
        self.flush()

    def close(self) -> None:
        self.store.close()
        self._wheel.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TimedBroker]:
    made = TimedBroker(tmp_path / "store")
    for _ in range(9):
        made.go_on()
    yield made
    made.close()


def judge_timer(new: Path) -> int:
    """A start on the copy has each message of the log once: in the wheel, or in the queue behind
    what it takes for done; nothing leads behind the end of the timer log. Returns how many are in
    the wheel."""
    found = [(one.code, one.found) for one in check_timer(new, TIMED, READ)]
    assert {code for code, _ in found} <= {"timer-behind"}, found
    with MessageStore(new, TIMED) as store:
        timer = Timer(store)
        walked = [one for one in store.commit_log.walk() if isinstance(one, Record)]
        every = [one for one in walked if one.topic == TIMER_TOPIC]
        units = list(timer.log.units())
        first = timer.enqueue_offset()
        assert [one.physical_offset for one in units] == [
            one.physical_offset for one in every[:first]
        ]
        wheel = TimerWheel(new / paths.TIMER_WHEEL)
        held = 0
        for slot in wheel.slots():
            chain = timer.log.chain(slot.last_position, slot.time, 1000)
            assert slot.is_in_place and not chain.broken
            assert slot.first_position == chain.positions[-1]
            recalls = sum(unit.is_delete for unit in timer.log.units_at(chain.positions))
            assert slot.messages == len(chain.positions) - 2 * recalls
            held += len(chain.positions)
        assert held == len(units)
        assert timer.checkpoint.flushed_position <= timer.log.closed_end
        timer.close()
    assert_clean(new, TIMED)
    return first


@pytest.mark.parametrize("kind", ["full", "full.tar.zst"])
@pytest.mark.parametrize("moments", [1, 4])
def test_the_timer_is_cut_at_its_check_point(
    broker: TimedBroker, tmp_path: Path, kind: str, moments: int
) -> None:
    counted, pieces = broker.counted, 0

    def happens() -> None:
        nonlocal pieces
        pieces += 1
        if pieces % moments == 0:
            broker.go_on()

    made = live(broker.root, tmp_path / kind, happens, TIMED)
    end = made.manifest.head.physical_offset
    assert made.manifest.head.is_live and end is not None and end < broker.store.max_offset
    new = restored(tmp_path / kind, tmp_path / "new")
    assert counted <= judge_timer(new) < broker.counted
    # A broker goes on in the last file.
    assert max((new / paths.TIMER_LOG).iterdir()).stat().st_size == TIMER_FILE


@pytest.mark.parametrize("behind", range(12))
def test_messages_that_are_not_counted_yet_are_enqueued_again(
    broker: TimedBroker, tmp_path: Path, behind: int
) -> None:
    """The timer log and the wheel are flushed, and the check point is behind them, by some units
    and by a file."""
    broker.flush(broker.enqueued - behind)
    broker.flush(broker.enqueued - behind)
    live(broker.root, tmp_path / "full", lambda: None, TIMED)
    new = restored(tmp_path / "full", tmp_path / "new")
    assert judge_timer(new) == broker.enqueued - behind


def test_a_timer_that_counts_nothing_is_empty(broker: TimedBroker, tmp_path: Path) -> None:
    """As a start finds it without a check point: it enqueues everything."""
    (broker.root / paths.TIMER_CHECKPOINT).unlink()
    live(broker.root, tmp_path / "full", lambda: None, TIMED)
    new = restored(tmp_path / "full", tmp_path / "new")
    with MessageStore(new, TIMED) as store:
        timer = Timer(store)
        assert list(timer.log.units()) == [] and timer.enqueue_offset() == 0
        timer.close()
    assert len(TimerWheel(new / paths.TIMER_WHEEL)) == 0


def test_half_a_unit_and_half_a_slot_are_not_copied(broker: TimedBroker, tmp_path: Path) -> None:
    """A unit of which the last bytes are not there yet, and a slot that is half of a flush."""
    counted = broker.counted
    broker.send(2)
    broker.enqueue()
    (new, *_), (old, *_) = sorted(broker.slots.items(), reverse=True)[:: len(broker.slots) - 1]
    with (broker.root / paths.TIMER_WHEEL).open("r+b") as wheel:
        for time, start, end in ((new, 0, 21), (old, 16, 22)):
            slot = SLOT.pack(time, broker.end, broker.end << 24, 1, 0)
            wheel.seek(time % constants.TIMER_SLOTS * SLOT_SIZE + start)
            wheel.write(slot[start:end])
    broker.send(1)
    broker.write(TIMER_UNIT.pack(UNIT_SIZE, -1, 1, READ, 5000, 256, 99, 0, 0)[:34])
    live(broker.root, tmp_path / "full", lambda: None, TIMED)
    assert judge_timer(restored(tmp_path / "full", tmp_path / "new")) == counted


def test_the_oldest_files_of_the_timer_log_go_while_it_is_copied(
    broker: TimedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As retention takes them (``MappedFileQueue#deleteExpiredFileByOffsetForTimerLog``): what is
    copied has no gap."""
    for _ in range(12):
        broker.go_on()
    real, opened = listings.found, [""]

    def found(file: SourceFile, *opener: Opener) -> Found | None:
        opened.append(file.path)
        return real(file, *opener)

    monkeypatch.setattr(source, "found", found)

    def happens() -> None:
        files = sorted((broker.root / paths.TIMER_LOG).iterdir())
        if opened[-1].startswith(paths.TIMER_LOG) and len(files) > 3:
            files[0].unlink()
            files[1].unlink()

    live(broker.root, tmp_path / "full", happens, TIMED)
    new = restored(tmp_path / "full", tmp_path / "new")
    kept = sorted(int(path.name) for path in (new / paths.TIMER_LOG).iterdir())
    assert kept[0] > 0 and kept == list(range(kept[0], broker.end, TIMER_FILE))


def test_a_wheel_of_a_wrong_length_is_copied_as_it_is(broker: TimedBroker, tmp_path: Path) -> None:
    """No broker starts with it, and the copy shall not hide that."""
    broker.close()
    (broker.root / paths.TIMER_WHEEL).write_bytes(b"\x01" * 99)
    live(broker.root, tmp_path / "full", lambda: None, TIMED)
    new = restored(tmp_path / "full", tmp_path / "new")
    assert (new / paths.TIMER_WHEEL).read_bytes() == b"\x01" * 99
