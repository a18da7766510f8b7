"""The checkpoint: three timestamps, the rest left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.checkpoint import CHECKPOINT
from rmqctl.engine.state.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from tests.conftest import Golden
from tests.golden_data import STORES, expected
from tests.seeds import times

TIMES = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=times(10))  # each one waits for the disk
@given(st.tuples(TIMES, TIMES, TIMES))
def test_written_and_read_again(
    tmp_path_factory: pytest.TempPathFactory, times: tuple[int, int, int]
) -> None:
    checkpoint = Checkpoint(*times)
    root = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(root, root / "checkpoint", checkpoint)
    assert read_checkpoint(root / "checkpoint") == checkpoint
    data = (root / "checkpoint").read_bytes()
    assert len(data) == 4096
    parsed = CHECKPOINT.parse(data)
    assert [parsed[name] for name in Checkpoint._fields] == list(checkpoint)


def test_fields_of_newer_brokers_stay(tmp_path: Path) -> None:
    data = bytes(24) + (77).to_bytes(8, "big") + (88).to_bytes(8, "big") + b"\7" * (4096 - 40)
    (tmp_path / "checkpoint").write_bytes(data)
    write_checkpoint(tmp_path, tmp_path / "checkpoint", Checkpoint(1, 2, 3, 4, 5))
    assert read_checkpoint(tmp_path / "checkpoint") == Checkpoint(1, 2, 3, 77, 88)
    assert (tmp_path / "checkpoint").read_bytes()[24:] == data[24:]


@pytest.mark.parametrize("length", [0, 20, 32, 40, 100])
def test_they_stay_in_a_file_that_is_cut_short(tmp_path: Path, length: int) -> None:
    data = bytes(24) + (77).to_bytes(8, "big") + (88).to_bytes(8, "big") + b"\7" * 60
    (tmp_path / "checkpoint").write_bytes(data[:length])
    write_checkpoint(tmp_path, tmp_path / "checkpoint", Checkpoint(1, 2, 3))
    written = (tmp_path / "checkpoint").read_bytes()
    assert len(written) == 4096
    assert written[24:] == data[24:length].ljust(4096 - 24, b"\0")


def test_none_and_too_short(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "checkpoint") is None
    (tmp_path / "checkpoint").write_bytes(bytes(39))
    assert read_checkpoint(tmp_path / "checkpoint") is None


@pytest.mark.parametrize(
    ("times", "minimum"),
    [((10_000, 9_000, 1), 6_000), ((9_000, 10_000, 1), 6_000), ((2_999, 10_000, 0), 0)],
)
def test_the_minimum_leaves_a_margin(times: tuple[int, int, int], minimum: int) -> None:
    assert Checkpoint(*times).min_timestamp == minimum


@pytest.mark.parametrize("name", STORES)
def test_the_engines_checkpoints_name_times_of_its_messages(golden: Golden, name: str) -> None:
    checkpoint = read_checkpoint(golden(name) / "checkpoint")
    assert checkpoint is not None
    times = {row["storeTimestamp"] for row in expected(name)["message"]}
    assert {checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp} <= times
    assert checkpoint.index_msg_timestamp in {0, *times}


@pytest.mark.parametrize(
    ("end", "filled", "left"),
    [
        (20, 0, (20, 20, 20)),
        (20, 25, (20, 20, 25)),  # The clock was set back: the index file ends later than the log.
        (20, 15, (20, 20, 20)),
        (50, 0, (30, 40, 35)),
        (0, 0, (30, 40, 35)),  # Of a log without a record nothing is known.
    ],
)
def test_times_behind_the_end_of_the_log_are_of_another_log(
    end: int, filled: int, left: tuple[int, int, int]
) -> None:
    assert Checkpoint(30, 40, 35, 7, 8).until(end, filled) == (*left, 7, 8)
