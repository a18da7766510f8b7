"""Checks the checkpoint against the newest record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from formats import layouts
from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import is_locked
from rmqctl.engine.state.checkpoint import Checkpoint, read_checkpoint
from rmqctl.errors import CannotRead
from rmqctl.operations.verify.findings import INFO, Finding, finding


class CheckpointChecker:
    """Checks the checkpoint. It is read when this is made, before the log, for a running broker
    writes it every second."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / paths.CHECKPOINT
        self._exists = self._path.exists()
        self._read: Checkpoint | None = None
        self._refusal: str | None = None
        try:
            self._read = read_checkpoint(self._path)
        except CannotRead as error:
            self._refusal = str(error.reason)

    def finish(self, newest_timestamp: int | None) -> Iterator[Finding]:
        """Call this after the last record. ``newest_timestamp`` is the newest store time, None
        without records."""
        checkpoint = self._read
        if self._refusal is not None:
            yield finding("unreadable-file", path=paths.CHECKPOINT, found=self._refusal)
        elif checkpoint is None:
            if self._exists:
                yield finding("checkpoint-unreadable", path=paths.CHECKPOINT, position=0)
            elif newest_timestamp is not None:
                yield finding("checkpoint-missing", path=paths.CHECKPOINT)
        elif newest_timestamp is not None:
            yield from self._times(checkpoint, newest_timestamp)
            if checkpoint[:3] == Checkpoint()[:3]:
                yield from self._zero()

    def _times(self, checkpoint: Checkpoint, newest_timestamp: int) -> Iterator[Finding]:
        for field in layouts.CHECKPOINT.fields[:3]:
            name, value = field.name, getattr(checkpoint, field.name)
            if value > newest_timestamp or value < 0:
                yield finding(
                    "checkpoint-in-future",
                    path=paths.CHECKPOINT,
                    position=field.offset,
                    expected=f"{name} at most {newest_timestamp}",
                    found=f"{name} {value}",
                )

    def _zero(self) -> Iterator[Finding]:
        """The finding of a checkpoint of zeros. A broker makes the file empty at its start, and
        writes it with its first flush, a second later (``FlushConsumeQueueService``)."""
        is_running = is_locked(self._root)
        now = read_checkpoint(self._path) if is_running else None
        if now is None or now[:3] == Checkpoint()[:3]:
            severity = {"severity": INFO} if is_running else {}
            yield finding("checkpoint-zero", path=paths.CHECKPOINT, position=0, **severity)
