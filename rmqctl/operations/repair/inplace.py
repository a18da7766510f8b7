"""Changes that a repair makes to a file of the log in place, and takes back.

A file that is too short gets zeros at its end. Bytes behind the log's end become zeros: a copy of
them is made before, and each byte in the file is then the old one or zero, however far a kill has
let the change come.
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.writing import open_for_writing
from rmqctl.errors import CannotRead

_PIECE = 1 << 20


def growth_problem(root: Path, path: str, position: int, length: int) -> str | None:
    """Why zeros cannot be added to a file, or taken away, in words; None: they can.

    :param path: the file, relative to the store.
    :param position: its length before ``length`` zeros are added.
    """
    try:
        file = MappedFile.open(root / path)
    except CannotRead as error:
        return str(error)
    try:
        is_known = file.size in (position, position + length)
        if not is_known or file.first_nonzero(position, file.size) < file.size:
            return f"{path} was changed meanwhile"
    finally:
        file.close()
    return None


def resize(root: Path, path: str, size: int) -> None:
    """Gives a file this length, durably: it gets zeros at its end, or loses them."""
    descriptor = open_for_writing(root, root / path)
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
