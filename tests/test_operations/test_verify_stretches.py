"""verify in stretches: together they tell what one pass does, and a script can go on."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.scan.tuning import ScanTuning
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import NoRecordAt
from rmqctl.operations.verify import Finding, Summary, run, verify
from rmqctl.operations.verify.queues import QueueChecker
from rmqctl.operations.verify.resumed import Beginning
from tests.conftest import Golden
from tests.faults.anatomy import Anatomy, dissect
from tests.faults.kinds import done, draw
from tests.golden_data import (
    DAMAGE_CASES,
    apply_damage,
    broker_conf,
    broker_conf_text,
    copy_tree,
    damage_case,
)
from tests.test_cli import conftest as command_line
from tests.test_cli.conftest import Cli
from tests.test_operations.small_store import CONFIG, make_small_store
from tests.test_safety.support import fill_files, small_config

cli, store = command_line.cli, command_line.store

#: Told once for a whole log, and by each stretch for its own part.
OF_ITS_PART = {
    "consumequeue-missing",
    "queue-missing",
    "index-missing",
    "index-behind",
    "index-starts-late",
    "key-not-indexed",
    "index-item-without-key",
    "index-item-points-into-damage",
    "record-without-unit",
    "unit-points-into-damage",
}
#: Findings that have their number in ``expected``.
_AGAIN = "queue-begun-again"
_OF_EXPECTED = {
    _AGAIN,
    "record-without-unit",
    "index-behind",
    "index-missing",
    "index-starts-late",
    "key-not-indexed",
}


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stretch of a golden store is a part of it."""
    small = ScanTuning(batch_records=100, window_bytes=(60_000, 60_000))
    monkeypatch.setattr(run, "ScanTuning", lambda threads: small)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", [*DAMAGE_CASES[::3], "hole", "no-one-queue"])
def test_stretches_tell_what_one_pass_does(name: str, golden: Golden, tmp_path: Path) -> None:
    case = damage_case(name)
    root, config = copy_tree(golden(case["base"]), tmp_path / "store"), broker_conf(case["base"])
    apply_damage(root, case["ops"])
    *whole, summary = verify(root, config)
    assert isinstance(summary, Summary) and summary.next_offset is None
    told: list[Finding | Summary] = []
    records, start, stretches = 0, None, 0
    while True:
        *found, part = verify(root, config, resume_from=start, is_over=lambda: True)
        assert isinstance(part, Summary)
        told += found
        records += part.records
        stretches += 1
        if part.next_offset is None:
            break
        assert part.row()["next_offset"] == part.next_offset and part.next_offset > (start or 0)
        start = part.next_offset
    assert records == summary.records and stretches > 3
    assert Counter(one for one in told if one.code not in OF_ITS_PART) == Counter(  # type: ignore[union-attr]
        one
        for one in whole
        if one.code not in OF_ITS_PART  # type: ignore[union-attr]
    )
    assert {one.code for one in told} == {one.code for one in whole}  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Anatomy]:
    root = make_small_store(tmp_path_factory.mktemp("stretches") / "store")
    return root, dissect(root, CONFIG)


@pytest.mark.parametrize("expired", [0, 1])
def test_what_is_damaged_is_told_once_wherever_stretches_end(
    sound: tuple[Path, Anatomy], expired: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fault a time, of every kind and everywhere; also with a log whose first file retention
    has removed."""
    root, anatomy = sound
    first = root / "commitlog" / f"{0:020d}"
    chance, told = random.Random(f"stretches {expired}"), 0
    for _ in range(60):
        fault = draw(chance, anatomy)
        if expired and (first.name in fault.path or first.name in fault.other):
            continue
        with ExitStack() as undo:
            undo.enter_context(done(fault, root))
            if expired:
                undo.callback(first.with_name("away").rename, first)
                first.rename(first.with_name("away"))
            whole, summary = counted(root, lambda: False, ScanTuning(), monkeypatch)
            seldom = chance.choice((1, 0.5, 0.1))
            step = ScanTuning(batch_records=chance.choice((1, 2, 5)), window_bytes=(600, 1200))
            over = partial(is_now, chance, seldom)
            parts, others = counted(root, over, step, monkeypatch)
        assert parts == whole, f"{fault}: {parts - whole} too many, {whole - parts} too few"
        assert others == summary, fault
        told += sum(whole.values())
    assert told > 100


@pytest.mark.parametrize("number", [0, 1], ids=["first", "last"])
def test_an_index_file_that_counts_no_items_is_told_once(
    sound: tuple[Path, Anatomy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Stretches begin before it, or behind items of the file before it."""
    root = copy_tree(sound[0], tmp_path / "store")
    file = sorted((root / "index").iterdir())[number]
    header = bytearray(file.read_bytes())
    header[36:40] = b"\xff" * 4
    file.write_bytes(header)
    whole, summary = counted(root, lambda: False, ScanTuning(), monkeypatch)
    assert "index-uncounted-items" in {getattr(one, "code", "") for one in whole}
    step = ScanTuning(batch_records=1, window_bytes=(600, 1200))
    parts, others = counted(root, lambda: True, step, monkeypatch)
    assert parts == whole and others == summary


def is_now(chance: random.Random, likely: float) -> bool:
    return chance.random() < likely


def counted(
    root: Path, is_over: Callable[[], bool], tuning: ScanTuning, monkeypatch: pytest.MonkeyPatch
) -> tuple[Counter[tuple[object, ...]], list[int]]:
    """What all stretches together tell, each unit, item and record by itself; and how many records,
    units and items they have checked."""
    monkeypatch.setattr(run, "ScanTuning", lambda threads: tuning)
    told: Counter[tuple[object, ...]] = Counter()
    sums, start = [0, 0, 0], None
    while True:
        *found, summary = verify(root, CONFIG, resume_from=start, is_over=is_over)
        assert isinstance(summary, Summary)
        for one in found:
            assert isinstance(one, Finding)
            told.update(one_by_one(one))
        for at, count in enumerate((summary.records, summary.units, summary.index_items)):
            sums[at] += count
        if (start := summary.next_offset) is None:
            return told, sums


def one_by_one(one: Finding) -> Counter[tuple[object, ...]]:
    """A finding as those of the single units or items that it stands for."""
    number = re.match(
        "([0-9]+) (?:unit|record|item)s?(?: from |$| without a unit)", one.found or ""
    )
    if one.code in _OF_EXPECTED:
        number = re.search("([0-9]+)", one.expected or "")
    count = 1 if number is None else int(number[1])
    if one.structure == "queue" and one.queue_offset is not None and one.code != _AGAIN:
        offsets = range(one.queue_offset, one.queue_offset + count)
        return Counter((one.code, one.severity, one.path, offset) for offset in offsets)
    return Counter([one] if number is None else {(one.code, one.severity, one.path): count})


@pytest.mark.parametrize(("only", "looks"), [("commitlog", 0), ("index", 0), ("checkpoint", 1)])
def test_a_stretch_looks_at_queues_only_for_what_is_checked(
    sound: tuple[Path, Anatomy], monkeypatch: pytest.MonkeyPatch, only: str, looks: int
) -> None:
    root, _ = sound
    looked: list[int] = []
    real = QueueChecker.beginnings

    def beginnings(self: QueueChecker, log: CommitLog, begin: int) -> Iterator[Beginning]:
        looked.append(begin)
        return real(self, log, begin)

    monkeypatch.setattr(QueueChecker, "beginnings", beginnings)
    tuning = ScanTuning(batch_records=5, window_bytes=(600, 1200))
    monkeypatch.setattr(run, "ScanTuning", lambda threads: tuning)
    *_, begun = verify(root, CONFIG, only=[only], is_over=lambda: True)
    assert isinstance(begun, Summary) and begun.next_offset is not None
    *found, rest = verify(root, CONFIG, only=[only], resume_from=begun.next_offset)
    assert isinstance(rest, Summary) and rest.is_clean and not found
    assert len(looked) == looks


def test_a_stretch_begins_at_a_record(golden: Golden) -> None:
    root = golden("basic")
    with pytest.raises(NoRecordAt):
        # Not a finding before it: the first thing that is told is that it cannot be done.
        next(verify(root, MessageStoreConfig(), resume_from=1))
    assert next(verify(root, MessageStoreConfig())).code == "index-sizes-unusual"  # type: ignore[union-attr]


def test_a_stretch_cannot_begin_in_a_lost_file(tmp_path: Path) -> None:
    """Nor behind the log's end; the error tells the one from the other."""
    root, config = tmp_path / "store", small_config(log=4096)
    fill_files(root, config, 3)
    (root / "commitlog" / f"{4096:020d}").unlink()
    with pytest.raises(NoRecordAt, match=r"the log has 0 to [0-9]+, without a file of this place"):
        next(verify(root, config, resume_from=4096))
    with pytest.raises(NoRecordAt, match=r"the log has 0 to [0-9]+\. "):
        next(verify(root, config, resume_from=4 * 4096))


@pytest.mark.usefixtures("small_steps")
def test_the_options(cli: Cli, golden: Golden, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(broker_conf_text("basic"))
    where = ("verify", "--store", str(golden("basic")), "--broker-conf", str(conf))
    begun = cli(*where, "--max-duration", "0s", "--format", "ndjson")
    assert begun.code == 0
    offset = begun.rows[-1]["next_offset"]
    assert offset == begun.rows[-1]["max_offset"] > 0
    assert f"go on with --resume-from {offset}" in begun.err
    rest = cli(
        *where, "--resume-from", str(offset), "--max-duration", "1h30m", "--format", "ndjson"
    )
    assert rest.code == 0 and "next_offset" not in rest.rows[-1]
    whole = cli(*where, "--format", "ndjson")
    parts = begun.rows[-1]["records"], rest.rows[-1]["records"]
    assert sum(parts) == whole.rows[-1]["records"] and all(parts)
    shown = cli(*where, "--max-duration", "0s").out
    assert f"only the log from 0 to {offset} was read" in shown
    assert cli(*where, "--max-duration", "10").code == 2
    assert cli(*where, "--resume-from", "1", "--master", "local[1]").code == 2
    # The log has lost its end since.
    gone = cli(*where, "--resume-from", str(1 << 40), "--format", "ndjson")
    assert gone.code == 5 and not gone.rows and "begin with --resume-from 0" in gone.err
    assert f"the log has 0 to {whole.rows[-1]['max_offset']}." in gone.err
    assert cli(*where, "--resume-from", "0").code == 0
