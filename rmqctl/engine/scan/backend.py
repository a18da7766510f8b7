"""The seam of the scanner: what a backend does with the bytes of one file, and the pure one.

A backend has no store and no file, only bytes and columns. Which one runs is chosen by
:mod:`rmqctl.kernel`; every one of :func:`backends` says exactly what :data:`PURE` says, which is
what the scanner's tests hold it to.
"""

from __future__ import annotations

from typing import Protocol

from rmqctl import kernel
from rmqctl.engine.scan import bodycrc, properties
from rmqctl.engine.scan.chain import chain, read_fields
from rmqctl.engine.scan.columns import Bytes, Codes, Ints
from rmqctl.engine.scan.properties import PropertyColumns
from rmqctl.engine.scan.tuning import ScanTuning


class ScanBackend(Protocol):
    """What the scanner asks of a backend.

    ``data`` is a whole file, uint8 of shape ``(size,)``; positions count in it. What is asked
    lies in it; elsewhere it may hold zeros for bytes that nobody has fetched.
    """

    @property
    def name(self) -> str: ...

    def chain(
        self, data: Bytes, position: int, limit: int, file_from_offset: int, tuning: ScanTuning
    ) -> Ints:
        """:func:`rmqctl.engine.scan.chain.chain`."""

    def read_fields(
        self, data: Bytes, position: Ints, file_from_offset: int
    ) -> dict[str, Ints] | None:
        """:func:`rmqctl.engine.scan.chain.read_fields`."""

    def properties(
        self,
        data: Bytes,
        start: Ints,
        length: Ints,
        key_prefix: Codes,
        tuning: ScanTuning,
        *,
        check: bool,
    ) -> PropertyColumns:
        """:func:`rmqctl.engine.scan.properties.scan`."""

    def body_crcs(self, data: Bytes, start: Ints, length: Ints, tuning: ScanTuning) -> Codes:
        """:func:`rmqctl.engine.scan.bodycrc.body_crcs`."""


class _Pure:
    """numpy over batches: the reference."""

    name = "pure"
    chain = staticmethod(chain)
    read_fields = staticmethod(read_fields)
    properties = staticmethod(properties.scan)
    body_crcs = staticmethod(bodycrc.body_crcs)


PURE: ScanBackend = _Pure()


def backends() -> dict[str, ScanBackend]:
    """Every backend that can run here, by its name."""
    return {backend.name: backend for backend in kernel.available(PURE)}


def chosen() -> ScanBackend:
    """The backend of scanners that are not given one."""
    return kernel.choose(PURE)
