"""What the driver of ``rmqctl fleet`` holds and does for a fleet that is not there.

``python tests/benchmarks/fleet.py`` makes up facts of 1,000 brokers of 10 TB, as tasks would send
them, and gives them to the code that a run gives them to: the notes of a split store's parts are
joined, the rows are put in order, summed up and made a page. Nothing of a store is read. The facts
follow from a seed; processor time and memory (what this process has at most, above what it had
before) are measured.
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
    """What the task of one part sends: its count and its bounds."""
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
    """The whole of a store whose notes are held until the last one is there, and their bytes."""
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
    """A row of each store, the last one first, so that all are held until the end."""
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
