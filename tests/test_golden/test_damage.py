"""The damage cases: what verify names, what the real engine did, and what a rebuild mends.

Each case is one thing done to a copy of a golden store (``tests/golden/damage``).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import Unit
from rmqctl.errors import FileLengthContradiction, NeedsConsent
from rmqctl.operations.mend.rebuild import (
    ask_consent,
    kept_directories,
    plan_rebuild,
    purge,
    rebuild_in_place,
    rebuild_to,
)
from rmqctl.operations.verify import CODES, ERROR, INFO, Finding, Summary, verify
from tests.conftest import Golden
from tests.golden_data import (
    DAMAGE_CASES,
    apply_damage,
    broker_conf,
    copy_tree,
    damage_case,
    expected,
    index_contents,
    state,
    tree_content,
)

LOG_5, LOG_6 = "commitlog/00000000000000327680", "commitlog/00000000000000393216"
CQ = "consumequeue"
INDEX_1, INDEX_2 = "index/20261120085317780", "index/20261120085320002"
QUEUES = {(row["topic"], row["queueId"]) for row in expected("basic")["unit"]}


def found(
    code: str,
    path: str | None = None,
    physical_offset: int | None = None,
    position: int | None = None,
) -> tuple[str, str | None, int | None, int | None]:
    return code, path, physical_offset, position


UNCLEAN = found("unclean-shutdown", "abort")

#: case → what verify must name, with the place of what was done first. Findings that only follow
#: from it (queues and index that lead there) are checked by :func:`follows`.
NAMED: dict[str, list[tuple[str, str | None, int | None, int | None]]] = {
    "bad-magic-late": [found("bad-magic", LOG_5, 379442, 51762)],
    "bad-size-late": [found("total-size-mismatch", LOG_5, 373676, 45996)],
    "checkpoint-future": [
        UNCLEAN,
        found("checkpoint-in-future", "checkpoint", None, 0),
        found("checkpoint-in-future", "checkpoint", None, 8),
        found("checkpoint-in-future", "checkpoint", None, 16),
    ],
    "checkpoint-missing": [UNCLEAN, found("checkpoint-missing", "checkpoint")],
    "cq-tail-lost": [found("record-without-unit", f"{CQ}/TopicB/0", 415078, 780)],
    "cq-wrong-unit": [found("unit-mismatch", f"{CQ}/TopicB/1", 128318, 140)],
    "first-files-expired": [found("log-starts-late", None, 131072)],
    "flip-body-early": [found("body-crc-mismatch", "commitlog/00000000000000000000", 45412, 45412)],
    "flip-body-early-abort": [
        UNCLEAN,
        found("body-crc-mismatch", "commitlog/00000000000000000000", 45412, 45412),
        found("checkpoint-zero", "checkpoint", None, 0),
    ],
    "flip-body-late": [found("body-crc-mismatch", LOG_5, 346574, 18894)],
    "hole": [found("commitlog-file-missing", "commitlog/00000000000000131072", 131072)],
    "index-bad-slot": [found("index-slot-mismatch", INDEX_1, None, 40 + 4 * 3)],
    "no-consumequeue": [found("consumequeue-missing", CQ, 0)],
    "no-consumequeue-no-index": [
        found("consumequeue-missing", CQ, 0),
        found("index-missing", "index", 0),
    ],
    "no-index": [found("index-missing", "index", 0)],
    "no-one-queue": [found("queue-missing", f"{CQ}/TopicA/1", 5278)],
    "short-last-file": [
        found("file-length-mismatch", LOG_6, None, 0),
        found("torn-tail", LOG_6, 393216, 0),
    ],
    "stale-record-after-end": [UNCLEAN, found("stale-record", LOG_6, 439124, 45908)],
    "stray-file": [found("foreign-file", "commitlog/notes.txt")],
    # The header, the body and their CRC are whole: what the zeros took are the properties, with
    # the tags of the unit and the key of the index.
    "torn-tail": [UNCLEAN, found("properties-malformed", LOG_6, 438953, 45737)],
}

FOLLOWING = {
    "bad-magic-late": {"unit-points-into-damage", "index-item-points-into-damage"},
    "bad-size-late": {"unit-points-into-damage", "index-item-points-into-damage"},
    "hole": {"unit-points-into-damage", "index-item-points-into-damage"},
    "short-last-file": {
        "unit-points-past-log-end",
        "index-item-without-key",
        "checkpoint-in-future",  # newer than the newest record that is left
    },
    "torn-tail": {"unit-mismatch", "index-item-without-key", "key-not-indexed"},
}


def damaged(golden: Golden, case: str, directory: Path) -> tuple[Path, dict[str, Any]]:
    """A copy of the case's base store with the damage done."""
    description = damage_case(case)
    root = copy_tree(golden(description["base"]), directory / case)
    apply_damage(root, description["ops"])
    return root, description


def findings_of(root: Path, base: str) -> tuple[list[Finding], Summary]:
    *findings, summary = verify(root, broker_conf(base))
    assert isinstance(summary, Summary)
    return [f for f in findings if isinstance(f, Finding)], summary


def where(finding: Finding) -> tuple[str, str | None, int | None, int | None]:
    return found(finding.code, finding.path, finding.physical_offset, finding.position)


def test_the_table_has_every_case() -> None:
    assert sorted(NAMED) == DAMAGE_CASES
    assert {place[0] for places in NAMED.values() for place in places} <= set(CODES)


@pytest.mark.parametrize("case", DAMAGE_CASES)
def test_verify_names_what_was_done_and_changes_nothing(
    golden: Golden, case: str, tmp_path: Path
) -> None:
    root, description = damaged(golden, case, tmp_path)
    before, bytes_before = state(root), tree_content(root)
    started = time.process_time()
    findings, summary = findings_of(root, description["base"])
    assert time.process_time() - started < 60
    assert state(root) == before
    assert tree_content(root) == bytes_before

    places = [where(finding) for finding in findings]
    following = [f for f in findings if f.code in FOLLOWING.get(case, set())]
    assert [p for p in places if p[0] not in FOLLOWING.get(case, set())] == NAMED[case]
    assert {f.code for f in following} == FOLLOWING.get(case, set())
    harmless = case == "first-files-expired"
    assert summary.is_clean == harmless
    assert all(
        (f.severity == INFO) == (f.code in ("unclean-shutdown", "log-starts-late"))
        for f in findings
    )
    assert all(f.advice and f.severity == CODES[f.code].severity for f in findings)


@pytest.mark.parametrize("case", sorted(FOLLOWING))
def test_what_follows_leads_to_the_damage(golden: Golden, case: str, tmp_path: Path) -> None:
    """Units and items that verify names beside the damage are those of the lost messages."""
    root, description = damaged(golden, case, tmp_path)
    findings, _ = findings_of(root, description["base"])
    start = next(p[2] for p in NAMED[case] if p[2] is not None)
    end = {"hole": 196608, "short-last-file": 439124}.get(case)
    rows = {row["physicalOffset"]: row for row in expected("basic")["message"]}
    lost = {o for o in rows if o == start or (end is not None and start <= o < end)}
    named_units = 0
    for finding in findings:
        if finding.code in FOLLOWING[case] and finding.structure != "checkpoint":
            assert finding.physical_offset in lost
            if finding.structure == "queue":
                row = rows[finding.physical_offset]
                place = finding.topic, finding.queue_id, finding.queue_offset
                assert place == (row["topic"], row["queueId"], row["queueOffset"])
                count = finding.found.split()[0] if finding.found else ""
                named_units += int(count) if count.isdigit() else 1
    assert named_units == len(lost)


@pytest.mark.parametrize("case", DAMAGE_CASES)
def test_whatever_the_engine_loses_stands_behind_a_finding(
    golden: Golden, case: str, tmp_path: Path
) -> None:
    root, description = damaged(golden, case, tmp_path)
    findings, summary = findings_of(root, description["base"])
    errors = [f for f in findings if f.severity == ERROR]
    engine = description["engine"]
    if not engine["load"]:
        assert any(f.structure == "directory" for f in errors)
        return
    rows = expected(description["base"])
    end = rows["store"][0]["maxPhyOffset"]
    if engine["maxPhyOffset"] < end:
        # The engine cuts the log exactly where verify names the damage.
        assert engine["maxPhyOffset"] in [f.physical_offset for f in errors]
    if engine["maxPhyOffset"] > end:
        # It takes stale bytes for a record.
        assert [f.physical_offset for f in findings if f.code == "stale-record"] == [end]
    kept = [r for r in rows["message"] if r["physicalOffset"] >= engine["minPhyOffset"]]
    if engine["messages"] < len(kept):
        assert any(f.structure == "commitlog" for f in errors)
    messages = min(engine["messages"], len(kept))
    if engine["units"] < messages:
        missing = [f for f in errors if f.code in ("queue-missing", "record-without-unit")]
        texts = [f.expected if f.code == "record-without-unit" else f.found for f in missing]
        assert sum(int(text.split()[0]) for text in texts if text) == messages - engine["units"]
    if engine["keysFound"] < 996 and engine["messages"] == len(rows["message"]):
        assert any(f.structure == "index" for f in findings)
    if not errors:
        assert (messages, engine["units"]) == (len(kept), len(kept))
    # Where the engine keeps 61 of 600 messages, verify still shows the other 538.
    if case == "flip-body-early-abort":
        assert (engine["messages"], summary.records) == (61, 600)


@pytest.mark.parametrize("case", DAMAGE_CASES)
def test_a_damaged_store_can_still_be_read(golden: Golden, case: str, tmp_path: Path) -> None:
    """A pull of everything and a query by every key give what the log still has, and nothing
    that it has not."""
    root, description = damaged(golden, case, tmp_path)
    before = state(root)
    rows = expected("basic")
    bodies = {r["physicalOffset"]: (r["topic"], r["queueId"]) for r in rows["message"]}
    read: set[int] = set()
    try:
        with MessageStore(root, broker_conf(description["base"])) as store:
            for topic, queue_id in QUEUES:
                offset = 0
                while True:
                    answer = store.get_message(topic, queue_id, offset, 32)
                    for record in answer.records:
                        assert bodies[record.physical_offset] == (record.topic, record.queue_id)
                        read.add(record.physical_offset)
                    if answer.next_begin_offset <= offset:
                        break
                    offset = answer.next_begin_offset
            for row in rows["query"][::20]:
                for match in store.query_message(row["topic"], row["key"]):
                    assert match.record is None or match.record.physical_offset in bodies
    except FileLengthContradiction:
        assert case == "short-last-file"
    assert state(root) == before
    if case.startswith(("checkpoint", "flip", "stale", "stray", "torn", "no-index", "index")):
        assert read == set(bodies)
    elif case.startswith("bad"):
        assert len(read) == len(bodies) - 1


REPAIRABLE = [
    "cq-tail-lost",
    "cq-wrong-unit",
    "index-bad-slot",
    "no-consumequeue",
    "no-consumequeue-no-index",
    "no-index",
    "no-one-queue",
]


@pytest.mark.parametrize("case", REPAIRABLE)
def test_a_rebuild_in_place_mends_the_store(golden: Golden, case: str, tmp_path: Path) -> None:
    root, description = damaged(golden, case, tmp_path)
    base = golden(description["base"])
    config = broker_conf(description["base"])
    old = {name: tree_content(root / name) for name in (CQ, "index") if (root / name).exists()}
    log = tree_content(root / "commitlog")
    summary = rebuild_in_place(plan_rebuild(root, config, "all"))

    findings, after = findings_of(root, description["base"])
    assert not findings
    assert after.is_clean
    assert tree_content(root / CQ) == tree_content(base / CQ)
    assert index_contents(root / "index") == index_contents(base / "index")
    assert tree_content(root / "commitlog") == log

    # The old files stay until they are purged, and purging takes nothing else.
    kept = kept_directories(root)
    assert summary.kept == kept
    if old:
        (directory,) = kept
        assert {n: tree_content(directory / n) for n in old} == old
        plan = plan_rebuild(root, config, "all")
        with pytest.raises(NeedsConsent, match=directory.name):
            ask_consent(plan, in_place=False, purge=True)
        assert kept_directories(root) == kept
    assert purge(root) == kept
    assert kept_directories(root) == []
    left = {path.name for path in root.iterdir()}
    assert left == {path.name for path in base.iterdir()}
    assert findings_of(root, description["base"])[0] == []


def test_a_rebuild_of_one_queue_leaves_the_others_alone(golden: Golden, tmp_path: Path) -> None:
    root, description = damaged(golden, "cq-wrong-unit", tmp_path)
    before = {p: p.stat() for p in root.rglob("*") if p.is_file()}
    plan = plan_rebuild(root, broker_conf(description["base"]), "queues", "TopicB", 1)
    summary = rebuild_in_place(plan)
    assert summary.units == 31
    assert findings_of(root, description["base"])[0] == []
    changed = [
        str(path.relative_to(root))
        for path, s in before.items()
        if path.stat().st_ino != s.st_ino or path.stat().st_mtime_ns != s.st_mtime_ns
    ]
    assert changed == [f"{CQ}/TopicB/1/00000000000000000000"]
    assert tree_content(root / CQ) == tree_content(golden("basic") / CQ)


LOG_DAMAGE = {
    "bad-magic-late": ["bad-magic"],
    "bad-size-late": ["total-size-mismatch"],
    "flip-body-early": ["body-crc-mismatch"],
    "flip-body-late": ["body-crc-mismatch"],
    "hole": ["commitlog-file-missing"],
}


@pytest.mark.parametrize("case", sorted(LOG_DAMAGE))
def test_after_a_rebuild_only_the_logs_own_damage_is_left(
    golden: Golden, case: str, tmp_path: Path
) -> None:
    """Messages behind the damage keep their queue offsets; where one is lost stands a pre-blank
    unit, over which a consumer passes."""
    root, description = damaged(golden, case, tmp_path)
    rebuild_in_place(plan_rebuild(root, broker_conf(description["base"]), "all"))
    findings, _ = findings_of(root, description["base"])
    assert [f.code for f in findings] == LOG_DAMAGE[case]
    assert [where(f) for f in findings] == NAMED[case]
    lost = 0
    with MessageStore(root, broker_conf(description["base"])) as store:
        for row in expected("basic")["unit"]:
            queue = store.consume_queue(row["topic"], row["queueId"])
            assert queue is not None
            unit = queue.unit(row["queueOffset"])
            wanted = Unit(row["physicalOffset"], row["size"], row["tagsCode"])
            if unit != wanted:
                assert unit is not None
                assert unit.is_pre_blank
                assert store.commit_log.find_record(wanted.physical_offset) is None
                lost += 1
    in_hole = [r for r in expected("basic")["message"] if 131072 <= r["physicalOffset"] < 196608]
    count = {"hole": len(in_hole), "bad-magic-late": 1, "bad-size-late": 1}
    assert lost == count.get(case, 0)


@pytest.mark.parametrize("case", DAMAGE_CASES)
def test_a_rebuild_into_another_place_only_reads(golden: Golden, case: str, tmp_path: Path) -> None:
    root, description = damaged(golden, case, tmp_path)
    before = state(root)
    summary = rebuild_to(
        plan_rebuild(root, broker_conf(description["base"]), "all"), tmp_path / "output"
    )
    assert state(root) == before
    assert bool(summary.damage) == (case in ("bad-magic-late", "bad-size-late", "hole"))
