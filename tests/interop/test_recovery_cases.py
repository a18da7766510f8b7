"""Losses that were once found, each as a test of its own: a store as a crash leaves it, one command
of rmqctl, and what the engine then serves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from formats.constants import BLANK_MAGIC_CODE
from formats.layouts import RECORD_PREFIX
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import BLANK, Record
from tests import processes
from tests.golden_data import copy_tree, tree_content
from tests.interop.commands import Rmqctl
from tests.interop.engine import Engine, Row
from tests.interop.recovery import surgery
from tests.interop.recovery.grounds import Grounds
from tests.interop.recovery.visits import Visit, Visited, visit
from tests.interop.stores import conf_text, config_of
from tests.test_safety.support import HOST, TIME, Clock

SIZES: Row = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 1000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 1000,
    "enableLmq": False,
    "enableMultiDispatch": False,
}
LIGHT: Row = {"enableLmq": True, "enableMultiDispatch": True}
STORE_TIMESTAMP = next(one for one in RECORD_PREFIX[0].fields if one.name == "store_timestamp")
ENDS = pytest.mark.parametrize("abort", [False, True], ids=["clean", "abort"])


def message(
    topic: str, name: str, body: bytes = b"", light_queues: str = ""
) -> MessageExtBrokerInner:
    properties = {"KEYS": name, "UNIQ_KEY": f"UNIQ-{name}", "TAGS": "tag"}
    if light_queues:
        properties["INNER_MULTI_DISPATCH"] = light_queues
    return MessageExtBrokerInner(
        topic,
        body or name.encode() * 20,
        properties=properties,
        born_timestamp=TIME,
        born_host=HOST,
        store_host=HOST,
    )


def written(root: Path, values: Row, messages: Iterable[MessageExtBrokerInner]) -> list[Record]:
    """Writes a store with these messages, stored one and a half seconds apart."""
    config = config_of(values)
    with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
        for results in store.put_stream(messages, flush=False):
            assert all(result.is_ok for result in results)
        return [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]


def said_by(
    engine: Engine, root: Path, values: Row, keys: Iterable[tuple[str, str]] = ()
) -> Visited:
    (said,) = visit(engine, [Visit(root, values, ask=keys)])
    assert said.is_sound, said.why or said.error
    return said


def queue(said: Visited, topic: str) -> list[tuple[int, int]]:
    """(queue offset, physical offset) of queue 0, in order."""
    return sorted(
        (place[2], unit[0]) for place, unit in said.units.items() if place[:2] == (topic, 0)
    )


# --- a queue that is far behind the others ---------------------------------------------------


@pytest.mark.parametrize("command", [["put", "--topic", "Other", "--body", "x"], ["flush"]])
def test_a_rare_topic_behind_the_checkpoint(
    engine: Engine, tmp_path: Path, command: list[str]
) -> None:
    """The topic's units are lost from the first third of the log on, and behind that is more log
    than any buffer holds. The engine alone dispatches from the checkpoint on."""
    values, root = SIZES | {"mappedFileSizeCommitLog": 4 << 20}, tmp_path / "store"
    body = bytes(60_000)
    records = written(
        root,
        values,
        (message("Rare" if n % 40 == 5 else "Usual", f"k{n}", body) for n in range(800)),
    )
    third = records[len(records) // 3]
    surgery.write_checkpoint(root, third.store_timestamp, third.store_timestamp, 0)
    lost = surgery.zero_units(
        root, lambda u: u.topic == "Rare" and u.physical_offset > third.physical_offset
    )
    assert lost > 5
    surgery.write_abort(root, engine.version)
    Rmqctl(root, values)(*command)
    said = said_by(engine, root, values)
    rare = [r for r in records if r.topic == "Rare"]
    assert queue(said, "Rare") == [(r.queue_offset, r.physical_offset) for r in rare]
    assert [r.queue_offset for r in rare] == list(range(len(rare)))


def test_a_clean_store_with_one_queue_behind_takes_a_put_at_its_end(
    engine: Engine, tmp_path: Path
) -> None:
    """A put of the engine does the same, for its clean start does not look for queues that are
    behind the others: a queue offset is given twice. verify names the records without a unit before
    the put and after it."""
    root = tmp_path / "store"
    written(root, SIZES, (message("Rare" if n % 9 == 5 else "Usual", f"k{n}") for n in range(90)))
    lost = surgery.zero_units(root, lambda u: u.topic == "Rare" and u.queue_offset >= 7)
    assert lost == 3
    alone = copy_tree(root, tmp_path / "alone")
    store = engine.open(alone, SIZES)
    store.put([message("Rare", "new")])
    store.shutdown()
    found = Rmqctl(root, SIZES)("verify", code=1)
    assert [one["found"] for one in found if one.get("code") == "record-without-unit"]
    (row,) = Rmqctl(root, SIZES)("put", "--topic", "Rare", "--body", "new")
    said, other = said_by(engine, root, SIZES), said_by(engine, alone, SIZES)
    assert queue(said, "Rare")[-1] == (7, row["wrote_offset"])
    assert queue(said, "Rare") == queue(other, "Rare")


# --- a message that is lost while its unit is not ---------------------------------------------


def two_of_each(root: Path, lost: str) -> Record:
    """Puts messages A, A, B, B, and takes one from the log, but not from its queue and the index;
    gives this one."""
    body = bytes(40_000)  # one a file
    names = [("A", "a1"), ("A", "a2"), ("B", "b1"), ("B", "b2")]
    records = written(root, SIZES, [message(topic, name, body) for topic, name in names])
    last = records[-1]
    if lost == "half a record":
        surgery.zero_log(root, last.physical_offset + last.total_size // 2)
    else:
        surgery.log_files(root)[-1].unlink()
    return last


@ENDS
@pytest.mark.parametrize("lost", ["half a record", "the last file"])
def test_the_place_of_a_lost_message_goes_to_no_other_topic(
    engine: Engine, tmp_path: Path, lost: str, abort: bool
) -> None:
    root = tmp_path / "store"
    two_of_each(root, lost)
    if abort:
        surgery.write_abort(root, engine.version)
    (row,) = Rmqctl(root, SIZES)("put", "--topic", "A", "--body", "new", "--keys", "a3")
    assert (row["queue_id"], row["queue_offset"]) == (0, 2)
    said = said_by(engine, root, SIZES)
    assert [place for place, _ in queue(said, "B")] == [0]
    assert queue(said, "A")[2:] == [(2, row["wrote_offset"])]
    # Queues that exist only in the engine's memory, such as those of delay levels, are empty.
    ends = {r["topic"]: r["maxOffset"] for r in said.rows["queue"] if r["maxOffset"]}
    assert ends == {"A": 3, "B": 1}


@ENDS
@pytest.mark.parametrize("lost", ["half a record", "the last file"])
def test_the_key_of_a_lost_message_does_not_find_another(
    engine: Engine, tmp_path: Path, lost: str, abort: bool
) -> None:
    root = tmp_path / "store"
    gone = two_of_each(root, lost)
    if abort:
        surgery.write_abort(root, engine.version)
    body = "new" * 10_000  # It does not fit in place of the blank before the last file.
    (row,) = Rmqctl(root, SIZES)("put", "--topic", "A", "--body", body, "--keys", "a3")
    assert row["wrote_offset"] == gone.physical_offset
    said = said_by(engine, root, SIZES, [("B", "b2"), ("B", "UNIQ-b2"), ("A", "a3")])
    assert said.hits["A", "a3"] == {row["wrote_offset"]}
    assert not said.hits["B", "b2"] and not said.hits["B", "UNIQ-b2"]


# --- the index of a broker that was killed ---------------------------------------------------


@pytest.mark.parametrize("checkpoint", ["of the last moment", "of a third", "zero", "none"])
def test_a_put_keeps_the_index_of_a_killed_broker(
    engine: Engine, tmp_path: Path, checkpoint: str
) -> None:
    """After the broker's next start all messages are found by key that were without the put."""
    root = tmp_path / "store"
    records = written(root, SIZES, (message("A", f"k{n}", bytes(300)) for n in range(1200)))
    surgery.write_abort(root, engine.version)
    if checkpoint == "of a third":
        time = records[len(records) // 3].store_timestamp
        surgery.write_checkpoint(root, time, time, 0)
    elif checkpoint == "zero":
        surgery.write_checkpoint(root, 0, 0, 0)
    elif checkpoint == "none":
        (root / "checkpoint").unlink()
    keys = [("A", record.properties["KEYS"]) for record in records]
    alone = said_by(engine, copy_tree(root, tmp_path / "alone"), SIZES, keys)
    Rmqctl(root, SIZES)("put", "--topic", "B", "--body", "x", "--keys", "new")
    said = said_by(engine, root, SIZES, keys)
    lost = [key for key in keys if alone.hits[key] - said.hits[key]]
    assert not lost, f"{len(lost)} of {sum(map(bool, alone.hits.values()))} keys: {lost[:3]} …"


# --- extension files ------------------------------------------------------------------------


@ENDS
def test_a_broker_loads_behind_old_bytes_of_an_extension(
    engine: Engine, tmp_path: Path, abort: bool
) -> None:
    """The engine has cut off its queues and their extension, and left the old bytes in the
    files."""
    grounds = Grounds(engine.version, "1", tmp_path / "grounds", lambda: engine)
    grounds.need([f"ext-old-bytes{'-abort' * abort}"])
    ground = grounds[f"ext-old-bytes{'-abort' * abort}"]
    assert not ground.control.is_refused
    root = copy_tree(ground.root, tmp_path / "store")
    run = Rmqctl(root, ground.base.values)
    rows = [
        run("put", "--topic", "TopicA", "--queue-id", "0", "--tags", f"new{n}", "--body", "x")[0]
        for n in range(3)
    ]
    said = said_by(engine, root, ground.base.values)
    for row in rows:
        unit = said.units["TopicA", 0, row["queue_offset"]]
        assert unit == (row["wrote_offset"], row["wrote_bytes"])


# --- a message that no engine reads ---------------------------------------------------------


@ENDS
def test_nothing_is_put_behind_a_delay_that_is_no_number(
    engine: Engine, tmp_path: Path, abort: bool
) -> None:
    """The engine's start deletes such a message and all behind it, after a clean stop, too. A put
    behind it is refused instead; in a clean store it looks at the records before the end."""
    root = tmp_path / "store"
    messages = [message("A", f"k{n}") for n in range(60)]
    messages[40].properties["DELAY"] = "3"
    records = written(root, SIZES, messages)
    bad = records[40]
    surgery.write_log(
        root,
        bad.physical_offset,
        surgery.log_files(root)[0]
        .read_bytes()[bad.physical_offset : bad.physical_offset + bad.total_size]
        .replace(b"DELAY\x013", b"DELAY\x01x"),
    )
    if abort:
        surgery.write_abort(root, engine.version)
    before = tree_content(root)
    assert not Rmqctl(root, SIZES)("put", "--topic", "B", "--body", "x", code=5)
    may_change = {"lock": None} if abort else {"lock": None, "checkpoint": None}
    assert {**tree_content(root), **may_change} == {**before, **may_change}
    found = Rmqctl(root, SIZES)("verify", code=1)
    places = [one["physical_offset"] for one in found if one.get("code") == "delay-not-a-number"]
    assert places == [bad.physical_offset]
    said = said_by(engine, root, SIZES)
    assert sorted(said.messages) == [one.physical_offset for one in records[:40]]
    assert said.log_range.end == bad.physical_offset


# --- light queues ---------------------------------------------------------------------------


@pytest.mark.parametrize("switches", ["absent", "off"])
def test_a_rebuild_that_is_not_told_of_light_queues_takes_none_away(
    engine: Engine, tmp_path: Path, switches: str
) -> None:
    """When enableLmq is not in the broker.conf, or off, light queues are kept, or the command
    asks."""
    root, values = tmp_path / "store", SIZES | LIGHT
    names = "%LMQ%one,%LMQ%two"
    written(root, values, (message("A", f"k{n}", light_queues=names) for n in range(70)))
    sound = said_by(engine, copy_tree(root, tmp_path / "sound"), values)
    before = tree_content(root)
    conf = tmp_path / "other.conf"
    told = SIZES if switches == "off" else {k: v for k, v in SIZES.items() if k not in LIGHT}
    conf.write_text(conf_text(told))
    command = ["rebuild", "all", "--in-place", "--yes", "--store", str(root)]
    done = processes.run("rmqctl", *command, "--broker-conf", str(conf))
    if done.returncode:
        assert done.returncode in (5, 6), done.stderr
        assert {**tree_content(root), "lock": None} == {**before, "lock": None}
    said = said_by(engine, root, values)
    assert said.units == sound.units


# --- a blank, and no file behind it -----------------------------------------------------------


@ENDS
@pytest.mark.parametrize("fits", [True, False])
def test_a_blank_that_leads_to_no_file(
    engine: Engine, tmp_path: Path, fits: bool, abort: bool
) -> None:
    """A crash came before the next file was made. Both end the log before the blank, and a message
    that fits there takes its place."""
    values, root = SIZES | {"mappedFileSizeCommitLog": 8192}, tmp_path / "store"
    records = written(root, values, [message("A", f"a{n}", bytes(2000)) for n in range(3)])
    end = records[-1].physical_offset + records[-1].total_size
    (path,) = surgery.log_files(root)
    with path.open("r+b") as log:
        log.seek(end)
        log.write(BLANK.pack(8192 - end, BLANK_MAGIC_CODE))
    if abort:
        surgery.write_abort(root, engine.version)
    alone = copy_tree(root, tmp_path / "alone")
    new = message("A", "new", bytes(100 if fits else 2000))

    store = engine.open(alone, values)
    (ends,) = store.ends()["store"]
    assert ends["maxPhyOffset"] == end
    store.put([new])
    (said,) = store.ends()["store"]
    store.shutdown()
    config = config_of(values)
    with MessageStore(root, config) as reader:
        assert reader.max_offset == end
    with MessageStore(root, config, writable=True) as writer:
        assert writer.max_offset == end
        result = writer.put_message(new).stored
        assert result is not None
        assert result.wrote_offset == (end if fits else 8192)
    if engine.version == "4.9.3":  # 5.3.3 writes another form
        assert said["maxPhyOffset"] == result.wrote_offset + result.wrote_bytes
        time = STORE_TIMESTAMP.offset + result.wrote_offset % 8192
        logs = []
        for one in (root, alone):
            data = [bytearray(each.read_bytes()) for each in surgery.log_files(one)]
            data[result.wrote_offset // 8192][time : time + 8] = bytes(8)
            logs.append([each for each in data if any(each)])  # The engine makes files ahead.
        assert logs[0] == logs[1]
    (visited,) = visit(engine, [Visit(root, values)])
    assert visited.is_sound
    assert queue(visited, "A")[-1] == (3, result.wrote_offset)
