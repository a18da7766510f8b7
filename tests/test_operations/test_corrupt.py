"""corrupt: a copy is damaged as it was said, the store is not, and each kind shows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.cli.commands import corrupt as command
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import CannotWrite, OutputExists
from rmqctl.operations.doctor.corrupt import corrupt
from rmqctl.operations.doctor.faults import KINDS, NothingToDamage
from rmqctl.operations.doctor.lint import Limits, Summary, lint
from rmqctl.operations.doctor.simulatestart import simulate_start
from rmqctl.operations.verify import Finding, verify
from tests.conftest import Golden
from tests.golden_data import broker_conf, copy_tree, state, tree_content

CONFIG = broker_conf("basic")
#: kind → a code that verify or lint has for it, whatever else follows from it.
SHOWN = {
    "bit-flip": "body-crc-mismatch",
    "bad-magic": "bad-magic",
    "wild-size": "total-size-mismatch",
    "hole": "unit-points-into-damage",
    "torn-tail": "unit-points-past-log-end",
    "lost-file": "commitlog-file-missing",
    "short-file": "file-length-mismatch",
    "stray-file": "foreign-file",
    "queue-hole": "record-without-unit",
    "wild-unit": "unit-mismatch",
    "lost-queue": "queue-missing",
    "lost-queues": "consumequeue-missing",
    "lost-index": "index-missing",
    "lost-checkpoint": "checkpoint-missing",
    "future-checkpoint": "checkpoint-in-future",
    "crash": "unclean-shutdown",
}


def codes(root: Path) -> set[str]:
    found = [*verify(root, CONFIG), *lint(root, CONFIG, Summary(), Limits(None, None))]
    return {one.code for one in found if isinstance(one, Finding)}


def test_the_help_names_every_kind() -> None:
    assert tuple(KINDS) == command.KINDS and KINDS.keys() == SHOWN.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_shows_and_the_store_stays(golden: Golden, tmp_path: Path, kind: str) -> None:
    root = golden("basic")
    before = state(root)
    done = corrupt(root, CONFIG, tmp_path / "damaged", [kind], 3)
    assert state(root) == before
    ((name, fault),) = done.faults
    old, new = tree_content(root), tree_content(done.output)
    changed = {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
    assert name == kind and changed - {"abort", "lock"} <= {
        path for path in old.keys() | new.keys() if path.startswith(fault.path)
    }
    found = codes(done.output)
    assert SHOWN[kind] in found, found


def test_the_same_seed_does_the_same(golden: Golden, tmp_path: Path) -> None:
    def faults(seed: int, *kinds: str) -> object:
        name = f"{seed}-{'-'.join(kinds)}-{len(list(tmp_path.iterdir()))}"
        return corrupt(golden("basic"), CONFIG, tmp_path / name, kinds, seed).faults

    assert faults(1, "bit-flip", "hole") == faults(1, "bit-flip", "hole")
    assert len({str(faults(seed, "bit-flip")) for seed in range(4)}) > 1
    assert faults(5) == faults(5)


def test_it_is_what_a_rehearsal_needs(golden: Golden, tmp_path: Path) -> None:
    """A flipped bit that a recovery comes by costs what simulate-start says."""
    kinds = ["bit-flip", "lost-checkpoint", "crash"]
    done = corrupt(golden("basic"), CONFIG, tmp_path / "damaged", kinds, 3)
    (_, flip), *_ = done.faults
    assert flip.physical_offset is not None
    start = simulate_start(done.output, CONFIG, percent=10, at=0)
    assert start.outcome.max_offset <= flip.physical_offset and start.messages_lost


Place = Callable[[Path, Path], Path]
REFUSED: dict[str, tuple[Place, type[Exception]]] = {
    "inside": (lambda root, tmp_path: root / "copy", CannotWrite),
    "the store": (lambda root, tmp_path: root, CannotWrite),
    "full": (lambda root, tmp_path: tmp_path, OutputExists),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_never_done_in_place(golden: Golden, tmp_path: Path, case: str) -> None:
    root = copy_tree(golden("basic"), tmp_path / "store")
    before = state(root)
    place, error = REFUSED[case]
    with pytest.raises(error):
        corrupt(root, CONFIG, place(root, tmp_path), ["bit-flip"], 1)
    assert state(root) == before


def test_a_link_into_the_store_is_seen_through(golden: Golden, tmp_path: Path) -> None:
    """A file behind a link is copied: what is damaged is never the original."""
    root = copy_tree(golden("basic"), tmp_path / "store")
    log = root / "commitlog/00000000000000000000"
    elsewhere = log.rename(tmp_path / "elsewhere")
    log.symlink_to(elsewhere)
    (tmp_path / "link").symlink_to(root)
    before = elsewhere.read_bytes()
    for seed in range(12):
        corrupt(root, CONFIG, tmp_path / f"out{seed}", ["bad-magic"], seed)
    assert elsewhere.read_bytes() == before
    with pytest.raises(CannotWrite):
        corrupt(root, CONFIG, tmp_path / "link/out", ["bad-magic"], 1)


def test_what_is_not_there_cannot_be_damaged(tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    for kind in ("bit-flip", "lost-file", "short-file", "wild-unit", "lost-queues", "lost-index"):
        with pytest.raises(NothingToDamage):
            corrupt(root, MessageStoreConfig(), tmp_path / "damaged", [kind], 1)
        assert not (tmp_path / "damaged").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_finds_what_another_has_left(golden: Golden, tmp_path: Path, kind: str) -> None:
    """However often the log's files were lost, or cut, before: it is done, or there is nothing."""
    kinds = ["lost-file", "short-file", "short-file", kind, "short-file", "short-file", kind]
    for seed in range(2):
        try:
            done = corrupt(golden("basic"), CONFIG, tmp_path / f"{seed}", kinds, seed)
        except NothingToDamage:
            continue
        assert [name for name, _ in done.faults] == kinds


def test_the_log_of_a_dledger_group_stays_its_own(golden: Golden, tmp_path: Path) -> None:
    root, config = golden("dledger"), broker_conf("dledger")
    done = corrupt(root, config, tmp_path / "damaged", ["lost-checkpoint"], 1)
    old, new = tree_content(root), tree_content(done.output)
    assert old.keys() - new.keys() == {"checkpoint", "lock"} and new.items() <= old.items()
    with pytest.raises(NothingToDamage):
        corrupt(root, config, tmp_path / "other", ["bit-flip"], 1)


def test_a_copy_that_the_disk_takes_in_pieces_is_whole(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is nearly full stores less than it was given, and says so by a number alone."""
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda d, data, at: pwrite(d, bytes(data)[:9999], at))
    root = golden("basic")
    corrupt(root, CONFIG, tmp_path / "damaged", ["lost-checkpoint"], 3)
    old, new = tree_content(root), tree_content(tmp_path / "damaged")
    assert {path for path in old if old[path] != new.get(path)} == {"checkpoint", "lock"}
