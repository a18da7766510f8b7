"""Structures of later versions of RocketMQ in a store, and the form of their records.

Most of them can be ignored, because the commit log stays the truth. Some forbid all writing: queues
in RocksDB would not get new messages, so consumers would never see them; a log that a DLedger group
or a controller keeps in several copies would differ from the others; and with offsets and topics in
RocksDB the JSON files are out of date.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats import constants
from rmqctl.engine.files.paths import (
    BATCH_CONSUME_QUEUE,
    COMPACTION_LOG,
    CONSUME_QUEUE,
    queue_paths,
    scan_names,
)
from rmqctl.engine.record.form import CRC32_RESERVED_LENGTH, FORM_OF_4_9_3, RecordForm
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.logdirectories import dledger_logs
from rmqctl.errors import (
    CannotRead,
    ConfigFileUnreadable,
    UnsupportedStore,
    UsageError,
    WrittenByItsBrokers,
)

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig

_QUEUES_IN_ROCKSDB = {
    "consumequeue_r": "queues in RocksDB (5.x)",
    "consumequeue_rocksdb": "queues in RocksDB (5.x)",
}
#: ``CQType.BatchCQ``, as the attribute of a topic spells it.
_BATCH_TYPE = "BatchCQ"
#: ``CleanupPolicy.COMPACTION``, likewise.
_COMPACTION = "COMPACTION"
#: Every broker since 5.4 makes this database when it starts (``MessageRocksDBStorage``).
_DATABASE_OF_5_4 = "rocksdbstore"
_PASSED_OVER = {
    "transRocksDBStore": "transactions in RocksDB (5.x)",
    "timerRocksDBStore": "timers in RocksDB (5.x)",
    "indexRocksDBStore": "index in RocksDB (5.x)",
    "rocksdb": "RocksDB (5.x)",
    _DATABASE_OF_5_4: "index, timers or transactions in RocksDB (5.4 and later)",
    "kvStore": "pop in RocksDB (5.x)",
    "config/users": "users in RocksDB (5.x)",
    "config/acls": "rights in RocksDB (5.x)",
}
#: Files of controller mode only (``AutoSwitchHAService``, ``ReplicasManager``).
_CONTROLLER = ("epochFileCheckpoint", "brokerIdentity")
_READING = "reading commands, and `rmqctl rebuild --output`, work on it"
_READING_A_MEMBER = (
    "reading commands, and `rmqctl rebuild` of queues and index, work on it, and `rmqctl export "
    "--format store` makes a store of its messages that is in no group"
)
#: Where 5.x keeps offsets, topics and groups if configured so; the JSON files are then old or
#: missing.
_OFFSETS_IN_ROCKSDB = {
    "config/consumerOffsets": "offsets in RocksDB (5.x)",
    "config/rdb": "topics, groups and offsets in RocksDB (5.x)",
    "config/metadata": "topics, groups and offsets in RocksDB (5.x)",
}
_CONFIG_IN_ROCKSDB = _OFFSETS_IN_ROCKSDB | {
    "config/topics": "topics in RocksDB (5.x)",
    "config/subscriptionGroups": "groups in RocksDB (5.x)",
}
#: The ``storeType`` for queues, and with them the configuration, in RocksDB
#: (``MessageStoreConfig#isEnableRocksDBStore``, which ignores case).
_ROCKSDB_STORE = "defaultRocksDB"
#: Every RocksDB database has this file.
_ROCKSDB_MARK = "CURRENT"


#: These three come with queues in RocksDB, and become JSON files when queues become files.
_GO_WITH_QUEUES = ("config/topics", "config/subscriptionGroups", "config/consumerOffsets")


class QueuesInRocksDB(UnsupportedStore):
    """The store keeps its queues in RocksDB."""

    template = (
        "{path}: {reason}. Nothing was changed. Let its broker write, or have file queues made of "
        "them: `rmqctl rebuild queues --to-file-queues --in-place`."
    )


def not_understood(root: Path) -> Iterator[tuple[str, str]]:
    """``(name, what it is)`` of structures in a store that are not read."""
    names = _QUEUES_IN_ROCKSDB | _PASSED_OVER | _CONFIG_IN_ROCKSDB
    for name, what in names.items():
        if not _holds_something(root, name):
            continue
        if name != _DATABASE_OF_5_4 or not _is_empty_database(root / name):
            yield name, what
    if os.path.isfile(root / CONSUME_QUEUE / _ROCKSDB_MARK):  # Path's raises without the right
        yield CONSUME_QUEUE, "queues in RocksDB (5.x)"


def queues_in_rocksdb(root: Path, config: MessageStoreConfig) -> str | None:
    """Name below a store of the database with the queues that its broker reads; None: the queue
    files count.

    A store may have both: its broker was switched, or it also writes a copy of the queues to files.
    ``storeType`` decides; if it is not set, existing files count, which may be wrong
    (:func:`has_doubtful_queues`).
    """
    database = rocksdb_of_queues(root)
    if database is None:
        return None
    if config.is_explicit("store_type"):
        return database if is_rocksdb_type(config) else None
    return None if config.rocksdb_c_q_double_write_enable or _has_files(root) else database


def has_doubtful_queues(root: Path, config: MessageStoreConfig) -> bool:
    """Whether a store has queues both in files and in RocksDB, and no setting says which its broker
    reads."""
    is_said = config.is_explicit("store_type") or config.rocksdb_c_q_double_write_enable
    return not is_said and rocksdb_of_queues(root) is not None and _has_files(root)


def _has_files(root: Path) -> bool:
    return next(queue_paths(root / CONSUME_QUEUE), None) is not None


def rocksdb_of_queues(root: Path) -> str | None:
    """Name below a store of a database of queues, whether it counts or not; None without one."""
    for name in (CONSUME_QUEUE, *_QUEUES_IN_ROCKSDB):
        # Path's own raises without the right.
        if os.path.isfile(root / name / _ROCKSDB_MARK):
            return name
    return None


def is_rocksdb_type(config: MessageStoreConfig) -> bool:
    """Whether a broker with this configuration keeps its queues in RocksDB."""
    return config.store_type.lower() == _ROCKSDB_STORE.lower()


def _holds_something(root: Path, name: str) -> bool:
    """Whether a file is there, or a directory with a file below it: 5.x also makes directories for
    things that are switched off."""
    # Each opening tests two dozen names that mostly do not exist, so no Path is made for each.
    path = f"{root}/{name}"
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise
    return not stat.S_ISDIR(status.st_mode) or any(files for _, _, files in os.walk(path))


def _is_empty_database(path: Path) -> bool:
    """Whether there is a RocksDB database with nothing in it: no table, and nothing in its log."""
    names = scan_names(path)
    logs = (path / name for name in names if name.endswith(".log"))
    has_tables = any(name.endswith(".sst") for name in names)
    is_one = any(name.startswith("MANIFEST-") for name in names)
    return is_one and not has_tables and not any(log.stat().st_size for log in logs)


def queues_not_understood(root: Path) -> bool:
    """Whether a store has queues in RocksDB, which are not read as files."""
    kinds = {name for name, _ in not_understood(root)}
    return bool(kinds & {CONSUME_QUEUE, *_QUEUES_IN_ROCKSDB})


def batch_topics(root: Path) -> frozenset[str]:
    """Topics whose queues are batch queues: by their directories, and by the attribute
    ``queue.type`` in ``topics.json`` for topics without messages yet.

    If that file is broken, which ``config check`` reports, only the directories count.
    """
    found = set(scan_names(root / BATCH_CONSUME_QUEUE))
    if is_of_5(root):
        found |= _stated(root, "queue.type", _BATCH_TYPE)
    return frozenset(found)


def compacted_topics(root: Path) -> frozenset[str]:
    """Topics of which a broker keeps only the latest message of each key: by their directories, and
    by the attribute ``cleanup.policy``."""
    found = set(scan_names(root / COMPACTION_LOG))
    if is_of_5(root):
        found |= _stated(root, "cleanup.policy", _COMPACTION)
    return frozenset(found)


def _stated(root: Path, attribute: str, wanted: str) -> set[str]:
    """Topics with this attribute value in ``topics.json``."""
    # Imported here: stores of 4.9.3 do not need it.
    from rmqctl.engine.state import brokerjson

    try:
        text = brokerjson.read_text(root / brokerjson.CONFIG / brokerjson.TOPICS)
        # Most files do not contain the word, and so are not parsed.
        value = brokerjson.read_config(root, brokerjson.TOPICS) if wanted in text else None
    except (FileNotFoundError, ConfigFileUnreadable, CannotRead):
        return set()
    return _with_attribute(value, attribute, wanted)


def topics_of_batches(value: Any) -> set[str]:
    """Topics in the value of a ``topics.json`` whose queues are batch queues."""
    return _with_attribute(value, "queue.type", _BATCH_TYPE)


def _with_attribute(value: Any, attribute: str, wanted: str) -> set[str]:
    from rmqctl.engine.state import brokerjson

    found = set()
    for topic, entry in brokerjson.table_of(value, "topicConfigTable").items():
        attributes = entry.get("attributes") if isinstance(entry, dict) else None
        if isinstance(attributes, dict) and attributes.get(attribute) == wanted:
            found.add(str(topic))
    return found


def check_understood(root: Path, config: MessageStoreConfig, *, log_stays: bool = False) -> None:
    """Every command checks this before it changes a store. Takes no lock.

    :param config: may also announce structures that do not exist yet.
    :param log_stays: only queues and index are changed, which each member of a DLedger group has
        for itself.
    :raises UnsupportedStore: messages put here would be in no queue that a broker reads.
    :raises WrittenByItsBrokers: the log is in ``dledger-*/data``, and records put into
        ``commitlog/`` would have the offsets of its records; or a controller keeps the copies in
        step by epochs; or topics, groups and offsets are not in the JSON files.
    """
    groups = dledger_logs(root) or ["dledger-*"] * config.enable_d_leger_commit_log
    for name in [] if log_stays else groups:
        raise WrittenByItsBrokers(
            path=str(root / name),
            reason="a DLedger group keeps this store's log there, and would never serve what is "
            "written beside it",
            advice=_READING_A_MEMBER,
        )
    for name, what in not_understood(root):
        if name in _QUEUES_IN_ROCKSDB or name == CONSUME_QUEUE:
            raise QueuesInRocksDB(path=str(root / name), reason=f"the store keeps its {what}")
    if is_rocksdb_type(config):
        raise QueuesInRocksDB(
            path=str(root / CONSUME_QUEUE),
            reason=f"storeType={config.store_type}: its broker keeps queues in RocksDB (5.x)",
        )
    _check_no_controller(root, config)
    said = config.config_manager_version.lower() == "v2"
    for name in config_in_rocksdb(root) or ["configManagerVersion=v2"] * said:
        raise WrittenByItsBrokers(
            path=str(root),
            reason=f"it keeps topics, groups or offsets in RocksDB ({name}), and the JSON files of "
            "config/ may be long out of date",
            advice=_READING,
        )


def is_written_by_its_brokers(root: Path, config: MessageStoreConfig) -> bool:
    """Whether :func:`check_understood` refuses the store, so that no command here writes to it.
    False if the system does not let it look: other code reports that."""
    try:
        check_understood(root, config)
    except UnsupportedStore:
        return True
    except (CannotRead, PermissionError):
        return False
    return False


def _check_no_controller(root: Path, config: MessageStoreConfig) -> None:
    epochs = [name for name in _CONTROLLER if _holds_something(root, name)]
    for name in epochs or ["enableControllerMode"] * config.enable_controller_mode:
        raise WrittenByItsBrokers(
            path=str(root),
            reason=f"it is one of several copies that a controller keeps alike ({name}), and one "
            "that is changed by itself is cut back or differs from the others",
            advice=_READING,
        )


def rocksdb_to_convert(root: Path, config: MessageStoreConfig) -> list[str]:
    """The databases of a store that shall get file queues (``rebuild --to-file-queues``), those of
    queues first.

    :raises UsageError: there are none.
    :raises UnsupportedStore: it has other databases, or must not be changed for another reason.
    :raises WrittenByItsBrokers: a controller keeps its copies in step.
    """
    _check_no_controller(root, config)
    for name in dledger_logs(root):
        raise UnsupportedStore(path=str(root / name), reason="a DLedger group keeps its log there")
    known = {CONSUME_QUEUE, *_QUEUES_IN_ROCKSDB, *_GO_WITH_QUEUES}
    found = []
    for name, what in not_understood(root):
        if name in known:
            found.append(name)
        elif name in _CONFIG_IN_ROCKSDB:
            raise UnsupportedStore(path=str(root / name), reason=f"the store has {what}")
    if not found:
        raise UsageError(reason=f"{root} has no queues in RocksDB: leave --to-file-queues out.")
    return sorted(found, key=lambda name: name in _GO_WITH_QUEUES)


def check_offsets_in_files(root: Path) -> None:
    """:raises UnsupportedStore: the broker does not read its offsets from the JSON files."""
    for name, what in _OFFSETS_IN_ROCKSDB.items():
        if _holds_something(root, name):
            raise UnsupportedStore(path=str(root / name), reason=f"the store keeps its {what}")


def config_in_rocksdb(root: Path) -> list[str]:
    """Databases in a store that replace the JSON files of ``config/``, which are missing or out of
    date."""
    return [name for name in _CONFIG_IN_ROCKSDB if _holds_something(root, name)]


def config_not_in_files(root: Path, config: MessageStoreConfig) -> list[tuple[str, str]]:
    """``(name, what it is)`` of databases that a broker reads instead of the JSON files of
    ``config/``: existing ones, or the one that its ``broker.conf`` asks for."""
    found = [(name, _CONFIG_IN_ROCKSDB[name]) for name in config_in_rocksdb(root)]
    if not found and config.config_manager_version.lower() == "v2":
        found.append(("config/rdb", "configManagerVersion=v2: " + _CONFIG_IN_ROCKSDB["config/rdb"]))
    return found


def is_of_5(root: Path) -> bool:
    """Whether a broker of 5.x has run on the store: 5.0 and later make a ``timerwheel`` when they
    start, 5.1 and later ``compaction/`` when they stop."""
    is_of_any = (root / "timerwheel").is_file() or (root / "compaction").is_dir()
    return is_of_any or indexes_tags(root)


def indexes_tags(root: Path) -> bool:
    """Whether a broker of 5.4 or later has run on the store. It gives each message an index item of
    its tags (``IndexService#buildIndex``)."""
    # Path's own raises without the right.
    return os.path.isfile(root / _DATABASE_OF_5_4 / _ROCKSDB_MARK)


def abort_content(form: RecordForm) -> bytes:
    """The content of a new ``abort``: the process id, as in 5.x
    (``DefaultMessageStore#createTempFile``), or nothing, as in 4.9.3. It is only for people to
    read: what counts is that the file exists."""
    return b"" if form == FORM_OF_4_9_3 else str(os.getpid()).encode()


def record_form(root: Path, newest: Record | None) -> RecordForm:
    """The form in which the store's own version writes records, by its newest record.

    A record without properties tells little: then it is the form of 4.9.3, which every version
    reads. Topics of more than 127 bytes are only possible if 5.x has run: it has left its own
    files, or a record of that kind.
    """
    data = newest.properties_bytes if newest is not None else b""
    crc_name = constants.PROPERTY_CRC32.encode()
    return RecordForm(
        property_separator=data.endswith(constants.PROPERTY_SEPARATOR.encode()),
        property_crc=data[-CRC32_RESERVED_LENGTH:].startswith(crc_name),
        long_topics=is_of_5(root)
        or (newest is not None and newest.magic_code == constants.MESSAGE_MAGIC_CODE_V2),
    )
