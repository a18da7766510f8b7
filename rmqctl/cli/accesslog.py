"""The access log of ``serve``: one line of JSON for each request that was answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from rmqctl.errors import CannotWrite

if TYPE_CHECKING:
    from rmqctl.rows.serving import AccessRow
    from rmqctl.serve.events import Accessed

#: Most characters of a name in a line: a client may send any length.
_LONGEST = 255


class AccessLog:
    """A file to which lines are appended.

    :param trouble: is told when a line cannot be written. This ends the log, but not the server.
    :raises CannotWrite: the file cannot be opened.
    """

    def __init__(self, path: Path, trouble: Callable[[str], None]) -> None:
        self._path = path
        self._trouble = trouble
        self._ended = False
        self._open()

    def _open(self) -> None:
        try:
            # Unbuffered: the line of an answer is in the file even if the process is killed.
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            reason = error.strerror or str(error)
            raise CannotWrite(path=str(self._path), reason=reason) from error

    def write(self, one: Accessed) -> None:
        if self._ended:
            return
        try:
            self._file.write(orjson.dumps(_row(one), option=orjson.OPT_APPEND_NEWLINE))
        except OSError as error:
            self._ended = True
            self._trouble(f"the access log ends: {self._path}: {error.strerror}")

    def reopen(self) -> None:
        """Begins a new file where the old one was moved away (SIGHUP)."""
        self._file.close()
        try:
            self._open()
            self._ended = False
        except CannotWrite as error:
            self._ended = True
            self._trouble(f"the access log ends: {error}")

    def close(self) -> None:
        self._file.close()


def _row(one: Accessed) -> AccessRow:
    from rmqctl.serve.metrics import request_name

    fields = one.command.ext_fields

    def named(*names: str) -> str | None:
        found = next((fields[name] for name in names if name in fields), None)
        return None if found is None else found[:_LONGEST].encode("utf-8", "replace").decode()

    return {
        "type": "access",
        "timestamp": one.timestamp,
        "peer": one.peer,
        "account": named("AccessKey"),
        "request": request_name(one.command.code),
        "request_code": one.command.code,
        "topic": named("topic", "b"),
        "group": named("consumerGroup", "group", "producerGroup", "a"),
        "answer_code": one.answer_code,
        "milliseconds": one.milliseconds,
        "received_bytes": len(one.command.body),
        "sent_bytes": one.sent_bytes,
    }
