"""verify in stretches: together they tell what one pass does, and a script can go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.engine.scan.tuning import ScanTuning
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import NoRecordAt
from rmqctl.operations.verify import Finding, Summary, run, verify
from tests.conftest import Golden
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
from tests.test_safety.support import fill_files, small_config

cli, store = command_line.cli, command_line.store

#: Told once for a whole log, and by each stretch for its own part.
OF_ITS_PART = {"consumequeue-missing", "queue-missing", "index-missing", "record-without-unit"}
#: Not told of a queue of which a stretch has no record; the damage is.
SELDOM = {"unit-points-into-damage"}


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
    passed = OF_ITS_PART | SELDOM
    assert {one for one in told if one.code not in passed} == {  # type: ignore[union-attr]
        one
        for one in whole
        if one.code not in passed  # type: ignore[union-attr]
    }
    codes = [{one.code for one in some} - SELDOM for some in (told, whole)]  # type: ignore[union-attr]
    assert codes[0] == codes[1]


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
