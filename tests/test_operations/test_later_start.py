"""What keeps a broker of 5.x from starting; ``tests/interop/test_later_start.py`` has the broker's
word for each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.operations.doctor.lint import Summary as Linted
from rmqctl.operations.doctor.lint import lint
from rmqctl.operations.verify.laterstart import check_later_start
from tests.test_operations.small_store import CONFIG, findings_of, make_small_store

WHEEL = 38_707_200
ZEROS = "0" * 20


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store on which 5.x has run, with a batch queue, timers and a compacted topic."""
    root = make_small_store(tmp_path / "store")
    with (root / "timerwheel").open("wb") as file:
        file.truncate(WHEEL)
    (root / "batchconsumequeue" / "batches" / "0").mkdir(parents=True)
    write_topics(root, "BatchCQ")
    (root / "config" / "timermetrics").write_text('{"timingCount":{"t":{"count":1}}}')
    for name in ("compactionLog", "compactionCq"):
        directory = root / "compaction" / name / "kept" / "0"
        directory.mkdir(parents=True)
        (directory / ZEROS).touch()
        (directory / "compacting").mkdir()
    return root


def write_topics(root: Path, kind: str | None) -> None:
    entry = {"topicName": "batches", "attributes": {"queue.type": kind} if kind else None}
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(
        json.dumps({"topicConfigTable": {"batches": entry}})
    )


def short_wheel(root: Path) -> None:
    (root / "timerwheel").write_bytes(b"x")


def broken_metrics(root: Path) -> None:
    (root / "config" / "timermetrics").write_text("{")
    (root / "config" / "timermetrics.bak").write_text('{"timingCount":')


def broken_copy_of_no_metrics(root: Path) -> None:
    (root / "config" / "timermetrics").unlink(missing_ok=True)
    (root / "config" / "timermetrics.bak").write_text('{"timingCount":')


def broken_copy_of_empty_metrics(root: Path) -> None:
    broken_copy_of_no_metrics(root)
    (root / "config" / "timermetrics").touch()


def other_type(root: Path) -> None:
    write_topics(root, None)


def simple_queue_of_batch_topic(root: Path) -> None:
    (root / "consumequeue" / "batches" / "0").mkdir(parents=True)


def queue_file_alone(root: Path) -> None:
    (root / "compaction" / "compactionLog" / "kept" / "0" / ZEROS).unlink()


def log_file_alone(root: Path) -> None:
    (root / "compaction" / "compactionCq" / "kept" / "0" / ZEROS).rename(
        root / "compaction" / "compactionCq" / "kept" / "0" / f"{104_857_460:020d}"
    )


BLOCKERS: dict[Callable[[Path], None], tuple[str, str]] = {
    short_wheel: ("timer-wheel-length", "timerwheel"),
    broken_metrics: ("timer-metrics-unreadable", "config/timermetrics"),
    broken_copy_of_no_metrics: ("timer-metrics-unreadable", "config/timermetrics.bak"),
    broken_copy_of_empty_metrics: ("timer-metrics-unreadable", "config/timermetrics.bak"),
    other_type: ("queue-type-contradicted", "batchconsumequeue/batches"),
    simple_queue_of_batch_topic: ("queue-type-contradicted", "consumequeue/batches"),
    queue_file_alone: ("compaction-file-unpaired", f"compaction/compactionCq/kept/0/{ZEROS}"),
    log_file_alone: ("compaction-file-unpaired", f"compaction/compactionLog/kept/0/{ZEROS}"),
}


def later(root: Path) -> list[tuple[str, str | None]]:
    return [(one.code, one.path) for one in check_later_start(root)]


def test_a_sound_store_and_one_of_4_9_3_have_none(store: Path, tmp_path: Path) -> None:
    assert later(store) == [] and later(make_small_store(tmp_path / "other")) == []


@pytest.mark.parametrize("damage", BLOCKERS, ids=lambda one: one.__name__)
def test_each_is_named_by_verify_and_lint(store: Path, damage: Callable[[Path], None]) -> None:
    damage(store)
    assert BLOCKERS[damage] in later(store)
    codes = {code for code, _ in later(store)}
    assert codes == {BLOCKERS[damage][0]}
    assert codes <= {one.code for one in findings_of(store)[0]}
    assert codes <= {one.code for one in lint(store, CONFIG, Linted())}


def test_what_a_broker_gets_over_is_not_named(store: Path) -> None:
    metrics = store / "config" / "timermetrics"
    metrics.write_text("{")  # Without a copy it starts with none.
    assert later(store) == []
    metrics.with_name("timermetrics.bak").write_text('{"timingCount":{}}')
    assert later(store) == []
    (store / "timerwheel").write_bytes(b"")  # It makes one.
    # A log file behind the queue's last one is cut.
    (store / "compaction" / "compactionLog" / "kept" / "0" / f"{104_857_460:020d}").touch()
    # Without the other directory there is no such queue.
    (store / "compaction" / "compactionLog" / "alone" / "0").mkdir(parents=True)
    assert later(store) == []


def test_hostile_files_are_findings(store: Path) -> None:
    for name in ("timermetrics", "timermetrics.bak"):
        (store / "config" / name).write_bytes(b"[" * 100_000)
    (store / "config" / "topics.json").write_bytes(b"\xff" * 100)
    (store / "batchconsumequeue" / "batches" / "\x1b[31m").mkdir()
    (store / "compaction" / "compactionCq" / "kept" / "0" / "\u0661").touch()
    named = ["timer-metrics-unreadable", "compaction-file-unpaired"]
    assert [code for code, _ in later(store)] == named
