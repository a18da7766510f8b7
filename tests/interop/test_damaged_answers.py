"""Pulls from queues with a unit that leads to no record: as the engine answers, and without what is
no message."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.rehearsal.rehearse import rehearse
from tests.golden_data import apply_damage, copy_tree
from tests.interop.conftest import StartEngine
from tests.interop.damage import ODD_UNITS, odd_unit
from tests.interop.engine import Row
from tests.interop.stores import TOPICS, Messages, config_of, settings
from tests.interop.test_answers import our_row, pulls

#: The engine gives out the bytes of this range of the log, and they are no record.
_NO_RECORD = -1
#: Statuses without messages. The engine's filter looks at what is no record, and it does not match.
_REMOVING, _NO_MATCH = "MESSAGE_WAS_REMOVING", "NO_MATCHED_MESSAGE"


@pytest.fixture(scope="module")
def base(start_engine: StartEngine, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Row]:
    """A store with queues of so many files that most of them are read by no start."""
    engine = start_engine()
    chance = random.Random("damaged answers")
    values: Row = {
        **settings(chance, light_queues=False),
        "mappedFileSizeCommitLog": 16384,
        "mappedFileSizeConsumeQueue": 20 * 5,
    }
    root = tmp_path_factory.mktemp("damaged-answers") / "store"
    store = engine.open(root, values)
    messages = Messages(chance, values, engine.version).take(200)
    for message in messages:
        message.topic, message.queue_id = TOPICS[chance.randrange(2)], chance.randrange(2)
    store.put(messages)
    store.settle()
    store.shutdown()
    return root, values


def disagreement(ours: Row, theirs: Row) -> str | None:
    """What of an answer is neither the engine's, nor the engine's without what is no record."""
    if "throws" in theirs:
        return None  # A broker answers such a pull with an error, again and again.
    found, offsets = ours["physicalOffsets"], theirs["physicalOffsets"]
    if _NO_RECORD not in offsets:
        if (ours["status"], theirs["status"]) == (_REMOVING, _NO_MATCH):
            theirs = {**theirs, "status": _REMOVING}
        return None if ours == theirs else "another answer"
    # The place of what is no record may be taken by messages that come later in the queue.
    whole = [offset for offset in offsets if offset != _NO_RECORD]
    if found[: len(whole)] != whole:
        return "other messages"
    if ours["nextBeginOffset"] < theirs["nextBeginOffset"]:
        return "another next offset"
    if found:
        return None if ours["status"] == "FOUND" else "another status"
    return None if ours["status"] in (_REMOVING, _NO_MATCH) else "another status"


@pytest.mark.proves("pull")
@pytest.mark.parametrize("kind", ODD_UNITS)
def test_pulls_past_an_odd_unit(
    start_engine: StartEngine,
    version: str,
    base: tuple[Path, Row],
    chance: random.Random,
    tmp_path: Path,
    kind: str,
) -> None:
    """The engine's start cuts a queue before some of these units if they are in its last three
    files. rmqctl reads such a queue to its end."""
    sound, values = base
    root = copy_tree(sound, tmp_path / "store")
    ops = odd_unit(chance, root, kind)
    print(ops)
    apply_damage(root, ops)
    starts = rehearse(root, config_of(values), as_5=version != "4.9.3").starts
    store = start_engine().open(root, values)
    assert store.is_open == starts
    if not store.is_open:
        return  # 5.3.3 fails if a queue's last file is left without a unit.
    ends = {(row["topic"], row["queueId"]): row["maxOffset"] for row in store.ends()["queue"]}
    asked = pulls(chance, store)
    said = store.engine.ask("pull", store=store.name, pulls=asked)
    with MessageStore(root, config_of(values)) as reader:
        for pull, theirs in zip(asked, said, strict=True):
            queue = reader.consume_queue(pull["topic"], pull["queueId"])
            end = 0 if queue is None else queue.max_offset
            ours = our_row(reader, pull)
            if version != "4.9.3" and ours["status"] == "OFFSET_OVERFLOW_BADLY":
                continue  # 5.3.3 sends the consumer to the queue's end.
            if end == ends[pull["topic"], pull["queueId"]]:
                assert disagreement(ours, theirs) is None, (pull, ours, theirs)
    store.shutdown()
