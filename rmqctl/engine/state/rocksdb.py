"""Reads the RocksDB databases of 5.x, and topics, groups and offsets in them.
:mod:`rmqctl.engine.state.rocksdbqueues` reads the queues.

The package is ``rocksdict`` (extra ``rocksdb``). Even when it only reads, the library writes notes
beside the files that it opens. So a database is opened through a directory of links to its files,
outside of the store. After a kill a database of queues ends where it was last flushed; one of the
configuration has the rest in its own log, which is read.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.engine.files.owndirectory import OwnDirectory
from rmqctl.engine.state import brokerjson, fastjson
from rmqctl.engine.state.rocksdbmanifest import lost_tables
from rmqctl.engine.state.topicconfig import data_version
from rmqctl.errors import UnsupportedStore

if TYPE_CHECKING:
    from types import TracebackType

_DEFAULT, _VERSION, _FORBIDDEN = "default", "kvDataVersion", "forbidden"
#: Attempts to open a database that changes meanwhile, because its broker runs and merges files.
_TRIES = 5
#: Files that RocksDB reads. ``rocksdict-config.json`` must not be linked: the library would write
#: through the link.
_READ = re.compile(
    r"CURRENT|IDENTITY|(MANIFEST|OPTIONS)-[0-9]+|[0-9]+\.(sst|ldb|log|blob)", re.ASCII
)
#: The most bytes of a value that is read. A broker stores less for a topic or group.
_LARGEST_VALUE = 16 << 20


class RocksDBMissing(UnsupportedStore):
    """A database must be read, but the library is not installed."""

    template = "{path} is a RocksDB database, which needs the package rocksdict."
    step = "Nothing was changed. Install it with `{install}`."
    command_step = (
        "Nothing was changed. Install it with `{install}`. `rmqctl rebuild queues --to-file-queues "
        "--in-place --from-log-alone` goes without, with --min-offset TOPIC:QUEUE=N of each queue "
        "whose messages have all expired."
    )


class RocksDBUnreadable(UnsupportedStore):
    """The library cannot open a database, or fails while reading it."""

    template = "{path}: RocksDB cannot be read: {reason}."
    step = "Nothing was changed. Take the database from a backup."
    command_step = (
        "Nothing was changed. Take the database from a backup, or have file queues made of the "
        "log: `rmqctl rebuild queues --to-file-queues --in-place --from-log-alone`, with "
        "--min-offset TOPIC:QUEUE=N of each queue whose messages have all expired."
    )


def is_readable() -> bool:
    """Whether the library is installed."""
    return util.find_spec("rocksdict") is not None


class Database:
    """One database, as it is when it is opened. It is a context manager, or is open from
    :meth:`open` until :meth:`close` or its last reference. Any thread may read.

    :raises RocksDBMissing: ``rocksdict`` is not installed.
    :raises RocksDBUnreadable: the library refuses it.
    """

    def __init__(self, path: Path) -> None:
        if not is_readable():
            from rmqctl.installed import install_command

            raise RocksDBMissing(path=str(path), install=install_command("rocksdb"))
        self._path = path
        links = OwnDirectory("rmqctl-rocksdb-")
        self._links = links.path
        self._remove_links = weakref.finalize(self, links.remove)
        self._families: dict[str, Any] = {}
        self._database: Any = None

    def __enter__(self) -> Database:
        return self.open()

    def open(self) -> Database:
        """Opens the database; tries again if its files change meanwhile."""
        try:
            for left in reversed(range(_TRIES)):
                names: list[str] | None = None
                try:
                    names = self._link()
                    self._open_linked()
                    break
                except Exception:  # The library has no class of its own for its errors.
                    if not left or names is None or names == sorted(os.listdir(self._path)):
                        raise
                    self._families.clear()
        except Exception as error:
            self.close()
            raise self._unreadable(error) from error
        return self

    def _link(self) -> list[str]:
        """Makes the links anew. Returns the names of the database's files."""
        for entry in os.scandir(self._links):
            os.unlink(entry)
        names = []
        for entry in os.scandir(self._path):
            names.append(entry.name)
            if _READ.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                (self._links / entry.name).symlink_to(Path(entry.path).absolute())
        return sorted(names)

    def _open_linked(self) -> None:
        from rocksdict import AccessType, Options, Rdict

        options = Options(raw_mode=True)
        names = Rdict.list_cf(str(self._links), options)
        self._database = Rdict(
            str(self._links),
            options=options,
            column_families={name: Options(raw_mode=True) for name in names},
            access_type=AccessType.read_only(),
        )
        known = [str(one["name"]) for one in self._database.live_files()]
        if lost := lost_tables(self._links, known):
            what = f"the list of its files (MANIFEST) was cut, and has not {', '.join(lost[:3])}"
            raise ValueError(what + ", …" * (len(lost) > 3))
        for name in names:
            self._families[name] = self._database.get_column_family(name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._families.clear()
        if self._database is not None:
            self._database.close()
            self._database = None
        self._remove_links()

    def items(self, family: str, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys from ``start`` on, and values, of a column family, in the order of keys; none
        without the family.

        :raises RocksDBUnreadable: not all can be read. At a damaged block the library's iterator
            ends as behind the last key; only its status tells.
        """
        if family not in self._families:
            return
        iterator = self._families[family].iter()
        iterator.seek(start)
        while (item := self._next(iterator)) is not None:
            yield item

    def _next(self, iterator: Any) -> tuple[bytes, bytes] | None:
        """The next item whose value is not too large; None behind the last."""
        try:
            while iterator.valid():
                key, value = iterator.key(), iterator.value()
                iterator.next()
                if len(value) <= _LARGEST_VALUE:
                    return key, value
            iterator.status()
        except Exception as error:
            raise self._unreadable(error) from error
        return None

    def last(self, family: str, key: bytes) -> bytes | None:
        """The last key of a column family up to ``key``; None without one. :raises
        RocksDBUnreadable: it cannot be read."""
        if family not in self._families:
            return None
        try:
            iterator = self._families[family].iter()
            iterator.seek_for_prev(key)
            if iterator.valid():
                found = iterator.key()
                return found if isinstance(found, bytes) else None
            iterator.status()
        except Exception as error:
            raise self._unreadable(error) from error
        return None

    def get(self, family: str, key: bytes) -> bytes | None:
        try:
            value = self._families[family].get(key) if family in self._families else None
        except Exception as error:
            raise self._unreadable(error) from error
        return value if isinstance(value, bytes) else None

    def _unreadable(self, error: Exception) -> RocksDBUnreadable:
        """The library's error in one line, with the real path instead of the links'."""
        told = " ".join(str(error).split()).replace(str(self._links), str(self._path))
        return RocksDBUnreadable(path=str(self._path), reason=told[:300] or type(error).__name__)


# --- topics, groups, offsets ---------------------------------------------------------------------

#: The databases of ``config/``, with the JSON file that each replaces and its table there.
CONFIG_DATABASES = {
    "topics": (brokerjson.TOPICS, "topicConfigTable"),
    "subscriptionGroups": (brokerjson.SUBSCRIPTION_GROUP, "subscriptionGroupTable"),
    "consumerOffsets": (brokerjson.CONSUMER_OFFSET, "offsetTable"),
}


def config_files(root: Path) -> dict[str, dict[str, Any]]:
    """Name of a file of ``config/`` → its content for a broker with file queues, for each of the
    three databases that exists.

    If a JSON file's counter is ahead of the database's, its entries win, as at a start
    (``RocksDBTopicConfigManager#merge``).

    :raises RocksDBMissing, RocksDBUnreadable: a database cannot be read.
    :raises ConfigFileUnreadable: a value is malformed, or an existing JSON file is broken.
    """
    return {
        name: _config_file(root, directory, name, table)
        for directory, (name, table) in CONFIG_DATABASES.items()
        if (root / brokerjson.CONFIG / directory / "CURRENT").is_file()
    }


def _config_file(root: Path, directory: str, name: str, table: str) -> dict[str, Any]:
    path = root / brokerjson.CONFIG / directory
    with Database(path) as database:
        entries = _values(database, _DEFAULT, path)
        versions = list(_values(database, _VERSION, path).values())
        forbidden = _values(database, _FORBIDDEN, path)
    if name == brokerjson.CONSUMER_OFFSET:
        entries = {
            key: brokerjson.offset_table(brokerjson.table_of(value, table))
            for key, value in entries.items()
        }
    value: dict[str, Any] = {"dataVersion": versions[0]} if versions else {}
    before = brokerjson.read_config(root, name)
    if before is not None and data_version(before)["counter"] > data_version(value)["counter"]:
        entries |= brokerjson.table_of(before, table)
        forbidden |= brokerjson.table_of(before, "forbiddenTable")
        value["dataVersion"] = before["dataVersion"]
    value[table] = entries
    if name == brokerjson.SUBSCRIPTION_GROUP:
        value["forbiddenTable"] = forbidden
    return value


def _values(database: Database, family: str, path: Path) -> dict[str | int, Any]:
    found: dict[str | int, Any] = {}
    for key, value in database.items(family):
        where = f"{path} ({family})"
        name = key.decode("utf-8", "replace")
        text = value.decode("utf-8", "replace")
        found[name] = fastjson.parse(text, path=where, duplicates=[])
    return found
