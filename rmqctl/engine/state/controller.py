"""The files of a broker in controller mode (5.x): the epochs of the masters that have written its
log (``EpochFileCache``), and its identity (``BrokerMetadata``).

``epochFileCheckpoint`` is text: the number of entries, the CRC-32 of all of them without its top
bit (0: not checked), then one ``<epoch>-<start offset>`` per line (``CheckpointFile``). If these
contradict each other, the ``.bak`` counts. A line that is not numbers keeps the broker from
starting.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from isal.isal_zlib import crc32

from formats.constants import INT_MAX, LONG_MAX
from rmqctl.engine.files.paths import read_start

EPOCH_FILE, IDENTITY_FILE, BACKUP = "epochFileCheckpoint", "brokerIdentity", ".bak"
#: The most bytes of a file. That is a million changes of the master.
_MOST_BYTES = 1 << 24
_MOST_DIGITS = 20


class Epoch(NamedTuple):
    """The time of one master: from physical offset ``start_offset`` on the log is of this epoch."""

    epoch: int
    start_offset: int


class EpochFile(NamedTuple):
    """The content of a file. ``problem`` says why it does not count; ``is_fatal``: a broker does
    not start with it."""

    epochs: tuple[Epoch, ...]
    problem: str = ""
    is_fatal: bool = False


class BrokerIdentity(NamedTuple):
    """A broker's identity among the copies of a controller."""

    cluster_name: str
    broker_name: str
    broker_id: int


def read_epochs(path: Path) -> EpochFile | None:
    """Reads an epoch file (``CheckpointFile#read``); None without one. :raises CannotRead: the
    system refuses to read it."""
    if not path.exists():
        return None
    data = read_start(path, _MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        return EpochFile((), f"it has more than {_MOST_BYTES} bytes")
    lines = data.decode("latin-1").splitlines()
    count, checksum = (_number(line, INT_MAX) for line in (*lines, "", "")[:2])
    if count is None or checksum is None:
        return EpochFile((), "its first two lines are no numbers", is_fatal=True)
    epochs = []
    for line in lines[2:]:
        parts = line.split("-")
        if len(parts) != 2:
            continue
        epoch, start = _number(parts[0], INT_MAX), _number(parts[1], LONG_MAX)
        if epoch is None or start is None:
            return EpochFile((), "a line is not <epoch>-<offset>", is_fatal=True)
        epochs.append(Epoch(epoch, start))
    if len(epochs) != count:
        return EpochFile(tuple(epochs), f"it has {len(epochs)} entries, and says {count}")
    # Java uses the system's line ends.
    found = {
        crc32("".join(line + end for line in lines[2:]).encode("latin-1")) & 0x7FFFFFFF
        for end in ("\n", "\r\n")
    }
    if checksum and checksum not in found:
        return EpochFile(tuple(epochs), "its checksum is not that of its entries")
    return EpochFile(tuple(epochs))


def store_epochs(root: Path) -> EpochFile | None:
    """The epoch file of a store that counts: the file, else its ``.bak`` (``CheckpointFile#read``);
    None without both."""
    file = read_epochs(root / EPOCH_FILE)
    if file is not None and (file.is_fatal or (file.epochs and not file.problem)):
        return file
    backup = read_epochs(root / (EPOCH_FILE + BACKUP))
    if backup is not None and backup.epochs and not backup.problem:
        return backup
    return file or backup


def epochs_text(epochs: tuple[Epoch, ...]) -> str:
    """The text of a file with these epochs (``CheckpointFile#write``)."""
    lines = "".join(f"{one.epoch}-{one.start_offset}\n" for one in epochs)
    return f"{len(epochs)}\n{crc32(lines.encode()) & 0x7FFFFFFF}\n{lines}"


def until(epochs: tuple[Epoch, ...], end: int) -> tuple[Epoch, ...]:
    """The epochs of a log that ends at a physical offset
    (``EpochFileCache#truncateSuffixByOffset``)."""
    return tuple(one for one in epochs if one.start_offset < end)


def read_identity(path: Path) -> BrokerIdentity | None:
    """The identity in a file; None if it has none. :raises CannotRead: the system refuses to read
    it."""
    parts = read_start(path, 1 << 12).decode("utf-8", "replace").split("#")
    number = _number(parts[2].strip(), LONG_MAX) if len(parts) >= 3 else None
    if number is None or not parts[0] or not parts[1]:
        return None
    return BrokerIdentity(parts[0], parts[1], number)


def _number(text: str, most: int) -> int | None:
    """A number up to ``most``; None if it is none, or negative."""
    if not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        return None
    return int(text) if int(text) <= most else None
