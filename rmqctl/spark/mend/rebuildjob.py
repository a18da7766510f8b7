"""What the tasks of a rebuild get from the driver, what they return to it, and where they write.

Each attempt of a task builds in its own directory, and renames only complete files. So retried or
speculative attempts do no harm.
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
    """What the scan of a part returns to the driver. Of topics it has only those that cannot have a
    queue, because there may be more topics than parts."""

    records: int
    keys: int
    lost: int
    last_record: int
    last_key: int
    damage: list[Damage]
    refused_topics: list[str]


@dataclass(frozen=True)
class Job:
    """What tasks get from the driver: only plain values."""

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
        """How many units a queue's file has; 0 if queues cannot be cut into files. That is so if
        files do not end with a whole unit, or if there is an extension, in which each unit's place
        depends on all units before it."""
        if self.writes_ext or self.queue_file_size % UNIT_SIZE:
            return 0
        return self.queue_file_size // UNIT_SIZE


def attempt_of(job: Job) -> Path:
    """Makes a directory for one attempt of a task. :raises NotShared: this node does not see the
    directory that the driver has made for all attempts."""
    attempt = Path(job.attempts) / uuid.uuid4().hex
    try:
        attempt.mkdir()
    except FileNotFoundError as error:
        raise NotShared(path=job.output) from error
    return attempt


def put_in_place(building: Path, output: Path, relative: Path) -> Iterator[Path]:
    """Renames the files of a directory into one below the output, and forces the names to disk. It
    never makes the output itself, so a task that comes too late leaves nothing."""
    for parent in (*reversed(relative.parents[:-1]), relative):
        (output / parent).mkdir(exist_ok=True)
    place = output / relative
    for source in sorted(building.iterdir()):
        os.replace(source, place / source.name)
        yield place / source.name
    sync_directory(place)


def prefix_sums(counts: list[int]) -> list[int]:
    """For each count the sum of the counts before it."""
    sums = [0]
    for count in counts:
        sums.append(sums[-1] + count)
    return sums[:-1]
