"""Writes the files of a salvaged log, one after the other: sparse, a piece at a time.

A file gets its name when it is whole and on disk. So the run after one that was cut off goes on
behind the last file, if it is to write the same log.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files import durable, paths
from rmqctl.engine.files.extents import extents, write_at
from rmqctl.engine.files.paths import listed_status
from rmqctl.engine.state import brokerjson, controller
from rmqctl.engine.state.laterversions import batch_topics
from rmqctl.errors import CannotRead
from rmqctl.operations.progress import Progress

if TYPE_CHECKING:
    from rmqctl.engine.log.commitlog import CommitLog
    from rmqctl.operations.mend.salvagepieces import Piece

_COPIED = 4 << 20
_UNFINISHED = ".part"
#: The file that names the log being written (:func:`identity`), beside the log's files.
JOURNAL = "rmqctl-salvage.json"
#: Bytes of it that are read: it has a hundred.
_MOST_OF_JOURNAL = 1 << 16
_TABLES = (*brokerjson.OFFSET_TABLES, brokerjson.DELAY_OFFSET)
#: In an order in which a broker that replaces one meanwhile leaves its file or the ``.bak``.
_PROGRESS = [name + end for name in _TABLES for end in ("", brokerjson.BACKUP)]


def by_file(pieces: Iterable[Piece], file_size: int) -> Iterator[tuple[int, list[Piece]]]:
    """``(offset of the file, its pieces)``, in order. A kept piece that crosses the border of a
    file is split there."""
    split = (part for piece in pieces for part in _split(piece, file_size))
    for number, parts in groupby(split, lambda piece: piece.start // file_size):
        yield number * file_size, list(parts)


def _split(piece: Piece, file_size: int) -> Iterator[Piece]:
    at = piece.start
    while at < piece.end:
        end = min(piece.end, (at // file_size + 1) * file_size)
        yield piece._replace(start=at, end=end)
        at = end


def identity(pieces: Iterable[Piece], logs: Iterable[CommitLog]) -> str:
    """What tells one log that is to be written from another: a hash over its pieces, and over the
    names, lengths and times of the files that they are copied from.

    :raises FileGone: retention has deleted one of them.
    """
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(repr(piece).encode("utf-8", "surrogateescape"))
    for log in logs:
        for entry in log.files.entries:
            digest.update(repr((str(entry.path), entry.size)).encode("utf-8", "surrogateescape"))
            digest.update(str(listed_status(entry.path).st_mtime_ns).encode())
    return digest.hexdigest()


def begin(building: Path, wanted: str) -> None:
    """Removes what a former run has left in the directory, unless it wrote the same log."""
    journal = building / JOURNAL
    try:
        with open(paths.open_for_reading(journal), "rb") as file:
            known = json.loads(file.read(_MOST_OF_JOURNAL))["identity"]
    except (OSError, CannotRead, ValueError, KeyError, TypeError, RecursionError):
        known = None
    for entry in list(os.scandir(building)):
        if known == wanted and entry.name in (JOURNAL, paths.COMMIT_LOG):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    (building / paths.COMMIT_LOG).mkdir(exist_ok=True)
    if known != wanted:
        journal.write_text(json.dumps({"identity": wanted}))


def write_files(
    building: Path,
    pieces: Iterable[Piece],
    logs: dict[str, CommitLog],
    file_size: int,
    progress: Progress | None = None,
) -> None:
    """Writes the log.

    :param logs: the log that pieces of a kind are copied from; pieces of other kinds are made.
    :raises OSError: the disk is full; whole files stay for the next run.
    """
    directory = building / paths.COMMIT_LOG
    done = 0
    for start, parts in by_file(pieces, file_size):
        path = directory / f"{start:020d}"
        if not path.exists():
            unfinished = path.with_name(path.name + _UNFINISHED)
            with unfinished.open("wb") as file:
                file.truncate(file_size)
                for piece in parts:
                    _write(file.fileno(), piece, start, logs)
                os.fsync(file.fileno())
            unfinished.rename(path)
            durable.sync_directories(directory)
        done += parts[-1].end - parts[0].start
        if progress is not None:
            progress(done)


def _write(descriptor: int, piece: Piece, start: int, logs: dict[str, CommitLog]) -> None:
    log = logs.get(piece.kind)
    if log is not None:
        mapped, position = log.locate(piece.start)
        for low, high in mapped.extents(position, position + piece.length):
            for at in range(low, high, _COPIED):
                data = mapped.read(at, min(_COPIED, high - at))
                write_at(descriptor, data, piece.start - start + at - position)
    for patch in piece.patches:
        write_at(descriptor, patch.data, piece.start - start + patch.position)


def _copy(source: Path, target: Path) -> None:
    """Copies a file, and forces the copy to disk. Holes stay holes: a sparse file whose length is
    damage would fill the disk."""
    with open(paths.open_for_reading(source), "rb") as read, target.open("wb") as written:
        descriptor = read.fileno()
        size = os.fstat(descriptor).st_size
        written.truncate(size)
        for low, high in extents(descriptor, 0, size):
            for at in range(low, high, _COPIED):
                data = os.pread(descriptor, min(_COPIED, high - at), at)
                write_at(written.fileno(), data, at)
        os.fsync(written.fileno())


def read_progress(root: Path) -> dict[str, bytes | None]:
    """The files of ``config/`` that say how far consumers, and the delivery of delayed messages,
    have come, and their ``.bak``, by name; None for one that is not there.

    Beside a broker they are read before the log. Later ones would be ahead of the copy: its
    consumers and its delivery would pass over what comes next. Left out is what is no regular file,
    or longer than a broker's is (:data:`~rmqctl.engine.state.brokerjson.MAX_BYTES`).
    """
    found: dict[str, bytes | None] = {}
    for name in _PROGRESS:
        path = root / brokerjson.CONFIG / name
        try:
            if path.parent.is_symlink() or not stat.S_ISREG(path.lstat().st_mode):
                continue
            with open(paths.open_for_reading(path), "rb") as file:
                data = file.read(brokerjson.MAX_BYTES + 1)
        except (OSError, CannotRead) as error:
            # Other refusals are met again where the files are copied.
            if isinstance(error.__cause__ or error, FileNotFoundError):
                found[name] = None
            continue
        if len(data) <= brokerjson.MAX_BYTES:
            found[name] = data
    return found


def copy_config(root: Path, building: Path, held: dict[str, bytes | None]) -> None:
    """Copies the regular files of ``config/``, but no links; those in ``held`` as they are there
    (:func:`read_progress`)."""
    source, target = root / brokerjson.CONFIG, building / brokerjson.CONFIG
    if source.is_symlink() or not source.is_dir():
        return
    target.mkdir(exist_ok=True)
    for name, data in held.items():
        if data is not None:
            durable.write_whole(target / name, data)
    for name in paths.scan_names(source):
        is_file = (source / name).is_file() and not (source / name).is_symlink()
        if is_file and name not in held:
            _copy(source / name, target / name)


def name_batch_topics(root: Path, building: Path) -> None:
    """Gives a new store the directories of the topics with batch queues (5.x), so that those topics
    get no queues of the other kind: their broker would not start with them."""
    for topic in batch_topics(root):
        if paths.topic_directory_problem(topic) is None:
            (building / paths.BATCH_CONSUME_QUEUE / topic).mkdir(parents=True)


def copy_of_controller(root: Path, building: Path, end: int) -> None:
    """Copies the epochs that a broker in controller mode keeps beside its log. Those that begin
    behind the new end of the log are left out (``EpochFileCache#truncateSuffixByOffset``). Without
    epochs, a slave of this store would not be compared with it."""
    identity = root / controller.IDENTITY_FILE
    if identity.is_file() and not identity.is_symlink():
        _copy(identity, building / controller.IDENTITY_FILE)
    known = controller.store_epochs(root)
    epochs = () if known is None or known.problem else controller.until(known.epochs, end)
    if epochs:
        text = controller.epochs_text(epochs)
        durable.write_whole(building / controller.EPOCH_FILE, text.encode())
