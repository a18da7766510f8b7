"""export: messages as Parquet, NDJSON or CSV files, a directory a topic and day.

The scanner passes over the log once, and nothing is held but what goes into the next files. The
rows, and the layout of the files, are those of the same export on Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from rmqctl.engine.files.newdirectory import new_directory
from rmqctl.engine.log.onward import onward
from rmqctl.engine.log.times import stretches
from rmqctl.engine.record.record import Damage
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.operations.look.exportfiles import TextFiles, partitions, tell_topics
from rmqctl.rows.exported import BASE64, Exported

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.scan.choice import Choice
    from rmqctl.rows.columns import Source

#: The file that tells that an export is whole, as Hadoop's committer leaves it.
_WHOLE = "_SUCCESS"


class StoreToExport(NamedTuple):
    """An open store, and the columns that name it in its rows."""

    store: MessageStore
    source: Source


class _Files(Protocol):
    def write(self, batch: Batch, source: Source) -> None: ...

    def close(self) -> None: ...


def export(
    stores: list[StoreToExport],
    columns: list[str],
    to: Path,
    kind: str,
    choice: Choice,
    progress: Callable[[int], None] = lambda done: None,
) -> Exported:
    """Writes the chosen messages of some stores to a new directory, which appears whole, or not at
    all. Damaged places are left out and counted, whatever topic is chosen; bodies that are wanted
    are checked. Of a log only those files are read that may hold messages of the chosen times.

    :param columns: of :func:`~rmqctl.rows.exported.exported_columns`.
    :param kind: ``parquet``, ``ndjson`` or ``csv``.
    :param progress: called with the bytes read so far, of all logs together.
    :raises ArrowMissing: Parquet is wanted, and pyarrow is not installed.
    :raises OutputExists, OutputInUse, CannotWrite: as of
        :func:`~rmqctl.engine.files.newdirectory.new_directory`.
    """
    if kind == "parquet":
        from rmqctl.arrow.present import check_arrow

        check_arrow()
    checks = not {"body", BASE64, "status"}.isdisjoint(columns)
    messages = damages = mismatches = done = 0
    topics: set[str] = set()
    with new_directory(to) as building, ExitStack() as closing:
        files = _files(building, columns, kind, closing)
        for one in stores:
            store, log, before = one.store, one.store.commit_log, done
            scanner = Scanner(log, check=checks, properties=False)
            parts = stretches(log, choice.since, choice.until)
            # What has the name of a file and is none.
            damages += sum(entry.size < 0 for entry in log.files.irregular)
            names: list[str] = []
            for entry in chain.from_iterable(onward(log, scanner.scan, *part) for part in parts):
                damages += isinstance(entry, Damage)
                if not isinstance(entry, Batch):
                    continue
                names = entry.topics.names  # Those of the scan so far.
                progress(before + entry.end_offset - store.min_offset)
                batch = choice.of(entry)
                if batch is not None:
                    files.write(batch, one.source)
                    messages += len(batch)
                    mismatches += len(batch) - int(np.count_nonzero(batch.crc_matches))
            topics.update(names)
            done += store.max_offset - store.min_offset
        files.close()
        tell_topics(building, topics)
        (building / _WHOLE).touch()
    return Exported(messages, damages, mismatches)


def _files(building: Path, columns: list[str], kind: str, closing: ExitStack) -> _Files:
    """The writer of the files; ``closing`` closes it, also where the export fails."""
    if kind != "parquet":
        text = TextFiles(building, columns, kind)
        closing.callback(text.close)
        return text
    from rmqctl.arrow.parquet import ParquetFiles

    parquet = ParquetFiles(building, columns, partitions)
    closing.callback(parquet.abandon)
    return parquet
