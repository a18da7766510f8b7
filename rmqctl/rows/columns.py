"""The columns of log, queues and index on Spark: the fields of the rows of ``walk``, with Spark's
types.

Each time has two columns: as it is stored (epoch milliseconds, ``…_timestamp``) and as a timestamp
(``…_time``). ``status`` is ``ok``, ``unchecked`` if the body was not compared with its CRC, or what
is wrong with the row. A row with the ``status`` ``damage`` is a stretch of the store that cannot be
read: ``damage`` says why, ``physical_offset`` where, and ``total_size`` how long it is.

``tags_code`` of a log record is the hash of its tags. ``tags_code`` of a unit is what the unit
holds: for a delayed message this is the time of its delivery.

``store`` is the store's directory, or its URL without user, password and query. ``broker`` is the
name of the broker, which a store does not contain. When one store is read with a ``broker.conf``,
it is the ``brokerName`` there (with several stores, that file tells only their file sizes). Else it
is the last name in the store's path other than ``store``, ``data`` and ``rocketmq``, or the last
name if there is no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqctl.rows.field import fields_of
from rmqctl.rows.structures import IndexItemRow, MessageRow, UnitRow

#: Names of directories that say nothing about the broker.
COMMON_NAMES = frozenset(("store", "data", "rocketmq"))


def broker_of(store: str) -> str:
    """The broker's name by the path of its store: ``broker-a`` for ``/data/broker-a/store``."""
    path = store.rpartition("://")[2].split("/")
    names = [name for name in path if name not in ("", ".", "..")]
    telling = [name for name in names if name.lower() not in COMMON_NAMES]
    return (telling or names or [store])[-1]


def written_out(name: str) -> str:
    """The name of a file, as valid text for a column: bytes that are not UTF-8 are written as
    escapes like ``\\xff``."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class Source(NamedTuple):
    """The values of the columns ``store`` and ``broker`` for one store."""

    store: str
    broker: str


def source_of(store: str, broker_name: str) -> Source:
    """The :class:`Source` of the store at a path. ``broker_name`` is empty if it is not known."""
    store = written_out(store)
    return Source(store, broker_name or broker_of(store))


class Column(NamedTuple):
    """A column. ``type`` is its type in Spark's DDL. ``is_of_spark`` says that the row of ``walk``
    has no such field, or one of another type."""

    name: str
    type: str
    meaning: str
    is_of_spark: bool = False


#: The rows whose fields are the columns of each structure.
ROWS: dict[str, type] = {"commitlog": MessageRow, "queue": UnitRow, "index": IndexItemRow}

_TYPES = {str: "string", dict[str, str]: "map<string,string>"}
_INTEGERS = {32: "int", 64: "bigint"}
#: Columns of a structure in addition to the fields of its row.
_MORE = {
    "commitlog": (Column("body", "binary", "the stored body, which may be compressed", True),),
}
#: The last columns of every structure.
_STATE = (
    Column(
        "status",
        "string",
        "`ok`, `unchecked` (the body was not compared with its CRC), or what is wrong with the row",
        True,
    ),
    Column("damage", "string", "why a stretch cannot be read; null for other rows", True),
    Column("store", "string", "directory or URL of the store", True),
    Column(
        "broker", "string", "the broker's name, by `broker.conf` or by the path of the store", True
    ),
)


def _columns(row: type) -> Iterator[Column]:
    """A column for each field that every row has, and after each ``…_timestamp`` one for the same
    time as a timestamp."""
    for field in fields_of(row):
        if field.name == "type" or field.is_optional:
            continue
        (kind,) = field.types
        ddl_type = _INTEGERS[field.bits] if kind is int else _TYPES[kind]
        yield Column(field.name, ddl_type, field.meaning)
        if field.name.endswith("_timestamp"):
            time = field.name.removesuffix("stamp")
            yield Column(time, "timestamp", f"`{field.name}` as a timestamp", True)


STRUCTURES: dict[str, tuple[Column, ...]] = {
    structure: (*_columns(row), *_MORE.get(structure, ()), *_STATE)
    for structure, row in ROWS.items()
}
#: Columns that are left out unless they are named: reading ``body`` takes most of the time.
ON_REQUEST = frozenset({"body"})


def default_names(structure: str) -> list[str]:
    """The columns of a structure when none are named. :raises ValueError: no such structure."""
    if structure not in STRUCTURES:
        raise ValueError(f"structure {structure!r} is none of {', '.join(STRUCTURES)}")
    return [column.name for column in STRUCTURES[structure] if column.name not in ON_REQUEST]


def ddl(structure: str, names: list[str] | None = None) -> str:
    """The schema of a structure in Spark's DDL. With ``names`` it has only these columns, in this
    order. The meanings are comments, which ``DESCRIBE`` shows.

    :raises ValueError: there is no such structure or column.
    """
    wanted = default_names(structure) if names is None else names
    known = {column.name: column for column in STRUCTURES[structure]}
    for name in wanted:
        if name not in known:
            raise ValueError(f"{structure} has no column {name!r}, but {', '.join(known)}")
    return ", ".join(_declared(known[name]) for name in wanted)


def _declared(column: Column) -> str:
    comment = column.meaning.replace("\\", "\\\\").replace("'", "\\'")
    return f"`{column.name}` {column.type} COMMENT '{comment}'"
