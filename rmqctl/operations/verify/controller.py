"""Checks the store of a broker in controller mode (5.x): its epochs, its identity, and how far the
copies have confirmed its log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from formats import constants, layouts
from rmqctl.engine.files import paths
from rmqctl.engine.files.shown import shown
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.columns import take
from rmqctl.engine.state.checkpoint import Checkpoint, read_checkpoint
from rmqctl.engine.state.controller import (
    BACKUP,
    EPOCH_FILE,
    IDENTITY_FILE,
    read_epochs,
    read_identity,
    store_epochs,
)
from rmqctl.errors import CannotRead
from rmqctl.operations.verify.dledger import EntryChecker, entry_checker
from rmqctl.operations.verify.findings import WARNING, Finding, finding
from rmqctl.operations.verify.snapshot import Snapshot

_MAGIC_CODE = np.dtype(f">{layouts.RECORD_MAGIC_CODE.code}")

#: The code of what the first such record alone is told of.
_TOLD_ONCE = "long-topic-not-confirmed"


def copy_checkers(snapshot: Snapshot, log: CommitLog) -> list[EntryChecker | ControllerChecker]:
    """The additional checkers of a store that is one of several copies; none for other stores."""
    names = EPOCH_FILE, EPOCH_FILE + BACKUP, IDENTITY_FILE
    is_controlled = any((snapshot.path / name).exists() for name in names)
    controlled = ControllerChecker(snapshot.path) if is_controlled else None
    found = entry_checker(snapshot, log), controlled
    return [one for one in found if one is not None]


class ControllerChecker:
    """Checks the records in the order of the log, and after the last one the files."""

    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            checkpoint = read_checkpoint(root / paths.CHECKPOINT) or Checkpoint()
        except CannotRead:  # The check of the checkpoint says so.
            checkpoint = Checkpoint()
        self._confirmed = checkpoint.confirm_phy_offset
        self._has_told = False

    def add(self, batch: Batch) -> Iterator[Finding]:
        """Checks records that are not confirmed. A start walks over these, and knows only one magic
        code (``ConsumeQueueStore#compensateForHA``)."""
        if self._has_told:
            return
        place = batch.position + layouts.RECORD_MAGIC_CODE.offset
        data = np.frombuffer(batch.mapped.buffer, np.uint8)
        rows = np.flatnonzero(
            (take(data, place, _MAGIC_CODE) == constants.MESSAGE_MAGIC_CODE_V2)
            & (batch.physical_offset >= max(self._confirmed, 0))
        )
        if len(rows):
            self._has_told = True
            record = batch.record(int(rows[0]))
            yield finding(
                _TOLD_ONCE,
                path=shown(self._root, batch.mapped.path),
                physical_offset=record.physical_offset,
                position=int(batch.position[rows[0]]),
                topic=record.topic,
                queue_id=record.queue_id,
                queue_offset=record.queue_offset,
                found=f"confirmed up to {self._confirmed}",
            )

    def join(self, found: list[Finding]) -> Iterator[Finding]:
        """The findings of the next part of the log, without those that another part had."""
        for one in found:
            if one.code != _TOLD_ONCE or not self._has_told:
                yield one
            self._has_told |= one.code == _TOLD_ONCE

    def finish(self, end_offset: int) -> Iterator[Finding]:
        """Call this after the last record."""
        try:
            yield from self._files(end_offset)
        except CannotRead as error:
            refused = shown(self._root, Path(str(error.path)))
            yield finding("unreadable-file", path=refused, found=str(error.reason))
            return
        if self._confirmed > end_offset:
            yield finding(
                "confirmed-past-end",
                path=paths.CHECKPOINT,
                position=layouts.CHECKPOINT.fields[4].offset,
                expected=f"at most {end_offset}",
                found=str(self._confirmed),
            )

    def _files(self, end_offset: int) -> Iterator[Finding]:
        own = read_epochs(self._root / EPOCH_FILE)
        counts = store_epochs(self._root)
        if own is not None and own.problem:
            # A copy that holds together counts in its place, unless it never comes to that.
            is_replaced = counts is not None and not counts.problem
            severity = {"severity": WARNING} if is_replaced else {}
            yield finding("epoch-file-unreadable", path=EPOCH_FILE, found=own.problem, **severity)
        epochs = () if counts is None or counts.is_fatal else counts.epochs
        for one, following in pairwise(epochs):
            if one.epoch >= following.epoch or one.start_offset >= following.start_offset:
                yield finding(
                    "epochs-out-of-order",
                    path=EPOCH_FILE,
                    expected=f"more than {one.epoch}-{one.start_offset}",
                    found=f"{following.epoch}-{following.start_offset}",
                )
        behind = [one for one in epochs if one.start_offset > end_offset]
        if behind:
            yield finding(
                "epoch-past-end",
                path=EPOCH_FILE,
                physical_offset=behind[0].start_offset,
                expected=f"at most {end_offset}",
                found=f"{len(behind)} epochs from {behind[0].epoch} on",
            )
        identity = self._root / IDENTITY_FILE
        if identity.exists() and read_identity(identity) is None:
            yield finding("broker-identity-unreadable", path=IDENTITY_FILE)
