"""Changes that a repair makes within a file of the log, and takes back.

Bytes behind the log's end become zeros. A copy of them is made before, and each byte in the file is
then the old one or zero, however far a kill has let the change come.
"""

from __future__ import annotations

from pathlib import Path

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.errors import CannotRead

_PIECE = 1 << 20


def tail_problem(root: Path, path: str, position: int, length: int, kept: Path) -> str | None:
    """Why the bytes of a file cannot be zeroed, or restored, in words; None: they can.

    :param path: the file, relative to the store.
    :param position: of the first of ``length`` bytes that become zeros.
    :param kept: the copy of these bytes.
    """
    try:
        file = MappedFile.open(root / path)
    except CannotRead as error:
        return str(error)
    try:
        if not kept.is_file() or kept.stat().st_size != length:
            return f"what it has kept of {path} is not what stood there"
        if file.size < position + length:
            return f"{path} was changed meanwhile"
        with kept.open("rb") as before:
            for at in range(0, length, _PIECE):
                size = min(_PIECE, length - at)
                was, now = before.read(size), file.read_aside(position + at, size)
                zeros = bytes(len(now))
                if now not in (was, zeros) and any(
                    b and a != b for a, b in zip(was, now, strict=True)
                ):
                    return f"{path} was changed behind the log's end"
    finally:
        file.close()
    return None


def zero(root: Path, path: str, position: int) -> None:
    """Makes all bytes from a position on zeros, durably."""
    file = MappedFile.open_writable(root, root / path)
    try:
        file.clear(position)
        file.flush()
    finally:
        file.close()


def restore_tail(root: Path, path: str, position: int, kept: Path) -> None:
    """Puts the copy of a tail back, durably; its zeros are left as they are."""
    file = MappedFile.open_writable(root, root / path)
    try:
        with kept.open("rb") as old:
            while piece := old.read(_PIECE):
                if piece.strip(b"\0"):
                    file.write_aside(position, piece)
                position += len(piece)
        file.flush()
    finally:
        file.close()
