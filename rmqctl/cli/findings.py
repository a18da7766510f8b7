"""How findings are printed: as they are found, or, in a table, with the verdict first.

A table begins with the verdict, shows the worst findings first, and ends with advice: each code
once for each advice that its findings have, with the command lines for their places.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING

from rmqctl.cli.advice import command_line, look_anew
from rmqctl.rows.words import some

if TYPE_CHECKING:
    from rmqctl.cli.output import RowWriter
    from rmqctl.cli.settings import Settings
    from rmqctl.operations.verify import Finding
    from rmqctl.rows import Row

#: From the worst on.
_SEVERITIES = ("error", "warning", "info")
#: Bytes of the findings of one severity that are held in memory; beyond it they go to a file.
_HELD_BYTES = 1 << 20
#: Most codes that the verdict names, and most command lines that are shown for one code.
_NAMED_CODES = 4
_SHOWN_COMMANDS = 5
#: Codes of queues in which messages of the log claim one place.
_CLAIMED = ("queue-begun-again", "queue-offset-repeated")


class _Advice:
    """What is printed below the table about the findings of one code that have one advice."""

    def __init__(self, severity: str) -> None:
        self.severity = severity
        self.count = 0
        #: Each with the queue that it makes anew, if it does that.
        self.commands: dict[str, tuple[str, int] | None] = {}
        self.has_more = False

    def add(self, command: str | None, queue: tuple[str, int] | None) -> None:
        self.count += 1
        if command is None or command in self.commands:
            return
        if len(self.commands) < _SHOWN_COMMANDS:
            self.commands[command] = queue if " rebuild queues " in command else None
        else:
            self.has_more = True


class FindingsReport:
    """Takes findings as they come. Use it as a context manager: after an interruption or an error
    it prints what was found before, and the verdict says that the check is not finished."""

    def __init__(
        self,
        writer: RowWriter,
        *,
        is_table: bool,
        also: Callable[[Finding, str | None], None] | None = None,
    ) -> None:
        """:param also: is called with each finding, and the command line that is next."""
        look_anew()
        self._writer = writer
        self._is_table = is_table
        self._also = also
        #: What came out, in one line, once it is finished.
        self.verdict = ""
        self._files = ExitStack()
        self._waiting = {
            name: self._files.enter_context(SpooledTemporaryFile(_HELD_BYTES))  # noqa: SIM115
            for name in _SEVERITIES
        }
        self._others: list[Row] = []
        #: By code and advice: where a copy does not help, for example, a finding has another one.
        self._advices: dict[tuple[str, str], _Advice] = {}
        self._claimed: set[tuple[str, int]] = set()
        self._severities: Counter[str] = Counter()
        self._is_finished = False

    def add(self, found: Finding, settings: Settings, **named: str) -> None:
        """Takes a finding of the store of ``settings``; ``named`` are fields before its own."""
        command = command_line(found, str(settings.root), settings.broker_conf)
        row = {"type": "finding", **named, **found._asdict(), "command": command}
        self._severities[found.severity] += 1
        advice = self._advices.setdefault((found.code, found.advice), _Advice(found.severity))
        advice.add(command, found.queue)
        if found.code in _CLAIMED and found.queue is not None:
            self._claimed.add(found.queue)
        if self._also is not None:
            self._also(found, command)
        if not self._is_table:
            self._writer.row(row)
            return
        self._waiting[found.severity].write(json.dumps(row).encode("ascii") + b"\n")

    def row(self, row: Row) -> None:
        """Takes a row that is no finding. A table shows it behind all findings."""
        if self._is_table:
            self._others.append(row)
        else:
            self._writer.row(row)

    def finish(
        self,
        summary: Row,
        looked_at: str,
        only: Collection[str] = (),
        part: str = "",
        sound: str = "agree",
    ) -> None:
        """Prints the verdict and all that is held back.

        :param looked_at: what was checked, in words. :param sound: what the verdict says of it
            where nothing is wrong.
        :param only, part: the structures, and the part of the log, that were checked where that is
            not all. The verdict says so.
        """
        self._is_finished = True
        counts, infos = self._counts(), self._severities["info"]
        if counts:
            limited = ", ".join([*only, *([part] if part else [])])
            limits = f" (only {limited} checked)" if limited else ""
            self.verdict = f"{counts}: {self._named()}{limits}"
        else:
            sound = f"{looked_at} {sound}"
            if only:
                sound = f"nothing wrong in {', '.join(only)}; nothing else was checked"
            if part:
                sound = f"{sound}; only {part} was read"
            self.verdict = f"OK: {sound}" + (f" ({some(infos, 'info')})" if infos else "")
        self._print(self.verdict)
        self._writer.summary(**summary)
        for severity in _SEVERITIES:
            for (code, text), advice in self._advices.items():
                if advice.severity == severity:
                    self._advise(code, text, advice)

    def _counts(self) -> str:
        """``3 errors, 1 warning``; empty where there are none."""
        counted = [(name, self._severities[name]) for name in _SEVERITIES[:2]]
        return ", ".join(some(count, name) for name, count in counted if count)

    def _named(self) -> str:
        """The codes that make the verdict, the worst first."""
        counts: Counter[str] = Counter()
        for severity in _SEVERITIES[:2]:
            for (code, _), advice in self._advices.items():
                if advice.severity == severity:
                    counts[code] += advice.count
        named = [code if count == 1 else f"{code} ({count})" for code, count in counts.items()]
        more = len(named) - _NAMED_CODES
        return ", ".join(named[:_NAMED_CODES]) + (f", and {more} more" if more > 0 else "")

    def _print(self, verdict: str) -> None:
        self._writer.remark(verdict)
        for severity in _SEVERITIES:
            file = self._waiting[severity]
            file.seek(0)
            for line in file:
                self._writer.row(json.loads(line))
        for row in self._others:
            self._writer.row(row)

    def _advise(self, code: str, text: str, advice: _Advice) -> None:
        times = f" ({advice.count} times)" if advice.count > 1 else ""
        self._writer.remark(f"{code}{times}: {text}")
        kept = [one for one, queue in advice.commands.items() if queue not in self._claimed]
        for command in kept:
            self._writer.command(command)
        if len(kept) < len(advice.commands):
            self._writer.remark(
                f"  Not for queues with {' or '.join(_CLAIMED)}: made anew, older messages would "
                "take the places of later ones."
            )
        if advice.has_more:
            self._writer.remark("  … the others stand in the rows: --format ndjson, field command.")

    def __enter__(self) -> FindingsReport:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._writer.ending(kind)
        if not self._is_finished and self._is_table and self._severities:
            found = f"{self._counts()}: {self._named()}" if self._counts() else "nothing wrong"
            self._print(f"not finished; so far {found}")
        self._files.close()


def counted(**counts: int) -> str:
    """Numbers of things in words, such as ``3 messages, 1 queue``. The first is named even if there
    is none. Names are in the singular, with ``_`` for a blank."""
    texts = [some(count, name.replace("_", " ")) for name, count in counts.items()]
    return ", ".join(text for at, text in enumerate(texts) if not at or not text.startswith("0 "))
