"""``config/*.json``: a broker's settings and offsets, in the dialect of
:mod:`rmqctl.engine.state.fastjson`.

``ConfigManager#persist`` keeps the older file as ``.bak``, and ``ConfigManager#load`` reads that
when the file is absent, empty or broken. The size of a file that is read is bounded.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from rmqctl.engine.files.paths import NOT_REGULAR, read_start
from rmqctl.engine.state.fastjson import DuplicateKey, parse, place
from rmqctl.errors import ConfigFileUnreadable, NotAConfigFile

CONFIG = "config"
BACKUP = ".bak"
TOPICS = "topics.json"
CONSUMER_OFFSET = "consumerOffset.json"
LMQ_CONSUMER_OFFSET = "lmqConsumerOffset.json"
SUBSCRIPTION_GROUP = "subscriptionGroup.json"
CONSUMER_FILTER = "consumerFilter.json"
DELAY_OFFSET = "delayOffset.json"
#: Where a light group has one offset of each topic (``LmqConsumerOffsetManager``).
LMQ_OFFSET_TABLE = "lmqOffsetTable"
#: Files of consumer offsets, and their tables. With ``enableLmq`` all offsets are in the second.
OFFSET_TABLES = {
    CONSUMER_OFFSET: ("offsetTable",),
    LMQ_CONSUMER_OFFSET: ("offsetTable", LMQ_OFFSET_TABLE),
}
#: ``ConsumerOffsetManager.TOPIC_GROUP_SEPARATOR``.
TOPIC_GROUP_SEPARATOR = "@"

#: The most bytes of a file. The largest ones of brokers have some megabytes.
MAX_BYTES = 256 << 20


def read(path: Path, duplicates: list[DuplicateKey] | None = None) -> Any:
    """The value of one file; None when it is absent or empty, as for ``ConfigManager#load``.

    :raises CannotRead: the system refuses.
    :raises ConfigFileUnreadable: it is no regular file, too large, not UTF-8, or not the dialect.
    """
    try:
        text = read_text(path)
    except FileNotFoundError:
        return None
    return parse(text, path=str(path), duplicates=duplicates) if text else None


def read_text(path: Path) -> str:
    """The text of one file. :raises FileNotFoundError: there is none; others as :func:`read`."""
    if not os.path.lexists(path):
        raise FileNotFoundError(path)
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        # Other errors than a link that leads nowhere are raised when it is opened.
        is_file = not isinstance(error, FileNotFoundError)
    if not is_file:
        raise NotAConfigFile(path=str(path), line=1, column=1, reason=NOT_REGULAR)
    data = read_start(path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ConfigFileUnreadable(
            path=str(path), line=1, column=1, reason=f"it has more than {MAX_BYTES} bytes"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line, column = place(before := data[: error.start].decode(), len(before))
        raise ConfigFileUnreadable(
            path=str(path), line=line, column=column, reason="it is not UTF-8 text"
        ) from error


def read_config(root: Path, name: str) -> Any:
    """:func:`read_kept` of ``config/<name>`` of the store at ``root``."""
    return read_kept(root / CONFIG / name)


def read_kept(path: Path) -> Any:
    """A file's value as a broker loads it (``ConfigManager#load``): from its ``.bak`` if the file
    is absent, empty or broken. :raises ConfigFileUnreadable: it is broken, and so is the
    ``.bak``."""
    backup = path.with_name(path.name + BACKUP)
    try:
        value = read(path, [])
    except ConfigFileUnreadable:
        with suppress(ConfigFileUnreadable):
            if (value := read(backup, [])) is not None:
                return value
        raise
    return read(backup, []) if value is None else value


def is_of_backup(root: Path, name: str) -> bool:
    """Whether a broker takes ``config/<name>`` from its ``.bak``, if there is one: the file is
    absent, empty or broken. :raises CannotRead: the system refuses."""
    try:
        return read(root / CONFIG / name, []) is None
    except ConfigFileUnreadable:
        return True


def was_written(root: Path, name: str) -> bool:
    """Whether there is something in ``config/<name>``, or in its ``.bak``."""
    both = (root / CONFIG / one for one in (name, name + BACKUP))
    return any(one.is_file() and one.stat().st_size for one in both)


def offsets_file(root: Path, enable_lmq: bool | None) -> str:
    """The name of the file in which a broker with this ``enableLmq`` keeps offsets of consumers
    (4.9.3: the constructor of ``BrokerController``). If that is not known (None), it is the one
    that is there."""
    if enable_lmq is None:
        enable_lmq = not was_written(root, CONSUMER_OFFSET) and was_written(
            root, LMQ_CONSUMER_OFFSET
        )
    return LMQ_CONSUMER_OFFSET if enable_lmq else CONSUMER_OFFSET


def table_of(value: Any, name: str) -> dict[Any, Any]:
    """The object ``name`` in a file's value; empty when it is absent or null."""
    table = value.get(name) if isinstance(value, dict) else None
    return table if isinstance(table, dict) else {}


def offset_table(value: Any) -> dict[int, int]:
    """A ``{number: offset}`` of ``consumerOffset.json`` or ``delayOffset.json``, without other
    entries. Quoted numbers count, as for fastjson."""
    table = {}
    for key, offset in value.items() if isinstance(value, dict) else ():
        number, place = whole(key), whole(offset)
        if number is not None and place is not None:
            table[number] = place
    return table


def consumer_offsets(root: Path, enable_lmq: bool | None) -> dict[tuple[str, str], dict[int, int]]:
    """``(topic, group)`` → queue id → the offset that the group consumes next.

    From the file that a broker with this ``enableLmq`` reads. If that is not known (None), from
    both: what is in both counts as ``consumerOffset.json`` has it. Without keys other than
    ``topic@group``.
    """
    if enable_lmq is not None:
        return _offsets_of(root, offsets_file(root, enable_lmq))
    offsets = _offsets_of(root, LMQ_CONSUMER_OFFSET)
    plain = _offsets_of(root, CONSUMER_OFFSET)
    return offsets | {owner: found for owner, found in plain.items() if found}


def _offsets_of(root: Path, name: str) -> dict[tuple[str, str], dict[int, int]]:
    """The offsets in one of the files of :data:`OFFSET_TABLES`."""
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    value = read_config(root, name)
    for table in OFFSET_TABLES[name]:
        for key, item in table_of(value, table).items():
            owner = topic_and_group(key)
            if owner is None:
                continue
            # LmqConsumerOffsetManager keeps one offset for each group: that of queue 0.
            is_light = table == LMQ_OFFSET_TABLE
            offsets[owner] = offset_table({0: item} if is_light else item)
    return offsets


def topic_and_group(key: str | int) -> tuple[str, str] | None:
    """The two parts of ``topic@group``; None if there are not exactly two."""
    parts = str(key).split(TOPIC_GROUP_SEPARATOR)
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None


def delay_offsets(root: Path) -> dict[int, int]:
    """Delay level → the queue offset in ``SCHEDULE_TOPIC_XXXX`` that is delivered next."""
    return offset_table(table_of(read_config(root, DELAY_OFFSET), "offsetTable"))


def whole(value: Any) -> int | None:
    """A whole number, also a quoted one, as for fastjson; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value, re.ASCII):
        return int(value)
    return None
