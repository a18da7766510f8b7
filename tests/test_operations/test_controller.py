"""Stores of brokers in controller mode: epochs and identity are shown and judged, and what makes a
shorter log of one cuts its epochs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.engine.state.controller import (
    Epoch,
    epochs_text,
    read_epochs,
    read_identity,
    store_epochs,
    until,
)
from rmqctl.operations.doctor.checkpoint import show, summary_row
from rmqctl.operations.look.info import info
from rmqctl.operations.mend.salvage import Salvage, plan_salvage, write_salvage
from rmqctl.operations.verify import Finding, verify
from tests.conftest import Golden
from tests.golden_data import broker_conf, copy_tree, expected, state
from tests.test_operations.log_in_parts import found_in_parts

CONFIG = broker_conf("basic")
END = expected("basic")["store"][0]["maxPhyOffset"]
EPOCHS = (Epoch(1, 0), Epoch(2, 5000), Epoch(4, 70_000))
FILE, IDENTITY = "epochFileCheckpoint", "brokerIdentity"


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    root = copy_tree(golden("basic"), tmp_path / "store")
    (root / FILE).write_text(epochs_text(EPOCHS))
    (root / IDENTITY).write_text("cluster#broker-a#2")
    return root


def found(root: Path) -> list[Finding]:
    before = state(root)
    findings = [one for one in verify(root, CONFIG) if isinstance(one, Finding)]
    # These stores have nothing else that is wrong.
    assert found_in_parts(root, CONFIG, 30_000) == findings
    assert state(root) == before
    return findings


def test_a_sound_one_is_shown_and_nothing_is_found(store: Path) -> None:
    (store / "abort.bak").touch()  # 5.x leaves one at each start; it is no sign of a crash.
    (store / "compaction").mkdir()
    assert not found(store)
    with MessageStore(store, CONFIG) as opened:
        row = info(opened)
    assert row["epochs"] == ["1 from 0", "2 from 5000", "4 from 70000"]
    assert row["broker_identity"] == "cluster#broker-a#2"
    assert (row["checkpoint_master_flushed_offset"], row["checkpoint_confirm_phy_offset"]) == (0, 0)
    assert not row["abort"]
    assert "confirm_phy_offset" not in summary_row(show(store, CONFIG))
    confirm(store, 77)
    assert summary_row(show(store, CONFIG))["confirm_phy_offset"] == 77


def test_the_text_is_a_brokers() -> None:
    """The example of ``CheckpointFile``."""
    text = epochs_text((Epoch(7, 7000), Epoch(8, 8000)))
    assert text == "2\n773307083\n7-7000\n8-8000\n"


def confirm(root: Path, offset: int) -> None:
    with (root / "checkpoint").open("r+b") as file:
        file.seek(32)
        file.write(pack(">q", offset))


Change = Callable[[Path], object]
CASES: dict[str, tuple[Change, str, str]] = {
    "an epoch behind the end": (
        lambda root: (root / FILE).write_text(epochs_text((*EPOCHS, Epoch(5, END + 1)))),
        *("epoch-past-end", "error"),
    ),
    "an epoch that does not rise": (
        lambda root: (root / FILE).write_text(epochs_text((*EPOCHS, Epoch(4, 80_000)))),
        *("epochs-out-of-order", "error"),
    ),
    "an offset that does not rise": (
        lambda root: (root / FILE).write_text(epochs_text((*EPOCHS, Epoch(5, 6)))),
        *("epochs-out-of-order", "error"),
    ),
    "a wrong checksum": (
        lambda root: (root / FILE).write_text("1\n5\n1-0\n"),
        *("epoch-file-unreadable", "error"),
    ),
    "a wrong checksum, and a copy": (
        lambda root: (
            (root / FILE).write_text("1\n5\n1-0\n"),
            (root / f"{FILE}.bak").write_text(epochs_text(EPOCHS)),
        ),
        *("epoch-file-unreadable", "warning"),
    ),
    "an empty file, on which no broker starts, and a copy": (
        lambda root: (
            (root / FILE).write_text(""),
            (root / f"{FILE}.bak").write_text(epochs_text(EPOCHS)),
        ),
        *("epoch-file-unreadable", "error"),
    ),
    "an identity of nobody": (
        lambda root: (root / IDENTITY).write_text("x\x1b[31m"),
        *("broker-identity-unreadable", "warning"),
    ),
    "more confirmed than there is": (
        lambda root: confirm(root, END + 1),
        *("confirmed-past-end", "warning"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_verify_names_what_was_done(store: Path, case: str) -> None:
    change, code, severity = CASES[case]
    change(store)
    assert [(one.code, one.severity) for one in found(store)] == [(code, severity)]


def test_a_long_topic_that_is_not_confirmed_stops_the_start(tmp_path: Path) -> None:
    root, config = tmp_path / "store", parse_broker_conf("mappedFileSizeCommitLog=8192")
    (root / "commitlog").mkdir(parents=True)
    (root / "compaction").mkdir()
    short = MessageExtBrokerInner("T", b"x", 0)
    long = MessageExtBrokerInner("%RETRY%" + "g" * 150, b"x", 0)
    with MessageStore(root, config, writable=True, create=True) as store:
        results = [store.put_message(message) for message in (short, long, short, long, short)]
        assert all(result.is_ok for result in results)
        end = store.max_offset
    (root / FILE).write_text(epochs_text((Epoch(1, 0),)))
    (one,) = [one for one in verify(root, config) if isinstance(one, Finding)]
    assert (one.code, one.severity) == ("long-topic-not-confirmed", "error")
    assert one.topic == long.topic
    assert found_in_parts(root, config, 300) == [one]
    confirm(root, end)
    assert not [one for one in verify(root, config) if isinstance(one, Finding)]


def test_a_salvaged_store_has_its_epochs_up_to_its_end(store: Path, tmp_path: Path) -> None:
    later = (*EPOCHS, Epoch(5, END), Epoch(6, END + 7))
    (store / FILE).write_text(epochs_text(later))
    plan = plan_salvage(Salvage(store, CONFIG, tmp_path / "new"))
    write_salvage(plan)
    plan.close()
    kept = read_epochs(tmp_path / "new" / FILE)
    assert kept is not None and kept.epochs == EPOCHS == until(later, END)
    assert (tmp_path / "new" / IDENTITY).read_text() == "cluster#broker-a#2"
    assert not [one for one in verify(tmp_path / "new", CONFIG) if isinstance(one, Finding)]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=200), st.text("0123456789-#\n", max_size=60).map(str.encode)))
@example(b"1\n0\n1-99999999999999999999\n")
@example(b"1" * 5000)
@example(b"a#b#\xd9\xa1")
def test_whatever_the_bytes_they_are_read(tmp_path: Path, data: bytes) -> None:
    for name in (FILE, f"{FILE}.bak", IDENTITY):
        (tmp_path / name).write_bytes(data)
    read_epochs(tmp_path / FILE)
    store_epochs(tmp_path)
    read_identity(tmp_path / IDENTITY)
