"""salvage: every record that was not hit is where it was, and what stands between them is sound."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from formats import constants
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.engine.queue.queuetable import ConsumeQueueTableReader
from rmqctl.engine.record.filler import FILLER_TOPICS, LEAST_FILLER
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.scan.tuning import ScanTuning
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.mend.salvage import Salvage, plan_salvage, write_salvage
from rmqctl.operations.mend.salvagedoubts import Doubts
from rmqctl.operations.mend.salvagerows import Report
from rmqctl.operations.mend.salvageunits import windows
from rmqctl.operations.verify import ERROR, Finding, verify
from tests import golden_data
from tests.conftest import Golden
from tests.test_cli.conftest import CONFIG, store

__all__ = ["store"]  # A fixture of other files.

FILE = CONFIG.mapped_file_size_commit_log
#: Golden cases in which messages are lost, with how many; without the other copy.
LOST = {"flip-body-early": 1, "flip-body-early-abort": 1, "flip-body-late": 1, "hole": 115}
LOST |= {"short-last-file": 48}
#: Those that need no other copy: the record's own header was hit.
MENDED = {"bad-magic-late": 1, "bad-size-late": 1}

Bytes = dict[int, bytes]


def records_of(root: Path, config: MessageStoreConfig) -> Bytes:
    """Physical offset → the bytes of the record, of all but fillers."""
    with MessageStore(root, config) as opened:
        return {
            entry.physical_offset: mapped.read(position, entry.total_size)
            for entry in opened.commit_log.walk()
            if isinstance(entry, Record) and entry.topic_bytes not in FILLER_TOPICS
            for mapped, position in [opened.commit_log.locate(entry.physical_offset)]
        }


def topic_of(root: Path, physical_offset: int) -> bytes:
    with MessageStore(root, CONFIG) as opened:
        return opened.look_message_by_offset(physical_offset).topic_bytes


def places_of(root: Path, config: MessageStoreConfig) -> set[tuple[str, int, int, int]]:
    """(topic, queue id, queue offset, physical offset) of every message that a queue has."""
    with MessageStore(root, config) as opened:
        return {
            (where.topic, where.queue_id, queue_offset, unit.physical_offset)
            for where in opened.queues.directories()
            for queue in [opened.consume_queue(where.topic, where.queue_id)]
            if queue is not None
            for queue_offset, unit in queue.units(0, queue.max_offset)
            if not unit.is_pre_blank
        }


def salvage(
    root: Path,
    config: MessageStoreConfig,
    output: Path,
    other: Path | None = None,
    *,
    placeholders: bool = False,
) -> Report:
    wanted = Salvage(root, config, output, other, placeholders)
    with closing(plan_salvage(wanted)) as plan:
        report = Report(plan)
        list(report.planned())
        done = write_salvage(plan)
        list(report.numbering())
        report.summary(done)
        return report


def findings(root: Path, config: MessageStoreConfig) -> list[Finding]:
    return [found for found in verify(root, config) if isinstance(found, Finding)]


def errors(root: Path, config: MessageStoreConfig) -> list[Finding]:
    """What is wrong, but for records that were hit where a broker reads them all the same."""
    every = findings(root, config)
    readable = ("properties-malformed", "message-not-decodable")
    return [one for one in every if one.severity == ERROR and one.code not in readable]


@pytest.mark.parametrize("case", golden_data.DAMAGE_CASES)
def test_golden_damage(case: str, golden: Golden, tmp_path: Path) -> None:
    damage = golden_data.damage_case(case)
    base, config = golden(damage["base"]), golden_data.broker_conf(damage["base"])
    root = golden_data.copy_tree(base, tmp_path / "store")
    golden_data.apply_damage(root, damage["ops"])
    before, state = records_of(base, config), golden_data.state(root)
    expired = LEAST_FILLER * (case == "first-files-expired")
    for number, (other, placeholders) in enumerate(
        [(None, False), (None, True), (base, False)],
    ):
        output = tmp_path / str(number)
        report = salvage(root, config, output, other, placeholders=placeholders)
        after = records_of(output, config)
        lost = 0 if other else LOST.get(case, 0)
        assert report.lost == lost and report.is_complete == (not lost)
        same = {at for at, data in after.items() if before.get(at) == data}
        if case == "torn-tail":
            before = {at: data for at, data in before.items() if at in same}
        elif not expired:
            assert len(before) - len(same) == lost
        if case in MENDED and not other:
            assert report.restored == MENDED[case]
        places = places_of(base, config)
        kept = {one for one in places if one[3] in same}
        if case != "torn-tail":
            assert places_of(output, config) == (places if placeholders and not expired else kept)
        assert not errors(output, config)
        assert not (output / "abort").exists() and not (output / "rmqctl-salvage.json").exists()
    assert golden_data.state(root) == state


def _hit(chance: random.Random, root: Path) -> list[tuple[int, int]]:
    """Damages the log; the ranges of it that were hit."""
    files = sorted((root / "commitlog").iterdir())
    path = chance.choice(files)
    start = int(path.name)
    kind = chance.choice(("bit", "bit", "byte", "zeros", "field", "lost", "short", "swapped"))
    data = bytearray(path.read_bytes())
    written = [at for at, byte in enumerate(data) if byte] or [0]
    at = chance.choice(written)
    if kind == "lost" and path != files[0]:
        path.unlink()
        return [(start, start + FILE)]
    if kind == "short" and path == files[-1]:
        path.write_bytes(data[:at])
        return [(start + at, start + FILE)]
    if kind == "swapped" and len(files) > 2:
        one, two = chance.sample(files, 2)
        first, second = one.read_bytes(), two.read_bytes()
        one.write_bytes(second)
        two.write_bytes(first)
        return [(int(file.name), int(file.name) + FILE) for file in (one, two)]
    length = {"bit": 1, "byte": 1, "zeros": chance.choice((16, 256, 512)), "field": 4}.get(kind, 8)
    if kind == "bit":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "zeros":
        data[at : at + length] = bytes(len(data[at : at + length]))
    else:
        data[at : at + length] = chance.randbytes(len(data[at : at + length]))
    path.write_bytes(data)
    return [(start + at, start + at + length)]


@pytest.mark.parametrize("number", range(12))
def test_random_faults_cost_what_they_hit(
    number: int, store: Path, tmp_path: Path, chance: random.Random
) -> None:
    before, places = records_of(store, CONFIG), places_of(store, CONFIG)
    root = golden_data.copy_tree(store, tmp_path / "damaged")
    faults = chance.choice((1, 1, 3))
    hits = [hit for _ in range(faults) for hit in _hit(chance, root)]
    if chance.random() < 0.5:
        (root / "abort").touch()
    has_queues = chance.random() < 0.8
    if not has_queues:
        golden_data.apply_damage(root, [{"op": "delete", "path": "consumequeue"}])
    state = golden_data.state(root)
    spared = {
        at: data
        for at, data in before.items()
        if not any(at < end and start < at + len(data) for start, end in hits)
    }
    for placeholders in (False, True):
        output = tmp_path / f"new-{placeholders}"
        report = salvage(root, CONFIG, output, placeholders=placeholders)
        after = records_of(output, CONFIG)
        assert {at: after.get(at) for at in spared} == spared, hits
        if has_queues:
            assert {one for one in places if one[3] in spared} <= places_of(output, CONFIG)
        # Where no queue proves its topic, a record that was hit there stays as it is, and is named.
        unproven = {
            (at, "topic-not-allowed")
            for at in after
            if not has_queues and at not in spared and {*topic_of(output, at)} & {*b"/\0"}
        }
        assert {(one.physical_offset, one.code) for one in errors(output, CONFIG)} == unproven
        if len(after) < len(before) and has_queues and not placeholders:
            assert report.lost and not report.is_complete
        if placeholders and has_queues and all(end - start < FILE for start, end in hits):
            assert {one[:3] for one in places_of(output, CONFIG)} == {one[:3] for one in places}
    output = tmp_path / "whole"
    report = salvage(root, CONFIG, output, store)
    if faults == 1 and (has_queues or max(before) in spared):
        # Without queues nothing tells that the log has lost its end.
        assert set(records_of(output, CONFIG)) == set(before), hits
        assert report.lost == 0 or not has_queues
    assert golden_data.state(root) == state


def patched(root: Path, physical_offset: int, data: bytes) -> None:
    start = physical_offset // FILE * FILE
    with (root / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(physical_offset - start)
        file.write(data)


#: Fields that queue unit and body prove, at their positions: what was stored comes back.
HEADER = {
    "total_size": (0, 4),
    "magic_code": (4, 4),
    "queue_id": (12, 4),
    "queue_offset": (20, 8),
    "physical_offset": (28, 8),
    "host-kinds": (38, 2),
    "body_length": (84, 4),
}


@pytest.mark.parametrize("name", [*HEADER, "topic_length", "topic", "properties_length"])
def test_a_header_is_put_right(name: str, store: Path, tmp_path: Path) -> None:
    before = records_of(store, CONFIG)
    offset = sorted(before)[20]
    with MessageStore(store, CONFIG) as opened:
        record = opened.look_message_by_offset(offset)
    tail = 88 + record.body_length
    positions = {
        "topic_length": (tail, 1),
        "topic": (tail + 2, 2),
        "properties_length": (tail + 1 + len(record.topic_bytes), 2),
    }
    position, length = (HEADER | positions)[name]
    wrong = b"\x00\x30" if name == "host-kinds" else b"\x7f" * length
    patched(store, offset + position, wrong)
    report = salvage(store, CONFIG, tmp_path / "new")
    assert (report.restored, report.lost, report.is_complete) == (1, 0, True)
    after = records_of(tmp_path / "new", CONFIG)
    if name == "host-kinds":
        # Its other flags are said nowhere else.
        kinds = constants.BORNHOST_V6_FLAG | constants.STOREHOSTADDRESS_V6_FLAG
        assert after[offset][39] & kinds == 0
        after[offset] = before[offset]
    assert after == before


@pytest.mark.parametrize("name", ["total_size", "magic_code"])
def test_without_queues_the_neighbours_prove_a_header(
    name: str, store: Path, tmp_path: Path
) -> None:
    before = records_of(store, CONFIG)
    position, length = HEADER[name]
    patched(store, sorted(before)[20] + position, b"\x7f" * length)
    golden_data.apply_damage(store, [{"op": "delete", "path": "consumequeue"}])
    report = salvage(store, CONFIG, tmp_path / "new")
    assert (report.restored, report.is_complete) == (1, True)
    assert records_of(tmp_path / "new", CONFIG) == before


@pytest.mark.parametrize("number", [20, -2, -1])
def test_a_topic_that_can_be_none_is_taken_from_the_other_store_alone(
    number: int, store: Path, tmp_path: Path
) -> None:
    """Without queues nothing proves it, and a broker that dispatched the record would leave
    ``consumequeue/``. Of a queue's last record no number of a neighbour tells either."""
    before = records_of(store, CONFIG)
    golden_data.apply_damage(store, [{"op": "delete", "path": "consumequeue"}])
    sound = golden_data.copy_tree(store, tmp_path / "sound")
    offset = sorted(before)[number]
    with MessageStore(store, CONFIG) as opened:
        record = opened.look_message_by_offset(offset)
    patched(store, offset + 88 + record.body_length + 1, b"/")
    report = salvage(store, CONFIG, tmp_path / "new")
    (gap,) = [row for row in report.planned() if row["type"] == "gap"]
    assert (gap["physical_offset"], gap["reason"]) == (offset, "topic-not-allowed")
    assert not report.is_complete and not errors(tmp_path / "new", CONFIG)
    after = records_of(tmp_path / "new", CONFIG)
    assert after == {at: data for at, data in before.items() if at != offset}
    if number == -1:
        return  # Where the log ends nothing tells that the other store's record belongs there.
    report = salvage(store, CONFIG, tmp_path / "whole", sound)
    assert report.is_complete and report.restored == 1
    assert records_of(tmp_path / "whole", CONFIG) == before


@pytest.mark.parametrize("names", [("body", "queue_id"), ("body_crc",), ("total_size", "unit")])
def test_what_is_not_proven_is_not_guessed(
    names: tuple[str, ...], store: Path, tmp_path: Path
) -> None:
    """A record becomes no sound one by being copied."""
    offset = sorted(records_of(store, CONFIG))[20]
    positions = HEADER | {"body": (90, 1), "body_crc": (8, 4)}
    for name in names:
        if name == "unit":
            queue = store / "consumequeue" / "orders" / "0" / ("0" * 20)
            data = bytearray(queue.read_bytes())
            data[10 * 20 + 12 : 10 * 20 + 20] = b"\x01" * 8
            queue.write_bytes(data)
        else:
            position, length = positions[name]
            patched(store, offset + position, b"\x7e" * length)
    report = salvage(store, CONFIG, tmp_path / "new")
    assert (report.restored, report.lost, report.is_complete) == (0, 1, False)
    assert offset not in records_of(tmp_path / "new", CONFIG)


def test_another_store_that_has_gone_apart_fills_nothing(store: Path, tmp_path: Path) -> None:
    """What stands around the gap has to be the same in both."""
    other = golden_data.copy_tree(store, tmp_path / "other")
    offsets = sorted(records_of(store, CONFIG))
    patched(store, offsets[20] + 90, b"\x7e")
    for position in (40, 60):  # other times of birth and of storing
        patched(other, offsets[21] + position, b"\x7e")
    report = salvage(store, CONFIG, tmp_path / "new", other)
    assert (report.restored, report.lost) == (0, 1)
    patched(other, offsets[10] + 90, b"\x7e")
    report = salvage(other, CONFIG, tmp_path / "back", store)
    assert (report.restored, report.lost) == (1, 0)


def test_placeholders_are_marked_and_have_no_tags(store: Path, tmp_path: Path) -> None:
    offset = sorted(records_of(store, CONFIG))[20]
    patched(store, offset + 90, b"\x7e")
    report = salvage(store, CONFIG, tmp_path / "new", placeholders=True)
    assert (report.lost, report.is_complete) == (1, False)
    with MessageStore(tmp_path / "new", CONFIG) as opened:
        record = opened.look_message_by_offset(offset)
        assert (record.topic, record.queue_id, record.queue_offset) == ("orders", 0, 10)
        assert record.properties == {"RMQCTL": "lost"} and not any(opened.body(record))
        got = opened.get_message("orders", 0, 0, physical_memory=1 << 40)
    assert [one.queue_offset for one in got.records] == list(range(30))


def test_a_salvaged_store_is_salvaged_and_rebuilt_to_itself(store: Path, tmp_path: Path) -> None:
    """Whoever writes the queues anew knows by the fillers that messages are gone."""
    from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_to

    offsets = sorted(records_of(store, CONFIG))
    for at in (5, 6, 7, 30):
        patched(store, offsets[at] + 90, b"\x7e")
    first, second = tmp_path / "first", tmp_path / "second"
    assert salvage(store, CONFIG, first).lost == 4
    again = salvage(first, CONFIG, second)
    assert again.lost == 4  # By the numbers of their neighbours.
    for name in ("commitlog", "consumequeue"):
        assert golden_data.tree_content(first / name) == golden_data.tree_content(second / name)
    rebuild_to(plan_rebuild(first, CONFIG, "all"), tmp_path / "rebuilt")
    rebuilt = golden_data.tree_content(tmp_path / "rebuilt" / "consumequeue")
    assert rebuilt == golden_data.tree_content(first / "consumequeue")


def test_a_damaged_unit_makes_no_log(store: Path, tmp_path: Path) -> None:
    """One that points far behind the end of the log tells of no lost files."""
    queue = store / "consumequeue" / "orders" / "0" / ("0" * 20)
    data = bytearray(queue.read_bytes())
    for at, offset in ((29, 1 << 60), (28, 3 * FILE + max(records_of(store, CONFIG)))):
        data[at * 20 : at * 20 + 8] = offset.to_bytes(8, "big")
        queue.write_bytes(data)
        salvage(store, CONFIG, tmp_path / str(at), placeholders=True)
        assert records_of(tmp_path / str(at), CONFIG) == records_of(store, CONFIG)


def test_holes_of_a_file_of_the_configuration_stay_holes(store: Path, tmp_path: Path) -> None:
    """A length that damage has made is not written out as zeros, which would fill the disk."""
    config = store / "config"
    config.mkdir(exist_ok=True)
    path = config / "subscriptionGroup.json"
    path.write_text("{}")
    size = 64 << 20
    with path.open("r+b") as file:
        file.seek(size)
        file.write(b"end")
    salvage(store, CONFIG, tmp_path / "new")
    copied = tmp_path / "new" / "config" / path.name
    assert copied.stat().st_size == size + 3
    assert copied.stat().st_blocks * 512 < 1 << 20
    assert copied.read_bytes() == path.read_bytes()


def test_queues_that_took_each_others_places_change_no_record(
    golden: Golden, tmp_path: Path
) -> None:
    """Their units contradict the records, and the records agree with each other."""
    root = golden_data.copy_tree(golden("basic"), tmp_path / "s")
    config = golden_data.broker_conf("basic")
    before = records_of(root, config), places_of(root, config)
    one, other = root / "consumequeue/TopicA/1", root / "consumequeue/TopicB/1"
    one.rename(tmp_path / "one")
    other.rename(one)
    (tmp_path / "one").rename(other)
    report = salvage(root, config, tmp_path / "new")
    assert report.restored == 0
    assert (records_of(tmp_path / "new", config), places_of(tmp_path / "new", config)) == before


def test_holes_of_queue_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue's file has room for 300,000 units, and a store many thousand queues."""
    config = MessageStoreConfig()
    with MessageStore(tmp_path / "store", config, writable=True, create=True) as made:
        for number in range(3):
            assert made.put_message(MessageExtBrokerInner("t", b"%d" % number, 0)).is_ok
    size = config.mapped_file_size_consume_queue
    read = [0]
    original = MappedFile.read_aside

    def counted(self: MappedFile, position: int, size: int) -> bytes:
        data = original(self, position, size)
        read[0] += len(data)
        return data

    with closing(ConsumeQueue(tmp_path / "store/consumequeue/t/0", "t", 0, size)) as queue:
        monkeypatch.setattr(MappedFile, "read_aside", counted)
        found = list(windows(queue))
    assert [start for start, _ in found] == [0]
    assert found[0][1]["size"][:3].all() and not found[0][1]["size"][3:].any()
    assert read[0] <= size // 10, f"{read[0] // UNIT_SIZE} units for 3"


def test_a_queue_is_opened_once_for_many_batches(tmp_path: Path) -> None:
    with MessageStore(tmp_path / "store", CONFIG, writable=True, create=True) as made:
        for number in range(40):
            assert made.put_message(MessageExtBrokerInner("t", b"x", number % 4)).is_ok
    asked: list[tuple[str, int]] = []

    class Counting(ConsumeQueueTableReader):
        def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
            asked.append((topic, queue_id))
            return super().find(topic, queue_id)

    size = CONFIG.mapped_file_size_consume_queue
    with MessageStore(tmp_path / "store", CONFIG) as opened:
        queues = Counting(tmp_path / "store" / "consumequeue", size)
        doubts = Doubts(queues, Dispatcher(CONFIG))
        scanner = Scanner(opened.commit_log, tuning=ScanTuning(batch_records=4))
        batches = [one for one in scanner.scan() if isinstance(one, Batch)]
        assert len(batches) > 4
        for batch in batches:
            doubts.add(batch)
        assert not len(doubts.places())
        queues.close()
    assert asked == [("t", number) for number in range(4)]
