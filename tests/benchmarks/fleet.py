"""Measures what the driver of ``rmqctl fleet`` needs for a large fleet, which is only made up.

``python tests/benchmarks/fleet.py`` makes up what the tasks would send of 1,000 brokers of 10 TB,
and gives that to the code that a real run gives it to: it joins the notes of a split store's parts,
sorts and sums up the rows, and makes the page. No store is read. A seed decides what is made up.
Measured are processor time, and by how much the process's memory grows at most.
"""

from __future__ import annotations

import argparse
import pickle
import random
import resource
import time
from collections.abc import Iterator
from typing import Any

from rmqctl.cli.fleetpage import page
from rmqctl.engine.scan.ranges import PartBounds
from rmqctl.operations.fleet.counting import Count
from rmqctl.operations.fleet.looking import VERBS, row
from rmqctl.operations.fleet.run import Asked, Run
from rmqctl.operations.fleet.stores import FleetStore
from rmqctl.operations.fleet.sums import Sums
from rmqctl.rows import Row
from rmqctl.rows.fleets import FleetStoreRow
from rmqctl.spark.mend.facts import PART_BYTES

HOUR = 3_600_000


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def note(chance: random.Random, part: int, record_bytes: int) -> list[bytes]:
    """What the task of one part of a store sends: its count and its bounds."""
    start = part * PART_BYTES
    count = Count(
        records=PART_BYTES // record_bytes,
        record_bytes=PART_BYTES - 4096,
        retries=chance.randrange(1000),
        damages=int(chance.random() < 0.001),
        blank_bytes=4096,
        first=part * HOUR,
        last=part * HOUR + chance.randrange(HOUR),
    )
    bounds = PartBounds(part, start, start + PART_BYTES, False)
    return [pickle.dumps(count), pickle.dumps(bounds)]


def split_store(chance: random.Random, parts: int, record_bytes: int) -> tuple[Count, int]:
    """The count of a whole store, joined from the notes of its parts once all are there; and the
    bytes of these notes."""
    notes: list[list[Any]] = []
    size = 0
    for part in range(parts):
        sent = note(chance, part, record_bytes)
        size += sum(map(len, sent))
        notes.append([pickle.loads(one) for one in sent])
    whole = Count()
    for told in notes:
        whole.join(told[0])
    return whole, size


def found(run: Run, whole: Count) -> Iterator[tuple[int, FleetStoreRow]]:
    """A row of each store. The last one comes first, so that the driver has to hold all of them
    until the end."""
    known = {name: getattr(whole, name) for name in VERBS["stats"] if hasattr(whole, name)}
    for at in reversed(range(len(run.left))):
        one = run.left[at].task.store
        yield at, row(one, "stats", 0.0, records=whole.records, bytes=whole.record_bytes, **known)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--terabytes", type=float, default=10)
    parser.add_argument("--record-bytes", type=int, default=1024)
    given = parser.parse_args()
    parts = int(given.terabytes * 1e12) // PART_BYTES
    chance, before, began = random.Random(1), peak_mib(), time.process_time()
    whole, size = split_store(chance, parts, given.record_bytes)
    print(
        f"one store: {parts:,} parts, {whole.records:,} records, notes of {size // parts} bytes, "
        f"{time.process_time() - began:.1f} s, {peak_mib() - before:.0f} MiB"
    )
    before, began = peak_mib(), time.process_time()
    stores = [
        FleetStore(f"broker-{number}", f"/nowhere/broker-{number}/store", f"broker-{number}")
        for number in range(given.brokers)
    ]
    run, sums = Run(stores, Asked("stats"), no_remote), Sums("stats")
    rows: list[Row] = []
    for one in run.in_order(found(run, whole)):
        sums.add(one)
        rows.append(one)
    text = page(rows, sums.summary(), "stats")
    print(
        f"{len(rows):,} rows: {sums.summary()['records']:,} records, page of {len(text):,} bytes, "
        f"{time.process_time() - began:.1f} s, {peak_mib() - before:.0f} MiB"
    )


def no_remote(url: str, config: object) -> Any:
    raise AssertionError(url)


if __name__ == "__main__":
    main()
