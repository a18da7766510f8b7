"""What the tasks of a check return to the driver: findings, counts and ends, each pickled in a
row."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOLD = pa.schema([("kind", pa.string()), ("data", pa.binary())])
TOLD_DDL = "kind string, data binary"


class Told(NamedTuple):
    """A pickled value, and its kind."""

    kind: str
    data: bytes


def told_of(kind: str, value: object) -> Told:
    return Told(kind, pickle.dumps(value))


def answers(frame: DataFrame) -> Iterator[tuple[str, Any]]:
    """What the tasks returned. All of it comes to the driver, which sorts it."""
    for row in frame.collect():
        yield row["kind"], pickle.loads(row["data"])
