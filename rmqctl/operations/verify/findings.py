"""Findings of verify and config check, one row for each."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.files.paths import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    NOT_REGULAR,
)
from rmqctl.engine.files.shown import shown
from rmqctl.engine.settings.logdirectories import dledger_logs
from rmqctl.engine.state.laterversions import is_written_by_its_brokers
from rmqctl.errors import CannotRead
from rmqctl.operations.verify.codes import (
    CUT_SHORT,
    ERROR,
    INFO,
    LOG_CODES,
    MISPLACED,
    MULTI_DOUBTED,
    NAMED_OTHERWISE,
    RECORD_DOUBTED,
    SALVAGED,
    TORN_BEHIND_ITS_UNIT,
    WARNING,
    WAS_WHOLE,
    Code,
)
from rmqctl.operations.verify.compactioncodes import COMPACTION_CODES
from rmqctl.operations.verify.configcodes import CONFIG_CODES
from rmqctl.operations.verify.derivedcodes import DERIVED_CODES
from rmqctl.operations.verify.dledgercodes import DLEDGER_CODES
from rmqctl.operations.verify.latercodes import LATER_CODES
from rmqctl.operations.verify.lintcodes import LINT_CODES
from rmqctl.operations.verify.tieredcodes import TIERED_CODES

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig

__all__ = [
    "CODES",
    "CUT_SHORT",
    "ERROR",
    "INFO",
    "LINT_CODES",
    "MISPLACED",
    "MULTI_DOUBTED",
    "NAMED_OTHERWISE",
    "RECORDS_WAIT",
    "RECORD_DOUBTED",
    "SALVAGED",
    "TORN_BEHIND_ITS_UNIT",
    "WARNING",
    "WAS_WHOLE",
    "Adviser",
    "Code",
    "Finding",
    "Tally",
    "finding",
    "until_removed",
]

#: The path of a queue (also a batch queue), of its extension, or of a file in one of these.
_QUEUE = re.compile(r"(?:batch)?consumequeue(?:_ext)?/([^/]+)/([0-9]{1,10})(?:/|$)")

CODES: dict[str, Code] = (
    LOG_CODES
    | DLEDGER_CODES
    | DERIVED_CODES
    | LATER_CODES
    | COMPACTION_CODES
    | TIERED_CODES
    | LINT_CODES
    | CONFIG_CODES
)

#: The advice of ``unreadable-file`` where something else than a file stands there.
NO_FILE_ADVICE = "See what it is: a file belongs there. Move away what is nobody's."

#: The advice of what a repair leaves alone until queues have what the log has.
RECORDS_WAIT = "Records wait for their units: `rmqctl flush` first, then make a new plan."

_OTHER_COPY = (
    "No rmqctl command changes that in a store which its brokers alone write to: take another "
    "copy, of a broker that has it whole."
)
_MOVE_AWAY = "See what it is, and move it out of the store while the broker is down."
_NOT_OURS = " at its start; no rmqctl command writes to such a log."
#: The advice by code for stores that no command of rmqctl writes or recovers.
_OF_ITS_BROKERS = {
    "unclean-shutdown": "Its broker recovers" + _NOT_OURS,
    "dispatch-behind": "Its broker does it" + _NOT_OURS,
    "index-uncounted-items": "Its broker overwrites them, with what it dispatches" + _NOT_OURS,
    "checkpoint-missing": "Its broker writes one as it runs.",
    "checkpoint-unreadable": "Its broker writes a new one as it runs.",
    "checkpoint-zero": "Its broker writes one as it runs.",
    "torn-tail": "Nothing that was acknowledged as on disk is lost, and its broker cuts it off"
    + _NOT_OURS,
    "stale-record": "A broker that recovers after a crash takes it for a record of the log. "
    + _OTHER_COPY,
    "foreign-file": "A broker refuses to start with it in commitlog/ or in a queue. " + _MOVE_AWAY,
    "not-a-directory": "Nothing that belongs there can be read or written. " + _MOVE_AWAY,
    "file-length-mismatch": "A broker refuses to start on it. If it uses other sizes give its "
    "broker.conf with --broker-conf. Else take another copy, of a broker that has it whole.",
    "config-unreadable": "A broker takes the .bak copy, which may be older. While it is down mend "
    "the place, or put a copy of the .bak there.",
    "config-missing": "A broker takes the .bak copy, which may be older. Put a copy of it there "
    "while the broker is down.",
}
#: Commands that a store refuses which only its brokers write to, and what more of them refuse that
#: are no members of a DLedger group.
_REFUSED = re.compile(r"`rmqctl (?:flush|group|put|repair(?! --(?:resume|undo))|timer rebuild)\b")
_REFUSED_BY_OTHERS = re.compile(r"`rmqctl rebuild\b(?![^`]*--to-file-queues)")
_SENTENCE_END = re.compile(r"(?<=[.]) (?=[A-Z`])")


class Finding(NamedTuple):
    """One finding. Fields that do not apply are None.

    ``physical_offset`` is an offset of the log, ``position`` one in the file ``path`` (relative to
    the store).
    """

    code: str
    severity: str
    structure: str
    path: str | None = None
    physical_offset: int | None = None
    position: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    expected: str | None = None
    found: str | None = None
    advice: str = ""

    @property
    def queue(self) -> tuple[str, int] | None:
        """Topic and number of the finding's queue, by its own fields or by its path."""
        if self.topic is not None and self.queue_id is not None:
            return self.topic, self.queue_id
        of_path = _QUEUE.match(self.path or "") if self.topic is None else None
        return (of_path[1], int(of_path[2])) if of_path else None


def finding(code: str, **fields: object) -> Finding:
    """A finding of a code. Severity, structure and advice are the code's, unless given."""
    known = CODES[code]
    values: dict[str, object] = {
        "severity": known.severity,
        "structure": known.structure,
        "advice": known.advice,
    }
    if code == "unreadable-file" and fields.get("found") == NOT_REGULAR:
        values["advice"] = NO_FILE_ADVICE
    for name, value in fields.items():
        values[name] = (
            str(value) if name in ("expected", "found", "path") and value is not None else value
        )
    return Finding(code=code, **values)  # type: ignore[arg-type]


#: Where the files of queues lie.
_OF_QUEUES = tuple(f"{name}/" for name in (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE))


def until_removed(root: Path, findings: Iterator[Finding]) -> Generator[Finding, None, bool]:
    """The findings of queues. They end where a broker's retention removes a file in use, or where
    the disk does not read one, with a finding of it; returns whether that happened.

    :raises CannotRead: a file that is still there, and no queue's, cannot be read.
    """
    try:
        yield from findings
    except CannotRead as error:
        path = Path(str(error.path))
        if not os.path.lexists(path):
            yield finding("file-removed-meanwhile", path=shown(root, path))
        elif shown(root, path).startswith(_OF_QUEUES):
            yield from refused(root, error)
        else:
            raise
        return True
    return False


def refused(root: Path, error: CannotRead) -> Iterator[Finding]:
    """The finding of a file that the system does not open or read. None for what the check of the
    directories tells: there is no right to read it, it is no file, or it is gone."""
    path = Path(str(error.path))
    if path.is_file() and os.access(path, os.R_OK):
        yield finding("unreadable-file", path=shown(root, path), found=str(error.reason))


class Adviser:
    """Gives findings advice that fits their store. What a broker's start mends, commands of rmqctl
    mend as well, except in stores that only their brokers may write. The store is looked at once.
    """

    def __init__(self, root: Path, config: MessageStoreConfig) -> None:
        self._root, self._config = root, config

    @cached_property
    def _refused(self) -> tuple[re.Pattern[str], ...]:
        """What stands before the name of a command that the store refuses."""
        if not is_written_by_its_brokers(self._root, self._config):
            return ()
        return (_REFUSED,) if dledger_logs(self._root) else (_REFUSED, _REFUSED_BY_OTHERS)

    def __call__(self, found: Finding) -> Finding:
        known = _OF_ITS_BROKERS.get(found.code)
        if not (known or "`rmqctl" in found.advice) or not self._refused:
            return found
        if known is not None:
            return found._replace(advice=known)
        sentences = _SENTENCE_END.split(found.advice)
        kept = [one for one in sentences if not any(told.search(one) for told in self._refused)]
        if len(kept) == len(sentences):
            return found  # It names others.
        return found._replace(advice=" ".join([*kept, _OTHER_COPY]))


@dataclass(slots=True)
class Tally:
    """How many findings of each severity there were."""

    severities: Counter[str] = field(default_factory=Counter)

    @property
    def is_clean(self) -> bool:
        """Whether there are no errors and no warnings; infos do not count."""
        return not self.severities[ERROR] and not self.severities[WARNING]

    def counts(self) -> dict[str, object]:
        """The last fields of a summary."""
        return {
            "errors": self.severities[ERROR],
            "warnings": self.severities[WARNING],
            "infos": self.severities[INFO],
        }
