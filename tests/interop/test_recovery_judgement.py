"""The judgement of the recovery matrix finds each kind of loss, made by hand in a result."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from hashlib import sha256

import pytest

from rmqctl.operations.verify import Finding
from rmqctl.operations.verify.findings import finding
from tests.interop.engine import Row
from tests.interop.recovery.judgement import Case, Checked, differences
from tests.interop.recovery.visits import Rows, Visited

SIZE = 100
LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0"}


def message(number: int, topic: str, queue_offset: int, **properties: str) -> Row:
    return {
        "kind": "message",
        "physicalOffset": number * SIZE,
        "size": SIZE,
        "topic": topic,
        "queueId": 0,
        "queueOffset": queue_offset,
        "sysFlag": 0,
        "msgId": f"ID{number}",
        "bodySha256": sha256(b"body").hexdigest(),
        "properties": {"KEYS": f"k{number}", **properties},
    }


def rows_of(messages: list[Row]) -> Rows:
    rows: Rows = {
        "store": [{"minPhyOffset": 0, "maxPhyOffset": len(messages) * SIZE}],
        "message": messages,
        "unit": [],
        "query": [],
        "pull": [],
    }
    for row in messages:
        places = [(row["topic"], row["queueOffset"])]
        if "INNER_MULTI_DISPATCH" in row["properties"]:
            places.append((row["properties"]["INNER_MULTI_DISPATCH"], 0))
        for topic, queue_offset in places:
            asked = {"topic": topic, "queueId": 0, "offset": queue_offset}
            unit = {"topic": topic, "queueId": 0, "queueOffset": queue_offset}
            unit |= {"physicalOffset": row["physicalOffset"], "size": SIZE}
            rows["unit"].append(unit)
            answer = {"physicalOffsets": [row["physicalOffset"]]}
            rows["pull"].append({"asked": asked, "answer": answer})
        key = {"topic": row["topic"], "key": row["properties"]["KEYS"]}
        rows["query"].append({**key, "physicalOffsets": [row["physicalOffset"]]})
    return rows


OLD = [message(0, "A", 0), message(1, "A", 1), message(2, "B", 0, **LIGHT)]
NEW = message(3, "B", 1)
SENT = {"body": "body"}
ANSWER = {"topic": "B", "queue_id": 0, "queue_offset": 1, "wrote_offset": 300, "msg_id": "ID3"}


def judged(
    change: Callable[[Rows], object],
    answers: tuple[Row, ...] = (ANSWER,),
    findings: tuple[Finding, ...] = (),
    before: Callable[[Rows], object] = lambda rows: None,
    known: tuple[Finding, ...] = (),
    elsewhere: tuple[Finding, ...] = (),
) -> list[str]:
    """The differences that are found in a store with one new message, after its rows were
    changed."""
    rows = deepcopy(rows_of([*OLD, NEW]))
    change(rows)
    control = Checked(Visited(rows=rows_of(deepcopy(OLD))), list(known))
    before(control.visited.rows)
    result = Checked(Visited(rows=rows), list(findings))
    acknowledged = [(SENT, answer) for answer in answers]
    other = Checked(control.visited, list(elsewhere))
    return differences(Case(control, other, result, acknowledged, 1, (), [], (0,)))


def nothing(rows: Rows) -> None:
    pass


def test_nothing_is_said_of_what_is_well() -> None:
    assert not judged(nothing)


LOSSES: dict[str, Callable[[Rows], object]] = {
    "the message at 0 (A/0@0) is not in the log": lambda r: r["message"].pop(0),
    "is another one now": lambda r: r["message"][1].update(bodySha256="x"),
    "A/0@1: the message at 100 has no unit": lambda r: r["unit"].pop(1),
    "%LMQ%a/0@0: the message at 200 has no unit": lambda r: r["unit"].pop(3),
    "A/0@0: the unit was (0, 100), and is (100, 100)": lambda r: (
        r["unit"][0].update(physicalOffset=100),
        r["unit"][1].update(physicalOffset=0),
    ),
    "key 'k1' of A does not find the message at 100": lambda r: r["query"][1].update(
        physicalOffsets=[]
    ),
    "A/0@7: the unit points to 200 (size 100), which is B/0@0": lambda r: r["unit"].append(
        {"topic": "A", "queueId": 0, "queueOffset": 7, "physicalOffset": 200, "size": SIZE}
    ),
    "A/0@8: the unit points to 999 (size 100), where no message is": lambda r: r["unit"].append(
        {"topic": "A", "queueId": 0, "queueOffset": 8, "physicalOffset": 999, "size": SIZE}
    ),
    "the message of PUT_OK at 300 (B/0@1) is not in the log": lambda r: r["message"].pop(3),
    "the message of PUT_OK at 300 (B/0@1) is another one": lambda r: r["message"][3].update(
        msgId="other"
    ),
    "the message of PUT_OK at 300 (B/0@1) is not served": lambda r: r["pull"].pop(),
    "the new message at 300 is not at its place": lambda r: r["unit"].pop(),
    "the new message at 300 is not found by its key 'k3'": lambda r: r["query"].pop(),
    "the message of PUT_OK at 300 (B/0@1) is not found by its key 'k3'": lambda r: r["query"].pop(),
    "there are 0 new messages, not 1": lambda r: r["message"].pop(3),
    "the log begins at 100": lambda r: r["store"][0].update(minPhyOffset=100),
}


@pytest.mark.parametrize("words", LOSSES)
def test_a_loss_has_its_words(words: str) -> None:
    found = judged(LOSSES[words])
    assert any(words in one for one in found), found


def test_a_unit_of_another_queues_message_may_go() -> None:
    """It has lost its way, and the message has its own."""
    astray = {"topic": "A", "queueId": 0, "queueOffset": 2, "physicalOffset": 200, "size": SIZE}
    assert not judged(nothing, before=lambda rows: rows["unit"].append(astray))
    own = {"topic": "B", "queueId": 0, "queueOffset": 5, "physicalOffset": 200, "size": SIZE}
    assert not judged(nothing, before=lambda rows: rows["unit"].append(own))
    lost = judged(lambda rows: rows["unit"].pop(2), before=lambda rows: rows["unit"].append(own))
    assert any("B/0@5: the message at 200 has no unit" in one for one in lost), lost


def test_a_queue_offset_that_is_given_twice() -> None:
    (found,) = [one for one in judged(nothing, (ANSWER, ANSWER)) if "queue offset of" in one]
    assert "the one at 300" in found
    old = ANSWER | {"queue_offset": 0}
    (found,) = [one for one in judged(nothing, (old,)) if "queue offset of" in one]
    assert "the old message at 200" in found


def test_what_verify_finds_counts_beyond_the_control() -> None:
    one = finding("unit-hole", topic="A", queue_id=0, physical_offset=0)
    assert not judged(nothing, findings=(one,), known=(one,))
    (found,) = judged(nothing, findings=(one, one), known=(one,))
    assert "1 more unit-hole" in found
    # A further message in a queue that had lost units changes which finding they have.
    lost = finding("record-without-unit", topic="A", queue_id=0)
    begun = finding("queue-begun-again", topic="A", queue_id=0)
    assert not judged(nothing, findings=(begun,), known=(lost,))
    assert judged(nothing, findings=(begun._replace(topic="B"),), known=(lost,))
    # Also when a start after a kill would have brought them back, and a clean one does not.
    assert not judged(nothing, findings=(begun,), elsewhere=(lost,))
    assert judged(nothing, findings=(begun._replace(topic="B"),), elsewhere=(lost,))
    assert judged(nothing, findings=(one,), elsewhere=(one,))
