"""Columns of the three structures: the row fields of ``walk``, with Spark's types.

Times are there twice, as the store has them (epoch milliseconds, ``…_timestamp``) and as
timestamps (``…_time``). ``status`` is ``ok``, or what is wrong with the row; a row whose ``status``
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

from typing import NamedTuple

#: Directories that are called so whoever the broker is.
COMMON_NAMES = frozenset(("store", "data", "rocketmq"))


def broker_of(store: str) -> str:
    """The broker's name by the path of its store: ``broker-a`` of ``/data/broker-a/store``."""
    path = store.rpartition("://")[2].split("/")
    names = [name for name in path if name not in ("", ".", "..")]
    telling = [name for name in names if name.lower() not in COMMON_NAMES]
    return (telling or names or [store])[-1]


class Source(NamedTuple):
    """What the rows of one store say of it."""

    store: str
    broker: str


class Column(NamedTuple):
    """A column; ``type`` is Spark's DDL, ``arrow`` the name of pyarrow's type."""

    name: str
    type: str


STRUCTURES: dict[str, tuple[Column, ...]] = {
    "commitlog": (
        Column("physical_offset", "bigint"),
        Column("total_size", "int"),
        Column("topic", "string"),
        Column("queue_id", "int"),
        Column("queue_offset", "bigint"),
        Column("flag", "int"),
        Column("sys_flag", "int"),
        Column("body_crc", "int"),
        Column("born_timestamp", "bigint"),
        Column("born_time", "timestamp"),
        Column("born_host", "string"),
        Column("store_timestamp", "bigint"),
        Column("store_time", "timestamp"),
        Column("store_host", "string"),
        Column("reconsume_times", "int"),
        Column("prepared_transaction_offset", "bigint"),
        Column("body_length", "int"),
        Column("tags_code", "bigint"),
        Column("msg_id", "string"),
        Column("properties", "map<string,string>"),
        Column("body", "binary"),
        Column("status", "string"),
        Column("damage", "string"),
        Column("store", "string"),
        Column("broker", "string"),
    ),
    "queue": (
        Column("topic", "string"),
        Column("queue_id", "int"),
        Column("queue_offset", "bigint"),
        Column("physical_offset", "bigint"),
        Column("size", "int"),
        Column("tags_code", "bigint"),
        Column("status", "string"),
        Column("damage", "string"),
        Column("store", "string"),
        Column("broker", "string"),
    ),
    "index": (
        Column("file", "string"),
        Column("index_no", "int"),
        Column("key_hash", "int"),
        Column("physical_offset", "bigint"),
        Column("time_diff_seconds", "int"),
        Column("prev_index_no", "int"),
        Column("store_timestamp", "bigint"),
        Column("store_time", "timestamp"),
        Column("status", "string"),
        Column("damage", "string"),
        Column("store", "string"),
        Column("broker", "string"),
    ),
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

    :raises ValueError: there is no such structure or column.
    """
    wanted = default_names(structure) if names is None else names
    known = {column.name: column for column in STRUCTURES[structure]}
    for name in wanted:
        if name not in known:
            raise ValueError(f"{structure} has no column {name!r}, but {', '.join(known)}")
    return ", ".join(f"`{name}` {known[name].type}" for name in wanted)
