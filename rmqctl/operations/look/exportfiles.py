"""The files of an export: ``topic=…/day=…/part-…``, as Spark lays them out, and lines of text.

The names of directories come from the data. The characters that Spark escapes in them
(``ExternalCatalogUtils#escapePathName``) are escaped, and so is NUL, at which Spark fails. A name
that is too long then is shortened, and a file in the directory has the whole topic.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import orjson

from formats.text import encode_utf8
from rmqctl.engine.files.paths import FILE_NAME_BYTES
from rmqctl.engine.files.writeback import PagesBehind
from rmqctl.engine.read.lines import WantedLines, line_maker
from rmqctl.engine.record.status import BODY_CRC_MISMATCH, OK
from rmqctl.operations.look.rows import message_row
from rmqctl.rows.exported import NO_DAY, SUFFIXES, file_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqctl.engine.read.lines import Cell, LineMaker
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.rows.columns import Source

DAY = 86_400_000
_NOT_IN_NAMES = re.compile("[\0-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")
#: Ends the part of a shortened name that is the topic's. No other name has it: there two digits
#: follow each ``%``.
_SHORTENED = "%~"
#: The part of a character that was cut off, or of its escape.
_CUT_OFF = re.compile("%[0-9A-F]?$")
#: The file with the topic of a shortened name. Spark reads no file whose name begins so.
_TOPIC = "_topic"
_EMPTY = "__HIVE_DEFAULT_PARTITION__"
_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
#: Days of the years 1 to 9999.
_DAYS = range(-719_162, 2_932_897)
#: How many files are open at once.
_OPEN = 64
#: The first or last character of a cell that has to be quoted; an empty cell has to be, too.
_EDGES = (" ", "")
_QUOTED = re.compile('[",\r\n]')


def partition(topic: str, day: int) -> str:
    """The directory of a topic and day (days since 1970), below that of the export."""
    moment = _EPOCH + timedelta(days=day) if day in _DAYS else None
    told = NO_DAY if moment is None else f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
    return f"{_topic_directory(topic)}/day={told}"


def _topic_directory(topic: str) -> str:
    """The directory of a topic. One that is too long for a name is shortened, and ends with a hash
    of the whole topic."""
    escaped = _NOT_IN_NAMES.sub(lambda found: f"%{ord(found[0]):02X}", topic) or _EMPTY
    name = f"topic={escaped}"
    if len(encode_utf8(name)) <= FILE_NAME_BYTES:
        return name
    end = _SHORTENED + sha256(encode_utf8(topic)).hexdigest()[:32]
    head = encode_utf8(name)[: FILE_NAME_BYTES - len(end)].decode(errors="ignore")
    return _CUT_OFF.sub("", head) + end


def tell_topics(directory: Path, topics: Iterable[str]) -> None:
    """Writes the whole topic into each directory of an export whose name was shortened.

    :raises OSError: the disk failed.
    """
    for topic in topics:
        place = directory / _topic_directory(topic)
        if _SHORTENED in place.name and place.is_dir():
            (place / _TOPIC).write_bytes(encode_utf8(topic))


def partitions(batch: Batch) -> Iterator[tuple[str, Any]]:
    """The directories of a batch, each with the rows (ascending) that go there."""
    topic, day = batch.topic_id, batch.store_timestamp // DAY
    # np.unique of pairs compares them as bytes, and takes ten times as long.
    order = np.lexsort((day, topic))
    topic, day = topic[order], day[order]
    starts = np.flatnonzero(
        (np.diff(topic, prepend=-1) != 0) | (np.diff(day, prepend=day[:1]) != 0)
    )
    for start, end in pairwise([*starts.tolist(), len(order)]):
        yield partition(batch.topics.names[topic[start]], int(day[start])), order[start:end]


class _TextFile:
    """A file that lines are appended to."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("ab")
        self._end = self._file.tell()
        self._pages = PagesBehind(self._file.fileno(), self._end)

    def write(self, lines: bytes | memoryview) -> None:
        self._end += self._file.write(lines)
        self._pages.grown(self._end)

    def close(self) -> None:
        self._file.close()


class TextFiles:
    """Lines of NDJSON or CSV below ``directory``, a file a topic and day; few are open at once."""

    def __init__(self, directory: Path, columns: list[str], kind: str) -> None:
        self._directory = directory
        self._suffix = SUFFIXES[kind]
        self._columns = file_columns(columns, kind)
        self._line: Callable[[dict[str, Any]], bytes] = json_line if kind == "ndjson" else csv_line
        self._head = b"" if kind == "ndjson" else csv_line({n: n for n in self._columns})
        self._open: dict[str, _TextFile] = {}
        self._makers: dict[Source, LineMaker | None] = {}
        self._begun: set[str] = set()

    def write(self, batch: Batch, source: Source) -> None:
        """Appends the messages of a batch, in its order. :raises OSError: the disk failed."""
        maker = self._maker_of(source)
        for directory, rows in partitions(batch):
            file = self._file(directory)
            done = 0
            while done < len(rows):
                if maker is not None:
                    mapped, places = batch.mapped, batch.position[rows[done:]]
                    where = mapped.size, mapped.file_from_offset
                    data, count, _ = maker.at(mapped.buffer, places.tobytes(), *where)
                    file.write(memoryview(data))
                    done += count
                if done < len(rows):  # No kernel, or a message that is not plain.
                    file.write(self._line(self._values(batch, int(rows[done]), source)))
                    done += 1

    def _maker_of(self, source: Source) -> LineMaker | None:
        """The maker of the lines of a store's messages."""
        if source not in self._makers:
            self._makers[source] = line_maker(self._wanted(source))
        return self._makers[source]

    def _wanted(self, source: Source) -> WantedLines:
        """The lines that are wanted, with the cells that are the same in all lines of a store."""
        is_json = self._line is json_line
        always: dict[str, Any] = {"type": "message", "damage": None, **source._asdict()}
        cells: list[Cell] = []
        for name in self._columns:
            if name not in always:
                cells.append((name, None))
            elif not is_json:
                cells.append((name, csv_line({name: always[name]})[:-1]))
            elif always[name] is not None:
                cells.append((name, orjson.dumps(always[name])))
        form = "ndjson-file" if is_json else "csv-file"
        return WantedLines(form, tuple(cells), checks="status" in self._columns)

    def _file(self, directory: str) -> _TextFile:
        file = self._open.pop(directory, None)
        if file is None:
            if len(self._open) >= _OPEN:
                self._open.pop(next(iter(self._open))).close()
            path = self._directory / directory / f"part-00000{self._suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            file = _TextFile(path)
            if directory not in self._begun:
                self._begun.add(directory)
                file.write(self._head)
        self._open[directory] = file  # The last one used is the last one closed.
        return file

    def _values(self, batch: Batch, row: int, source: Source) -> dict[str, Any]:
        """The columns of a message as a file has them."""
        record = batch.record(row)
        values: dict[str, Any] = dict(message_row(record))
        values |= {"damage": None, "status": OK, **source._asdict()}
        if not batch.crc_matches[row]:
            values["status"] = BODY_CRC_MISMATCH
        for name in ("born", "store"):
            values[f"{name}_time"] = _time_text(values[f"{name}_timestamp"])
        if "body" in self._columns or "body_base64" in self._columns:
            body = batch.mapped.read(record.body_position, record.body_length)
            values["body"] = values["body_base64"] = b64encode(body).decode()
            values["body_encoding"] = "base64"
        return {name: values[name] for name in self._columns}

    def close(self) -> None:
        """:raises OSError: the disk failed."""
        while self._open:
            self._open.popitem()[1].close()


def json_line(values: dict[str, Any]) -> bytes:
    """One object a line. Null values are left out, as by Spark."""
    told = {name: value for name, value in values.items() if value is not None}
    return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)


def csv_line(values: dict[str, Any]) -> bytes:
    """One record, quoted where needed. Null is an empty cell; an empty text is a quoted one."""
    cells = []
    for value in values.values():
        text = "" if value is None else str(value)
        if isinstance(value, dict):
            text = orjson.dumps(value).decode()
        is_quoted = value is not None and (text[:1] in _EDGES or text[-1:] in _EDGES)
        if is_quoted or _QUOTED.search(text):
            text = '"' + text.replace('"', '""') + '"'
        cells.append(text)
    return (",".join(cells) + "\n").encode()


def _time_text(timestamp: int) -> str | None:
    """ISO 8601 in UTC; None where the calendar does not go that far."""
    try:
        moment = _EPOCH + timestamp * _MILLISECOND
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
