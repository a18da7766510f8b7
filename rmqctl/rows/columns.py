"""Columns of the three structures: the row fields of ``walk``, with Spark's types.

Times are there twice, as the store has them (epoch milliseconds, ``…_timestamp``) and as
timestamps (``…_time``). ``status`` is ``ok``, or what is wrong with the row, or
``unchecked`` where a body was not compared with its CRC; a row whose ``status``
is ``damage`` is a stretch of the store that cannot be read: ``damage`` says why,
``physical_offset`` and ``total_size`` say where and how much.

The log's ``tags_code`` is the hash of the tags; the queue's is what its unit holds, which for a
delayed message is the time of its delivery.

``store`` is the store's directory, or its URL without user, password and query. ``broker`` is the
broker's name, which a store does not hold: the ``brokerName`` of the ``broker.conf`` that is given,
when one store is read (given for several, it tells their sizes); else the last name of the store's
path that is none of ``store``, ``data`` and ``rocketmq``, and where all of them are, the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqctl.rows.field import fields_of
from rmqctl.rows.structures import IndexItemRow, MessageRow, UnitRow

#: Directories that are called so whoever the broker is.
COMMON_NAMES = frozenset(("store", "data", "rocketmq"))


def broker_of(store: str) -> str:
    """The broker's name by the path of its store: ``broker-a`` of ``/data/broker-a/store``."""
    path = store.rpartition("://")[2].split("/")
    names = [name for name in path if name not in ("", ".", "..")]
    telling = [name for name in names if name.lower() not in COMMON_NAMES]
    return (telling or names or [store])[-1]


def written_out(name: str) -> str:
    """A name as the system has it, with those of its bytes that are no UTF-8 as ``\\xff``: columns
    of text hold nothing else."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class Source(NamedTuple):
    """What the rows of one store say of it."""

    store: str
    broker: str


def source_of(store: str, broker_name: str) -> Source:
    """Of a store by its path; ``broker_name`` is empty where nobody has said it."""
    store = written_out(store)
    return Source(store, broker_name or broker_of(store))


class Column(NamedTuple):
    """A column; ``type`` is Spark's DDL. ``is_of_spark``: the row of ``walk`` has no such field, or
    has it as another type."""

    name: str
    type: str
    meaning: str
    is_of_spark: bool = False


#: The rows whose fields are the columns of each structure.
ROWS: dict[str, type] = {"commitlog": MessageRow, "queue": UnitRow, "index": IndexItemRow}

_TYPES = {str: "string", dict[str, str]: "map<string,string>"}
_INTEGERS = {32: "int", 64: "bigint"}
#: Columns that a structure has behind the fields of its row.
_MORE = {
    "commitlog": (Column("body", "binary", "the stored body, which may be compressed", True),),
}
#: What every structure ends with.
_STATE = (
    Column(
        "status",
        "string",
        "`ok`, `unchecked` (nobody has looked at the body), or what is wrong with the row",
        True,
    ),
    Column("damage", "string", "of a stretch that cannot be read: why", True),
    Column("store", "string", "directory or URL of the store", True),
    Column(
        "broker", "string", "the broker's name, by `broker.conf` or by the path of the store", True
    ),
)


def _columns(row: type) -> Iterator[Column]:
    """The fields that every row has, and behind a ``…_timestamp`` the same as ``…_time``."""
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
#: Left out unless they are asked for: ``body`` costs most of the reading.
ON_REQUEST = frozenset({"body"})


def default_names(structure: str) -> list[str]:
    """The columns that are there when none are asked for; :raises ValueError: no such structure."""
    if structure not in STRUCTURES:
        raise ValueError(f"structure {structure!r} is none of {', '.join(STRUCTURES)}")
    return [column.name for column in STRUCTURES[structure] if column.name not in ON_REQUEST]


def ddl(structure: str, names: list[str] | None = None) -> str:
    """The schema of a structure as Spark writes it; with ``names`` only those columns, in order.
    Their meanings are comments, which ``DESCRIBE`` shows.

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
