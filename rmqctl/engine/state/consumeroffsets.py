"""Reads and sets a broker's offsets for one group and topic.

They are in ``consumerOffset.json``. A broker with ``enableLmq`` keeps all its offsets in
``lmqConsumerOffset.json``, where a light group has one offset, that of queue 0
(``LmqConsumerOffsetManager``). Everything else in the file stays as it is.

Each change is first noted in a journal that no broker reads. The ``.bak`` would not do: a running
broker soon overwrites it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.constants import LMQ_PREFIX
from rmqctl.engine.files.extents import write_at
from rmqctl.engine.files.writing import open_for_writing, writing_error
from rmqctl.engine.state import brokerjson, fastjson
from rmqctl.engine.state.persist import check_persist, persist
from rmqctl.errors import ConfigFileUnreadable

#: The journal: one JSON object per line, the oldest first.
JOURNAL = "rmqctl-offsets.ndjson"


@dataclass(slots=True)
class ConsumerOffsets:
    """A file of offsets, and in it the entry of one group and topic."""

    root: Path
    name: str
    table: str
    key: str
    value: dict[Any, Any]
    is_backup: bool

    @property
    def offsets(self) -> dict[int, int]:
        """Queue id → the offset that the group consumes next; empty: there is no entry."""
        entry = brokerjson.table_of(self.value, self.table).get(self.key)
        return brokerjson.offset_table({0: entry} if self.is_light else entry)

    @property
    def is_light(self) -> bool:
        """Whether the entry is one offset, instead of one for each queue."""
        return self.table != "offsetTable"

    def set(self, changes: dict[int, int], journal: list[dict[str, Any]]) -> None:
        """Adds lines to the journal, then sets offsets, both durably.

        :raises SymbolicLinkRefused, StoreReadOnly, CannotWrite: the offsets are as they were.
        """
        # Checked first, so that a noted change is not refused afterwards.
        check_persist(self.root, self.name, keep_backup=self.is_backup)
        _note(self.root, journal)
        self.put(changes)
        persist(self.root, self.name, fastjson.dumps(self.value), keep_backup=self.is_backup)

    def put(self, changes: dict[int, int]) -> None:
        """Sets offsets in :attr:`value` only, and stores nothing."""
        table = self.value.setdefault(self.table, {})
        if self.is_light:
            table[self.key] = changes[0]
        else:
            entry = table.get(self.key)
            kept = entry if isinstance(entry, dict) else {}
            # Else a queue id in quotes would be there twice.
            rest = {key: offset for key, offset in kept.items() if _number(key) not in changes}
            table[self.key] = dict(sorted((rest | changes).items(), key=_order))


def _number(key: Any) -> int | None:
    return next(iter(brokerjson.offset_table({key: 0})), None)


def _order(item: tuple[Any, Any]) -> tuple[int, int]:
    number = _number(item[0])
    return (0, number) if number is not None else (1, 0)


def load_consumer_offsets(
    root: Path, group: str, topic: str, enable_lmq: bool | None
) -> ConsumerOffsets:
    """The file that a broker with this ``enableLmq`` reads. If that is not known (None), it is the
    file that has an entry for group and topic; if both have, it is ``consumerOffset.json``, as for
    :func:`~rmqctl.engine.state.brokerjson.consumer_offsets`.

    :raises ConfigFileUnreadable: the file is broken, and its ``.bak`` does not help.
    """
    key = f"{topic}{brokerjson.TOPIC_GROUP_SEPARATOR}{group}"
    is_light = group.startswith(LMQ_PREFIX)
    table = brokerjson.LMQ_OFFSET_TABLE if is_light else "offsetTable"
    if enable_lmq:
        return _load(root, brokerjson.LMQ_CONSUMER_OFFSET, table, key)
    plain = _load(root, brokerjson.CONSUMER_OFFSET, "offsetTable", key)
    if plain.offsets or enable_lmq is False:
        return plain
    lmq = _load(root, brokerjson.LMQ_CONSUMER_OFFSET, table, key)
    return lmq if lmq.offsets else plain


def _load(root: Path, name: str, table: str, key: str) -> ConsumerOffsets:
    """Loads the file as ``ConfigManager#load`` does, else its ``.bak``."""
    path = root / brokerjson.CONFIG / name
    broken: ConfigFileUnreadable | None = None
    for candidate in (path, path.with_name(name + brokerjson.BACKUP)):
        try:
            value = brokerjson.read(candidate, [])
            if value is None:
                continue
            if not isinstance(value, dict) or not isinstance(value.get(table, {}), dict):
                raise ConfigFileUnreadable(
                    path=str(candidate), line=1, column=1, reason=f"it has no object {table!r}"
                )
            return ConsumerOffsets(root, name, table, key, value, candidate != path)
        except ConfigFileUnreadable as error:
            broken = broken or error
    if broken is not None:
        raise broken
    return ConsumerOffsets(root, name, table, key, {}, False)


def _note(root: Path, journal: list[dict[str, Any]]) -> None:
    """Adds lines to the journal, durably."""
    path = root / brokerjson.CONFIG / JOURNAL
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in journal)
    descriptor = open_for_writing(root, path, create=True)
    try:
        size = os.fstat(descriptor).st_size
        # A killed run may have left a line without its end.
        is_cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        data = ("\n" * is_cut + text).encode()
        try:
            write_at(descriptor, data, size)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
        os.fsync(descriptor)
    except OSError as error:
        raise writing_error(path, error) from error
    finally:
        os.close(descriptor)
