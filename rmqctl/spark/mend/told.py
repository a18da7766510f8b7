"""What the tasks of a check tell the driver: findings, counts and ends, each pickled in a row."""

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
    """Something of a kind, pickled."""

    kind: str
    data: bytes


def told_of(kind: str, value: object) -> Told:
    return Told(kind, pickle.dumps(value))


def answers(frame: DataFrame) -> Iterator[tuple[str, Any]]:
    """What tasks told; all of it comes to the driver, which puts it in order."""
    for row in frame.collect():
        yield row["kind"], pickle.loads(row["data"])
