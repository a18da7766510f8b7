"""The interface between the scanner and its backends, and the choice of one.

A backend does not know the log, only one file at a time. :mod:`rmqctl.kernel` chooses which one
runs. All :func:`backends` must give exactly what :data:`PURE` gives; the scanner's tests check it.
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
    """Reads the windows of one scan. If it ``runs_ahead``, another thread may call it than the one
    that uses the batches."""

    runs_ahead: bool

    def batches(
        self, mapped: MappedFile, position: int, limit: int, stays: bool
    ) -> Iterator[Batch | Plain]:
        """Batches of the sound records from ``position`` on that begin before ``limit``, up to the
        first place without one; the walk finds out what is there. If there are several, the last
        may be left out when it reaches behind ``limit``: then it is the first of the next window.

        :param stays: the pages of this window will stay mapped.
        """

    def settle(self, batch: Batch | Plain) -> None:
        """Gives the batch's topics their numbers. It is called once for each batch, in order, when
        the batch is used. So a topic's number does not depend on how far a thread is ahead."""


class ScanBackend(Protocol):
    """The interface of a backend."""

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
        """A reader for one scan. ``check`` and ``properties`` are those of
        :class:`~rmqctl.engine.scan.scanner.Scanner`.

        :param topics: gives topics their numbers, and says whether tags are keys, too.
        :param plain: the reader may pass over plain records, and notes this of them.
        """


PURE = PureBackend()


def backends() -> dict[str, ScanBackend]:
    """All backends that can run here, by name."""
    module = kernel.usable().module
    found: dict[str, ScanBackend] = {PURE.name: PURE}
    if module is not None:
        found[CompiledBackend.name] = CompiledBackend(module.Scanner)
    return found


def chosen() -> ScanBackend:
    """The backend of scanners to which none is given."""
    scanner = kernel.scanner()
    return PURE if scanner is None else CompiledBackend(scanner)
