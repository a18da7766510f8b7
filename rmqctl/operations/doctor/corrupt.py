"""corrupt: a damaged copy of a store, to rehearse on; the store itself is only read."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.files import paths
from rmqctl.engine.files.extents import write_at
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.newdirectory import new_directory
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.settings.filesizes import commit_log_file_size
from rmqctl.engine.settings.logdirectories import log_directories
from rmqctl.errors import CannotRead, CannotWriteThere
from rmqctl.operations.doctor.faults import KINDS, Damaged, Fault, faults_of

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.rows.doctor import CorruptedRow, CorruptSummary

_CHUNK = 1 << 20
#: Files that belong to a running process and are no data.
_LEFT_OUT = (paths.LOCK,)


class Corrupted(NamedTuple):
    """A damaged copy, with its faults by kind, in the order in which they were done."""

    output: Path
    seed: int
    faults: list[tuple[str, Fault]]
    copied_bytes: int


def corrupt(
    root: Path,
    config: MessageStoreConfig,
    output: Path,
    kinds: Sequence[str],
    seed: int,
    copied: Callable[[int], None] = lambda size: None,
) -> Corrupted:
    """Copies a store, and damages the copy, which appears when all is done. The same kinds and the
    same seed damage the same store in the same way.

    :param kinds: of :data:`~rmqctl.operations.doctor.faults.KINDS`; empty: one that the seed
        chooses.
    :param copied: called with the number of bytes copied.
    :raises OutputExists: ``output`` holds something.
    :raises CannotWrite: ``output`` lies in the store, or the disk is full.
    :raises NothingToDamage: the store has nothing that a kind could damage.
    """
    paths.check_store(root)
    if paths.resolved(output).is_relative_to(paths.resolved(root)):
        raise CannotWriteThere(path=str(output), reason="it lies inside the store")
    file_size = commit_log_file_size(root, config)
    log_at = log_directories(root, config)
    # What a DLedger group keeps is copied where it lies, and is not damaged.
    directories = [one for one in log_at.all if one != log_at.dledger]
    chance = random.Random(f"{' '.join(kinds)} {seed}")
    chosen = list(kinds) or [chance.choice(list(KINDS))]
    size = 0
    with new_directory(output) as building:
        for source, target in _pairs(root, building, directories):
            size += _copy(source, target, copied)
        log = CommitLog(building / paths.COMMIT_LOG, file_size)
        try:
            faults = list(faults_of(Damaged(building, log, chance), chosen))
        finally:
            log.close()
    return Corrupted(output, seed, faults, size)


def _pairs(root: Path, target: Path, log: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Each file of a store with its path in the copy. A log in several directories becomes one
    directory. No link to a directory is followed."""
    own = root / paths.COMMIT_LOG
    for directory, names, files in os.walk(root, onerror=_refused):
        where = Path(directory)
        if where == own and own not in log:
            names.clear()
            continue
        names.sort()
        made = target / where.relative_to(root)
        made.mkdir(exist_ok=True)
        for name in sorted(files):
            if where != root or name not in _LEFT_OUT:
                yield where / name, made / name
    for elsewhere in log:
        if elsewhere != own:
            (target / paths.COMMIT_LOG).mkdir(exist_ok=True)
            for name in paths.scan_names(elsewhere):
                yield elsewhere / name, target / paths.COMMIT_LOG / name


def _refused(error: OSError) -> None:
    """Raises the error of a listing, such as of a directory that may not be read. A directory that
    a broker has removed meanwhile is no error."""
    if not isinstance(error, FileNotFoundError):
        raise CannotRead(path=str(error.filename), reason=error.strerror) from error


def _copy(source: Path, target: Path, copied: Callable[[int], None]) -> int:
    """Copies a regular file, holes as holes; anything else is left out. Returns how many bytes of
    data were copied."""
    try:
        if not stat.S_ISREG(source.stat().st_mode):
            return 0
    except FileNotFoundError:
        return 0  # A broker's retention has removed it meanwhile, or a link leads nowhere.
    except OSError as error:
        raise CannotRead(path=str(source), reason=error.strerror) from error
    mapped, size = MappedFile.open(source), 0
    try:
        with target.open("xb") as file:
            os.ftruncate(file.fileno(), mapped.size)
            for low, high in mapped.extents(0, mapped.size):
                for at in range(low, high, _CHUNK):
                    data = mapped.read_aside(at, min(_CHUNK, high - at))
                    write_at(file.fileno(), data, at)
                    size += len(data)
                    copied(len(data))
    finally:
        mapped.close()
    return size


# --- rows ------------------------------------------------------------------------------------


def corrupted_row(kind: str, fault: Fault) -> CorruptedRow:
    """A fault as a row."""
    return {
        "type": "corrupted",
        "kind": kind,
        "path": fault.path,
        "position": fault.position,
        "length": fault.length,
        "physical_offset": fault.physical_offset,
        "what": fault.what,
    }


def summary_row(done: Corrupted) -> CorruptSummary:
    return {
        "type": "summary",
        "output": str(done.output),
        "seed": done.seed,
        "copied_bytes": done.copied_bytes,
    }
