"""What the tasks of a rebuild are told, what they tell, and where they write.

A task builds in a directory of its own attempt and renames what is whole: retried or doubled tasks
do no harm.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.files.durable import sync_directory
from rmqctl.engine.queue.consumequeue import UNIT_SIZE
from rmqctl.engine.record.record import Damage
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.spark.session.staging import NotShared


class PartNote(NamedTuple):
    """What a part tells the driver; of topics only those that no queue may have, as there may be
    more of them than parts."""

    records: int
    keys: int
    lost: int
    last_record: int
    last_key: int
    damage: list[Damage]
    refused_topics: list[str]


@dataclass(frozen=True)
class Job:
    """What tasks are told; plain values only."""

    root: str
    output: str
    attempts: str
    config: MessageStoreConfig
    log_file_size: int
    queue_file_size: int
    ext_file_size: int | None
    queues: bool
    index: bool

    @property
    def writes_ext(self) -> bool:
        return self.ext_file_size is not None

    @property
    def units_per_file(self) -> int:
        """0 when queues are not cut: a file does not end with a unit, or what an extension has of a
        unit lies behind that of all units before it."""
        if self.writes_ext or self.queue_file_size % UNIT_SIZE:
            return 0
        return self.queue_file_size // UNIT_SIZE


def attempt_of(job: Job) -> Path:
    """A directory for one attempt of a task; :raises NotShared: this node has not the one that the
    driver has made for all of them."""
    attempt = Path(job.attempts) / uuid.uuid4().hex
    try:
        attempt.mkdir()
    except FileNotFoundError as error:
        raise NotShared(path=job.output) from error
    return attempt


def put_in_place(building: Path, output: Path, relative: Path) -> Iterator[Path]:
    """Renames the files of a directory into one below the output, durably. The output itself is
    never made: a task that comes too late must leave nothing."""
    for parent in (*reversed(relative.parents[:-1]), relative):
        (output / parent).mkdir(exist_ok=True)
    place = output / relative
    for source in sorted(building.iterdir()):
        os.replace(source, place / source.name)
        yield place / source.name
    sync_directory(place)


def prefix_sums(counts: list[int]) -> list[int]:
    """For each count the sum of those before it."""
    sums = [0]
    for count in counts:
        sums.append(sums[-1] + count)
    return sums[:-1]
