"""The seam of the scanner: what a backend makes of a window of the log, and which one runs.

A backend knows no log, only one file at a time. Which one runs is chosen by :mod:`rmqctl.kernel`;
every one of :func:`backends` says exactly what :data:`PURE` says, which is what the scanner's tests
hold it to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from rmqctl import kernel
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.compiled import CompiledBackend
from rmqctl.engine.scan.plain import Plain, PlainWanted
from rmqctl.engine.scan.pure import PureBackend
from rmqctl.engine.scan.topics import TopicTable
from rmqctl.engine.scan.tuning import ScanTuning


class WindowReader(Protocol):
    """Reads the windows of one scan. One that ``runs_ahead`` may be asked by another thread than
    the one that takes the batches."""

    runs_ahead: bool

    def batches(
        self, mapped: MappedFile, position: int, limit: int, stays: bool
    ) -> Iterator[Batch | Plain]:
        """Batches of the sound records that stand behind each other from ``position`` on: those
        that begin before ``limit``, up to the first that is none. The last of several may be left
        out, which reaches beyond ``limit``: it is the first of the next window. What is wrong there
        is not said; the walk says it. ``stays``: what is looked at will stay mapped."""

    def settle(self, batch: Batch | Plain) -> None:
        """Gives the batch's topics their numbers. Called once for each batch, in their order, by
        who takes them: so a topic's number does not depend on how far another thread is ahead."""


class ScanBackend(Protocol):
    """What the scanner asks of a backend."""

    @property
    def name(self) -> str: ...

    def reader(
        self,
        topics: TopicTable,
        tuning: ScanTuning,
        *,
        check: bool,
        properties: bool,
        plain: PlainWanted | None = None,
    ) -> WindowReader:
        """A reader for one scan, that numbers topics by ``topics``; ``check`` and ``properties``
        as of :class:`~rmqctl.engine.scan.scanner.Scanner`. With ``plain`` it may pass over plain
        records."""


PURE = PureBackend()


def backends() -> dict[str, ScanBackend]:
    """Every backend that can run here, by its name."""
    module = kernel.usable().module
    found: dict[str, ScanBackend] = {PURE.name: PURE}
    if module is not None:
        found[CompiledBackend.name] = CompiledBackend(module.Scanner)
    return found


def chosen() -> ScanBackend:
    """The backend of scanners that are not given one."""
    scanner = kernel.scanner()
    return PURE if scanner is None else CompiledBackend(scanner)
