"""Replaces a file of ``config/`` (``ConfigManager#persist``).

``MixAll#string2File`` writes ``NAME.tmp``, copies the old content to ``NAME.bak``, deletes the file
and renames. Here nothing is deleted: each name changes in one durable step, so after a kill there
is the old file or the new one. Owner and rights stay: a broker that cannot write a file any more
would silently stop persisting it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from rmqctl.engine.files.durable import ReplacedInDoubt
from rmqctl.engine.files.paths import NOT_REGULAR
from rmqctl.engine.files.writing import parent_directory
from rmqctl.engine.state.brokerjson import BACKUP, CONFIG

#: What a file is called on its way, behind its name.
TEMPORARY = ".tmp"


def temporaries(name: str) -> tuple[str, str]:
    """What a killed writer may leave of ``config/<name>`` and its copy. A broker makes the former
    alone, for it writes its copy in place."""
    return name + TEMPORARY, name + BACKUP + TEMPORARY


def persist(root: Path, name: str, text: str, *, keep_backup: bool = False) -> None:
    """Stores ``text`` in ``config/<name>``, and the old content in its ``.bak``.

    :param keep_backup: the ``.bak`` stays as it is: if the file itself is broken, the ``.bak`` is
        the last good copy.
    :raises SymbolicLinkRefused: a part of the path is a link.
    :raises StoreReadOnly, CannotWrite: the system refuses; the file is as it was.
    :raises ReplacedInDoubt: the new content is there, and a loss of power may undo it.
    """
    check_persist(root, name, keep_backup=keep_backup)
    path = root / CONFIG / name
    with parent_directory(root, path, True) as directory:
        before = _content(directory, name)
        for temporary in temporaries(name):  # What a killed writer has left.
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
        if before is not None and not keep_backup:
            _replace(directory, name + BACKUP, before, like=name)
            os.fsync(directory)
        _replace(directory, name, text.encode(), like=name)
        try:
            os.fsync(directory)
        except OSError as error:
            raise ReplacedInDoubt(path=str(path), reason=error.strerror) from error


def check_persist(root: Path, name: str, *, keep_backup: bool = False) -> None:
    """Raises what :func:`persist` would raise because of a link, or of something that is not a
    file, under one of the names that it uses."""
    if not (root / CONFIG).exists():
        return
    for one in (name,) if keep_backup else (name, name + BACKUP):
        for place, check in ((one, _status), (one + TEMPORARY, _check_no_directory)):
            with parent_directory(root, root / CONFIG / place, False) as directory:
                check(directory, place)


def _content(directory: int, name: str) -> bytes | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, NOT_REGULAR)
        return file.read()


def _replace(directory: int, name: str, data: bytes, *, like: str) -> None:
    """Stores ``data`` under ``name``, with owner and rights of the old file, else of the file
    ``like``, else with the directory's owner. The name is not forced to disk."""
    status = _status(directory, name) or _status(directory, like)
    owner = status or os.fstat(directory)
    temporary = name + TEMPORARY
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            made = os.fstat(descriptor)
            if (made.st_uid, made.st_gid) != (owner.st_uid, owner.st_gid):
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) if status else 0o644)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _check_no_directory(directory: int, name: str) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise IsADirectoryError(errno.EISDIR, NOT_REGULAR)


def _status(directory: int, name: str) -> os.stat_result | None:
    """:raises OSError: there is a link (ELOOP), or something else that is not a file."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, NOT_REGULAR)
    return status
