"""dump: one structure of the store, field by field with its bytes, explained by its schema.

Damaged structures are explained as far as their lengths can be followed. The summary's
``problems`` say what does not fit. No length is trusted: at most ``_WINDOW`` bytes are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

from construct import Construct, ConstructError, Container, Struct, ValidationError

from formats import (
    checkpoint,
    commitlog,
    constants,
    consumequeue,
    dledger,
    indexfile,
    layouts,
)
from formats.constants import BLANK_MAGIC_CODE
from formats.declare import Bound, Field
from formats.text import decode_properties, decode_utf8
from rmqctl.engine.files import paths
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.queue.consumequeue import UNIT_SIZE
from rmqctl.engine.record.bodies import decompress
from rmqctl.engine.record.record import (
    Damage,
    Record,
    body_crc_of,
    body_seen,
    host_text,
    read_entry_of,
)
from rmqctl.errors import UsageError
from rmqctl.operations.look.recordstarts import require_place

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows.reports import BodyRow, FieldRow
    from rmqctl.rows.summaries import DumpSummary

#: How many bytes of a structure are read at most, whatever its lengths say.
_WINDOW = 16 << 20
_MAGIC_NAMES = {
    magic_code: f"record with a {tail.what}" if tail.what else "record"
    for magic_code, tail in layouts.TAIL.items()
} | {BLANK_MAGIC_CODE: "blank"}

#: By the magic that both begin with, what stands between the records of a DLedger log.
_FRAMING = {
    constants.DLEDGER_MAGIC_CODE: ("entry header", dledger.ENTRY_HEADER),
    constants.DLEDGER_BLANK_MAGIC_CODE: ("blank", dledger.BLANK),
}
_FRAMING_MAGIC = layouts.DLEDGER_ENTRY.fields[0]


def dump_record(
    store: MessageStore, physical_offset: int, decompress_limit: int | None = None
) -> Iterator[FieldRow | BodyRow | DumpSummary]:
    """Rows ``field`` of the record, blank or damage at an offset of the log, then ``summary``. With
    ``decompress_limit`` also a row ``body``: a record's body as a consumer gets it.

    :raises NoRecordAt: the offset lies in no file.
    """
    mapped, position = require_place(store, physical_offset)
    data = mapped.read(position, min(mapped.size - position, _WINDOW))
    magic = layouts.RECORD_MAGIC_CODE
    code = data[magic.offset : magic.offset + magic.size]
    is_blank = code == BLANK_MAGIC_CODE.to_bytes(magic.size, "big")
    schema = commitlog.BLANK if is_blank else commitlog.RECORD
    problems: list[str] = []
    first = int.from_bytes(data[: _FRAMING_MAGIC.size], "big", signed=True)
    framing = _FRAMING.get(first) if mapped.framed else None
    if framing is not None and int.from_bytes(code, "big") not in layouts.TAIL:
        yield from _fields(framing[1], data, problems)
        problems += _entry_problems(mapped, position)
        yield _summary(framing[0], mapped, position, problems, physical_offset=physical_offset)
        return
    yield from _fields(schema, data, problems)
    if not is_blank:
        problems += _record_problems(mapped, position)
    entry = read_entry_of(mapped, position)
    if decompress_limit is not None and isinstance(entry, Record):
        yield _body(store, entry, decompress_limit)
    name = "blank" if is_blank else "record"
    yield _summary(name, mapped, position, problems, physical_offset=physical_offset)


def _entry_problems(mapped: MappedFile, position: int) -> Iterator[str]:
    """Why the bytes are no valid entry of a DLedger log, or no valid blank."""
    entry = read_entry_of(mapped, position)
    if isinstance(entry, Damage):
        yield f"{entry.reason}: expected {entry.expected}, found {entry.found}"


def _body(store: MessageStore, record: Record, limit: int) -> BodyRow:
    body = decompress(store.body(record), record.sys_flag, limit)
    text: str | None = None
    if body.data is not None:
        try:
            text = body.data.decode()
        except UnicodeDecodeError:
            text = None
    return {
        "type": "body",
        "size": None if body.data is None else len(body.data),
        "bytes": None if body.data is None else body.data.hex(),
        "value": text,
        "body_compression": body.compression,
        "body_status": body.status.value,
        "body_reason": body.reason,
    }


def _record_problems(mapped: MappedFile, position: int) -> Iterator[str]:
    """Why the engine would not take the bytes for a record."""
    entry = read_entry_of(mapped, position)
    if isinstance(entry, Damage):
        yield f"{entry.reason}: expected {entry.expected}, found {entry.found}"
    elif not isinstance(entry, Record):
        yield "nothing was written here"
    elif entry.body_length:
        actual = body_crc_of(body_seen(mapped, entry), entry)
        if actual != entry.body_crc:
            yield f"body-crc-mismatch: expected {entry.body_crc}, found {actual}"


def dump_unit(
    store: MessageStore, topic: str, queue_id: int, queue_offset: int
) -> Iterator[FieldRow | DumpSummary]:
    """Rows ``field`` of a queue unit, then ``summary``.

    :raises UsageError: there is no such unit.
    """
    paths.check_topic_directory(topic)
    where = next((one for one in store.queues.directories_of(topic) if one[1] == queue_id), None)
    queue = None if where is None else store.queues.as_stored(where)
    if queue is None:
        raise UsageError(
            reason=f"there is no queue {queue_id} of topic {topic!r}. `rmqctl queues` lists them."
        )
    try:
        mapped = queue.files.find(queue_offset * UNIT_SIZE)
        if mapped is None:
            raise UsageError(
                reason=f"no file of {topic!r} queue {queue_id} holds queue offset {queue_offset}: "
                f"it goes from offset {max(queue.files.min_offset, 0) // UNIT_SIZE} to "
                f"{queue.max_offset}, which the next message gets."
            )
        position = queue_offset * UNIT_SIZE - mapped.file_from_offset
        yield from _structure("unit", consumequeue.UNIT, mapped, position)
    finally:
        queue.close()


def dump_index_header(store: MessageStore, file: str) -> Iterator[FieldRow | DumpSummary]:
    """Rows ``field`` of an index file's header, then ``summary``."""
    mapped = _index_file(store, file)
    try:
        yield from _structure("index-header", indexfile.HEADER, mapped, 0)
    finally:
        mapped.close()


def dump_index_item(
    store: MessageStore, file: str, index_no: int
) -> Iterator[FieldRow | DumpSummary]:
    """Rows ``field`` of an index item, then ``summary``; items count from 1."""
    geometry = store.index.geometry
    if not 0 < index_no < geometry.index_num:
        raise UsageError(
            reason=f"an index file has items 1 to {geometry.index_num - 1} (maxIndexNum), "
            f"not {index_no}."
        )
    mapped = _index_file(store, file)
    try:
        position = geometry.item_position(index_no)
        yield from _structure("index-item", indexfile.ITEM, mapped, position)
    finally:
        mapped.close()


def _index_file(store: MessageStore, file: str) -> MappedFile:
    _, _, name = file.rpartition("/")
    for path in store.index.paths:
        if path.name == name:
            return MappedFile.open(path)
    raise UsageError(reason=f"there is no index file {name!r}. `rmqctl index info` lists them.")


def dump_checkpoint(store: MessageStore) -> Iterator[FieldRow | DumpSummary]:
    """Rows ``field`` of the checkpoint, then ``summary``."""
    path = store.root / paths.CHECKPOINT
    if not path.exists():
        raise UsageError(reason=f"{path} does not exist. `rmqctl flush` writes it.")
    mapped = MappedFile.open(path)
    try:
        yield from _structure("checkpoint", checkpoint.CHECKPOINT, mapped, 0)
    finally:
        mapped.close()


def _structure(
    name: str, schema: Struct, mapped: MappedFile, position: int
) -> Iterator[FieldRow | DumpSummary]:
    data = mapped.read(position, schema.sizeof())
    problems: list[str] = []
    yield from _fields(schema, data, problems)
    if not any(data):
        problems.append("nothing was written here")
    yield _summary(name, mapped, position, problems)


def _summary(
    structure: str,
    mapped: MappedFile,
    position: int,
    problems: list[str],
    physical_offset: int | None = None,
) -> DumpSummary:
    path, found = str(mapped.path), list(dict.fromkeys(problems))
    if physical_offset is None:
        return {
            "type": "summary",
            "structure": structure,
            "path": path,
            "position": position,
            "problems": found,
        }
    return {
        "type": "summary",
        "structure": structure,
        "path": path,
        "position": position,
        "physical_offset": physical_offset,
        "problems": found,
    }


def _fields(schema: Struct, data: bytes, problems: list[str]) -> Iterator[FieldRow]:
    """Rows of a schema's fields until the bytes end or a length cannot be followed."""
    stream = BytesIO(data)
    context = Container(_io=stream, _parsing=True, _building=False, _sizing=False, _params=None)
    context._root = context
    for part in schema.subcons:
        start = stream.tell()
        try:
            value = part._parsereport(stream, context, "")
        except ValidationError as error:
            problems.append(str(error).splitlines()[-1])
            if not _can_go_on(part, context, len(data)):
                return
            continue
        except ConstructError:
            problems.append(f"the bytes end within {part.name}")
            return
        if isinstance(part, Field):
            context[part.name] = value
            taken = data[start : stream.tell()]
            yield _field_row(part, start, taken, value)


def _can_go_on(part: Construct, context: Container, room: int) -> bool:
    """Whether the fields behind a wrong value can still be found. They can if the value is a total
    size: the other lengths are then bounded only by the file."""
    if not isinstance(part, Bound) or part.field_name not in ("magic_code", "total_size"):
        return False
    if part.field_name == "total_size":
        context.total_size = room
    return True


def _field_row(part: Field, offset: int, taken: bytes, value: Any) -> FieldRow:
    return {
        "type": "field",
        "offset": offset,
        "size": len(taken),
        "bytes": taken.hex(),
        "name": part.name,
        "value": _value(part.name, taken, value),
        "meaning": part.docs,
    }


def _value(name: str, taken: bytes, value: Any) -> Any:
    if name.endswith("_address"):
        return host_text(taken, 0).rpartition(":")[0]
    if name == "magic_code":
        known = _MAGIC_NAMES.get(value)
        return f"{value:#010x}" + (f" ({known})" if known else "")
    if name == "topic":
        return decode_utf8(taken)
    if name == "properties":
        return decode_properties(taken)
    if isinstance(value, bytes):
        try:
            return taken.decode()
        except UnicodeDecodeError:
            return None
    return int(value)
