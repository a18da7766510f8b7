"""What to do about findings, below the table of them: one line for each code, with its count."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.cli.output import RowWriter
    from rmqctl.operations.verify import Finding


class Advice:
    """Collects the codes as they are found; the first finding of each gives the advice."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._texts: dict[str, str] = {}

    def add(self, finding: Finding) -> None:
        self._counts[finding.code] += 1
        self._texts.setdefault(finding.code, finding.advice)

    def print(self, writer: RowWriter) -> None:
        for code, text in self._texts.items():
            times = f" ({self._counts[code]} times)" if self._counts[code] > 1 else ""
            writer.remark(f"{code}{times}: {text}")
