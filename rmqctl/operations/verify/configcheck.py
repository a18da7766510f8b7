"""config check: checks the files of ``config/`` by themselves, against their ``.bak`` copies, and
against the queues. Only a file that the system refuses to read ends it. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.constants import LMQ_PREFIX, RMQ_SYS_SCHEDULE_TOPIC
from rmqctl.engine.files.lock import is_locked
from rmqctl.engine.files.paths import scan_names
from rmqctl.engine.services.anyqueue import opened_queue, queue_directories
from rmqctl.engine.state import brokerjson as files
from rmqctl.engine.state.fastjson import DuplicateKey
from rmqctl.engine.state.laterversions import config_not_in_files
from rmqctl.engine.state.orderinfo import CONSUMER_ORDER_INFO, is_order_info
from rmqctl.engine.state.persist import temporaries
from rmqctl.engine.state.topicconfig import (
    PERM_INHERIT,
    is_system_group,
    needs_no_config,
    number,
)
from rmqctl.errors import ConfigFileUnreadable, NotAConfigFile
from rmqctl.operations.verify.configcodes import NO_COPY, NO_LOG, NO_SOUND_COPY
from rmqctl.operations.verify.directories import check_is_directory, check_queue_size
from rmqctl.operations.verify.findings import CODES, Adviser, Finding, Tally, finding
from rmqctl.rows.words import some

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore

_SUFFIX = ".json"
#: The files that a broker persists there, with the tables that each must have.
_TABLES = {
    files.TOPICS: ("topicConfigTable",),
    **files.OFFSET_TABLES,
    files.SUBSCRIPTION_GROUP: ("subscriptionGroupTable",),
    files.CONSUMER_FILTER: ("filterDataByTopic",),
    files.DELAY_OFFSET: ("offsetTable",),
    CONSUMER_ORDER_INFO: ("table",),
}


@dataclass(slots=True)
class Summary(Tally):
    """What was looked at, and how many findings of each severity there were."""

    files: int = 0
    topics: int = 0
    groups: int = 0
    offsets: int = 0

    def row(self) -> dict[str, object]:
        """The summary's fields."""
        return {
            "files": self.files,
            "topics": self.topics,
            "groups": self.groups,
            "offsets": self.offsets,
            **self.counts(),
        }


def check(store: MessageStore, summary: Summary) -> Iterator[Finding]:
    """Yields the findings file by file, then those between files and queues; fills ``summary``.

    :raises CannotRead: the system refuses to read a file.
    """
    advised = Adviser(store.root, store.config)
    for found in _Check(store, summary).run():
        summary.severities[found.severity] += 1
        yield advised(found)


class _Parsed(NamedTuple):
    """One parsed file: its value (None where it is absent, empty or broken), and what is wrong."""

    value: Any
    is_broken: bool
    findings: list[Finding]


class _Check:
    def __init__(self, store: MessageStore, summary: Summary) -> None:
        self._store = store
        self._summary = summary
        self._directory = store.root / files.CONFIG
        self._offsets = files.offsets_file(store.root, store.config.told_lmq)
        self._ranges: dict[tuple[str, int], tuple[int, int]] = {}
        for where in queue_directories(store):
            with opened_queue(store, where.topic, where.queue_id) as queue:
                if queue is not None:
                    place = where.topic, where.queue_id
                    self._ranges[place] = queue.min_offset, queue.max_offset
        #: What a broker uses in place of these files, such as a database.
        self._instead = config_not_in_files(store.root, store.config)
        self._values: dict[str, Any] = {}
        self._groups: set[str] = set()

    def run(self) -> Iterator[Finding]:
        yield from check_queue_size(self._store.queues.file_size)
        yield from check_is_directory(self._store.root, files.CONFIG)
        for path, what in self._instead:
            yield finding("not-understood", path=path, found=what)
        names = scan_names(self._directory)
        known = {name for name in names if name.endswith(_SUFFIX)}
        known |= {n.removesuffix(files.BACKUP) for n in names if n.endswith(_SUFFIX + files.BACKUP)}
        known |= {files.TOPICS, files.SUBSCRIPTION_GROUP, self._offsets}
        known |= {files.DELAY_OFFSET} if self._is_lost(files.DELAY_OFFSET) else set()
        for name in sorted(known):
            yield from self._file(name)
        for name in names:
            if name.endswith(temporaries(_SUFFIX)):
                yield finding("config-temporary-left", path=self._path(name))
        yield from self._topics()
        for name, tables in files.OFFSET_TABLES.items():
            for table in tables:
                yield from self._consumer_offsets(name, table)
        yield from self._group_configs()
        yield from self._delay_offsets()
        yield from self._order_infos()

    @property
    def _has_messages(self) -> bool:
        return any(low < high for low, high in self._ranges.values())

    def _is_lost(self, name: str) -> bool:
        """Whether a file that is not there must have been: a broker that wrote ``topics.json``
        writes its offsets every few seconds, also where there are none. One that runs is about
        to."""
        if name == files.DELAY_OFFSET:
            is_asked = any(
                topic == RMQ_SYS_SCHEDULE_TOPIC and low < high
                for (topic, _), (low, high) in self._ranges.items()
            )
        else:
            is_asked = name == self._offsets
        return (
            is_asked
            and files.was_written(self._store.root, files.TOPICS)
            and not is_locked(self._store.root)
        )

    def _path(self, name: str) -> str:
        return f"{files.CONFIG}/{name}"

    # --- one file --------------------------------------------------------------------------

    def _file(self, name: str) -> Iterator[Finding]:
        """Parses a file and its copy, and keeps the content that a broker would use."""
        file = self._parsed(name, "config-unreadable")
        malformed = list(self._tables(name, name, file.value))
        # A broker that finds nothing in the file, or fails on it, takes the copy.
        is_needed = file.value is None or bool(malformed)
        copy_code = "config-unreadable" if is_needed else "config-backup-unreadable"
        backup = self._copy(name, copy_code)
        for one in (*file.findings, *backup.findings):
            yield _of_state(one, backup)
        if file.value is None and not file.is_broken:
            if backup.value is not None:
                yield finding("config-missing", path=self._path(name), found=name + files.BACKUP)
            elif not (self._instead or backup.is_broken) and self._has_messages:
                code = "config-offsets-lost" if self._is_lost(name) else "config-absent"
                yield finding(code, path=self._path(name))
        self._values[name] = backup.value if file.value is None else file.value
        if file.value is not None:
            yield from malformed
            yield from self._age(name, file.value, backup.value)

    def _copy(self, name: str, code: str) -> _Parsed:
        """Reads the copy of a file. A copy with other tables counts as broken, too."""
        backup = self._parsed(name + files.BACKUP, code)
        malformed = self._tables(name, name + files.BACKUP, backup.value)
        known = CODES[code]
        bad = [
            one._replace(code=code, severity=known.severity, advice=known.advice)
            for one in malformed
        ]
        return _Parsed(None, True, backup.findings + bad) if bad else backup

    def _parsed(self, name: str, code: str) -> _Parsed:
        """Reads one file; ``code`` is the code of the finding where it is broken."""
        duplicates: list[DuplicateKey] = []
        path = self._path(name)
        try:
            value = files.read(self._directory / name, duplicates)
        except ConfigFileUnreadable as error:
            at = f"line {error.line}, column {error.column}: "
            where = f"{'' if isinstance(error, NotAConfigFile) else at}{error.reason}"
            bad = finding(code, path=path, expected="a broker's JSON", found=where)
            return _Parsed(None, True, [bad])
        self._summary.files += value is not None
        places = [f"{key!r} in line {line}, column {column}" for key, line, column in duplicates]
        return _Parsed(
            value,
            False,
            [finding("config-duplicate-key", path=path, found=place) for place in places],
        )

    def _tables(self, name: str, path: str, value: Any) -> Iterator[Finding]:
        """Findings of tables of ``name`` that are no objects; none for a file without a value."""
        for table in _TABLES.get(name, ()) if value is not None else ():
            found = value.get(table, {}) if isinstance(value, dict) else value
            if not isinstance(found, dict):
                kind = "null" if found is None else f"a value of type {type(found).__name__}"
                yield self._malformed(path, f"an object {table!r}", kind)

    def _malformed(self, name: str, expected: str, found: object) -> Finding:
        return finding(
            "config-entry-malformed", path=self._path(name), expected=expected, found=found
        )

    def _age(self, name: str, value: Any, backup: Any) -> Iterator[Finding]:
        """Checks that the copy is older: ``dataVersion`` only grows, and so do offsets, except by a
        reset."""
        mine, other = _version(value), _version(backup)
        if mine < other:
            yield finding(
                "config-older-than-backup",
                path=self._path(name),
                expected=f"dataVersion of at least {other}",
                found=mine,
            )
        is_offsets = name in files.OFFSET_TABLES
        for key, offsets in files.table_of(value, "offsetTable").items() if is_offsets else ():
            before = files.offset_table(files.table_of(backup, "offsetTable").get(key))
            for queue_id, offset in files.offset_table(offsets).items():
                if offset < before.get(queue_id, offset):
                    topic, group = files.topic_and_group(key) or (str(key), "?")
                    yield finding(
                        "consumer-offset-moved-back",
                        path=self._path(name),
                        topic=topic,
                        queue_id=queue_id,
                        queue_offset=offset,
                        expected=f"at least {before[queue_id]}, as in the .bak",
                        found=f"group {group} at {offset}",
                    )

    # --- topics and queues -----------------------------------------------------------------

    def _topics(self) -> Iterator[Finding]:
        table = files.table_of(self._values[files.TOPICS], "topicConfigTable")
        configured = {str(topic): config for topic, config in table.items()}
        self._summary.topics = len(configured)
        with_queues: dict[str, list[int]] = {}
        for topic, queue_id in self._ranges:
            with_queues.setdefault(topic, []).append(queue_id)
        path = self._path(files.TOPICS)
        for topic, config in configured.items():
            numbers = [number(config, name) for name in ("readQueueNums", "writeQueueNums")]
            if None in numbers:
                yield self._malformed(files.TOPICS, "readQueueNums and writeQueueNums", f"{topic}")
            elif topic in with_queues:
                yield from self._queue_numbers(topic, with_queues[topic], numbers)
            elif not needs_no_config(topic) and not (number(config, "perm") or 0) & PERM_INHERIT:
                yield finding("topic-without-queue", path=path, topic=topic)
        for topic in with_queues if self._values[files.TOPICS] is not None else ():
            if topic not in configured and not needs_no_config(topic):
                yield finding("queue-without-topic-config", path=path, topic=topic)

    def _queue_numbers(
        self, topic: str, queue_ids: list[int], numbers: list[int | None]
    ) -> Iterator[Finding]:
        readable, writable = numbers
        for queue_id in queue_ids:
            low, high = self._ranges[topic, queue_id]
            for code, name, limit in (
                ("queue-not-readable", "readQueueNums", readable if low < high else None),
                ("queue-not-writable", "writeQueueNums", writable),
            ):
                if limit is not None and queue_id >= limit and not needs_no_config(topic):
                    yield finding(
                        code,
                        path=self._path(files.TOPICS),
                        topic=topic,
                        queue_id=queue_id,
                        expected=f"below {name} {limit}",
                        found=some(high - low, "message"),
                    )
                    break

    # --- offsets ---------------------------------------------------------------------------

    def _consumer_offsets(self, name: str, table: str) -> Iterator[Finding]:
        for key, value in files.table_of(self._values.get(name), table).items():
            owner = files.topic_and_group(key)
            is_light = table != "offsetTable"
            offsets = files.offset_table({0: value} if is_light else value)
            count = len(value) if isinstance(value, dict) else int(is_light)
            if owner is None or len(offsets) != count or not (is_light or isinstance(value, dict)):
                yield self._malformed(name, "topic@group, and numbers of queues and offsets", key)
            if owner is None:
                continue
            self._groups.add(owner[1])
            self._summary.offsets += len(offsets)
            for queue_id, offset in offsets.items():
                yield from self._consumer_offset(name, *owner, queue_id, offset)

    def _group_configs(self) -> Iterator[Finding]:
        value = self._values[files.SUBSCRIPTION_GROUP]
        known = set(map(str, files.table_of(value, "subscriptionGroupTable")))
        self._summary.groups = len(self._groups | known)
        for group in sorted(self._groups - known) if value is not None else ():
            if not is_system_group(group) and not group.startswith(LMQ_PREFIX):
                path = self._path(files.SUBSCRIPTION_GROUP)
                yield finding("group-without-config", path=path, found=f"group {group}")

    def _consumer_offset(
        self, name: str, topic: str, group: str, queue_id: int, offset: int
    ) -> Iterator[Finding]:
        bounds = self._ranges.get((topic, queue_id))
        if offset <= 0 if bounds is None else bounds[0] <= offset <= bounds[1]:
            return  # As nearly all are, of which there may be a million.
        where = {
            "path": self._path(name),
            "topic": topic,
            "queue_id": queue_id,
            "queue_offset": offset,
            "found": f"group {group} at {offset}",
        }
        if bounds is None:
            yield finding("consumer-offset-without-queue", **where)
        elif offset > bounds[1]:
            advice = {} if self._store.commit_log.files.entries else {"advice": NO_LOG}
            yield finding("consumer-offset-past-queue", expected=_within(bounds), **where, **advice)
        else:
            yield finding("consumer-offset-before-queue", expected=_within(bounds), **where)

    def _order_infos(self) -> Iterator[Finding]:
        """Checks the queues that are popped in order. A broker that cannot read one entry takes
        none of them."""
        name = CONSUMER_ORDER_INFO
        table = files.table_of(self._values.get(name), "table")
        others = sum(
            files.topic_and_group(key) is None
            or not isinstance(queues, dict)
            or not all(map(is_order_info, queues.values()))
            for key, queues in table.items()
        )
        if others:
            found = f"{others} of {len(table)} entries are others"
            yield self._malformed(name, "topic@group and a pop of each queue", found)

    def _delay_offsets(self) -> Iterator[Finding]:
        table = files.table_of(self._values.get(files.DELAY_OFFSET), "offsetTable")
        offsets = files.offset_table(table)
        if len(offsets) != len(table):
            found = f"{len(table) - len(offsets)} of {len(table)} entries are others"
            yield self._malformed(files.DELAY_OFFSET, "numbers of levels and offsets", found)
        levels = len(self._store.dispatcher.delay_levels)
        path = self._path(files.DELAY_OFFSET)
        queues = {
            queue_id + 1: bounds
            for (topic, queue_id), bounds in self._ranges.items()
            if topic == RMQ_SYS_SCHEDULE_TOPIC
        }
        for level in sorted(queues.keys() | offsets.keys()):
            offset, bounds = offsets.get(level), queues.get(level, (0, 0))
            where: dict[str, object] = {
                "path": path,
                "topic": RMQ_SYS_SCHEDULE_TOPIC,
                "queue_id": level - 1,
                "queue_offset": offset,
                "found": f"level {level} at {offset}" if offset is not None else f"level {level}",
            }
            if not 0 < level <= levels:
                yield finding("delay-level-unknown", expected=f"1 to {levels}", **where)
            elif offset is None:
                if bounds[0] < bounds[1]:
                    yield finding("delay-offset-missing", expected=_within(bounds), **where)
            elif offset > bounds[1]:
                yield finding("delay-offset-past-queue", expected=_within(bounds), **where)
            elif offset < bounds[0]:
                yield finding("delay-offset-before-queue", expected=_within(bounds), **where)


def _of_state(found: Finding, backup: _Parsed) -> Finding:
    """A finding of a file or of its copy, with other advice where the copy does not help."""
    if found.code != "config-unreadable" or backup.value is not None:
        return found
    return found._replace(advice=NO_SOUND_COPY if backup.is_broken else NO_COPY)


def _within(bounds: tuple[int, int]) -> str:
    return f"{bounds[0]} to {bounds[1]}"


def _version(value: Any) -> tuple[int, int]:
    """The ``DataVersion``: the time and the number of the last change; zeros without one."""
    version = files.table_of(value, "dataVersion")
    return number(version, "timestamp") or 0, number(version, "counter") or 0
