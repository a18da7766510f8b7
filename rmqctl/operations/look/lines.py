"""Rows of messages as lines made by the kernel: the rows of ``rows.py``, many at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from formats.text import encode_utf8
from rmqctl.engine.read.lines import LinesOfUnits, WantedLines
from rmqctl.rows.structures import MessageRow, UnitRow

if TYPE_CHECKING:
    from rmqctl.engine.read.lines import Cell, UnitParts
    from rmqctl.operations.look.walk import Selection

#: The fields of a message without its body.
REQUIRED = tuple(
    name for name in MessageRow.__annotations__ if name in MessageRow.__required_keys__
)
#: A topic name that a broker takes (``TopicValidator``): no character in it has to be escaped.
_NAME = re.compile(r"[%|a-zA-Z0-9_.-]+")
_WITH_BODY = ("body", "body_encoding", "status")
#: What ``--decompress`` tells of a body that is not compressed. The kernel makes no line of others.
_AS_STORED = {"body_compression": "none", "body_status": "stored", "body_reason": ""}


def wanted_lines(
    form: str, body: str, decompress_limit: int | None = None, what: Selection | None = None
) -> WantedLines:
    """Lines with the fields of :func:`~rmqctl.operations.look.rows.message_row_with_body`.

    :param form: ``ndjson`` or ``csv``.
    :param what: a selection, of which topic, queue and times count.
    """
    always = {"type": "message"}
    names: tuple[str, ...] = REQUIRED
    if body != "none":
        names = REQUIRED + _WITH_BODY
        if decompress_limit is not None:
            always |= _AS_STORED
            names += tuple(_AS_STORED)
    quote = '"' if form == "ndjson" else ""
    cells: list[Cell] = [
        (name, f"{quote}{always[name]}{quote}".encode() if name in always else None)
        for name in names
    ]
    wanted = WantedLines(
        form,
        tuple(cells),
        "base64" if body == "none" else body,
        decompresses=body != "none" and decompress_limit is not None,
        checks=body != "none",
    )
    if what is None:
        return wanted
    topic = None if what.topic is None else encode_utf8(what.topic)
    return wanted._replace(topic=topic, queue_id=what.queue_id, since=what.since, until=what.until)


_UNIT = ("type", "topic", "queue_id", "queue_offset", "physical_offset", "size", "tags_code")


def lines_of_units(
    form: str, topic: str, queue_id: int, what: Selection, end_offset: int
) -> LinesOfUnits | None:
    """Lines with the fields of :func:`~rmqctl.operations.look.rows.unit_row`; None where the topic
    has a name that no broker takes."""
    if tuple(UnitRow.__annotations__) != _UNIT or _NAME.fullmatch(topic) is None:
        return None
    parts: UnitParts
    if form == "csv":
        parts = (f"unit,{topic},{queue_id},".encode(), b",", b",", b",", b"\n")
    else:
        head = f'{{"type":"unit","topic":"{topic}","queue_id":{queue_id},"queue_offset":'
        more = tuple(f',"{name}":'.encode() for name in _UNIT[4:])
        parts = (head.encode(), more[0], more[1], more[2], b"}\n")
    return LinesOfUnits(parts, _UNIT, what.start, what.end, end_offset)
