"""Puts directories that were built aside into the place of those of a store.

The two change places at once where the kernel and the file system can do that
(``renameat2(RENAME_EXCHANGE)``): a kill leaves the old one or the new one there, each whole. Else
they do so by two renames, between which neither stands there. What stood there before is kept until
it is purged.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from rmqctl.engine.files import paths
from rmqctl.engine.files.durable import sync_directory
from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.files.unfinished import KEPT_BY_REBUILD
from rmqctl.errors import CannotWrite, SymbolicLinkRefused

#: Where a rebuild of a store in place builds.
STAGING = "rmqctl-new"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
#: A system that cannot exchange: no such call, or a file system without it.
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


class SwapCutOff(CannotWrite):
    """Neither went on nor back."""

    template = (
        "cannot write {path}: {reason}. Some of {names} are new and some are the former ones, of "
        "which those that are replaced lie in {kept}. Mend that, and run the command again; it "
        "makes all of them anew."
    )


def kept_name() -> str:
    """The directory in which one run keeps what it replaces."""
    return KEPT_BY_REBUILD + datetime.now().strftime("%Y%m%d%H%M%S%f")


def kept_directories(root: Path) -> list[Path]:
    """What former runs have kept."""
    places = (root / name for name in paths.scan_names(root) if name.startswith(KEPT_BY_REBUILD))
    return [place for place in places if place.is_dir() and not place.is_symlink()]


def purge(root: Path) -> list[Path]:
    """Removes what was kept; the directories removed. A broker may run, but no rebuild of the
    store, which has what it puts in place in such a directory for a moment.

    :raises StoreInUse: one may run; nothing was removed. :raises CannotWrite: the system refuses
        it.
    """
    kept = kept_directories(root)
    # In this order: one that begins now makes a directory that is not among them.
    lock = StoreLock(root) if kept and (root / STAGING).exists() else None
    try:
        for path in kept:
            shutil.rmtree(path)
    except OSError as error:
        raise paths.writing_error(error.filename or root, error) from error
    finally:
        if lock is not None:
            lock.release()
    return kept


def swap_all(root: Path, staging: Path, kept: Path, relatives: Sequence[Path]) -> None:
    """:func:`swap` of all of them, or of none: when one fails, what has changed places does so
    again.

    :raises SwapCutOff: that, too, failed.
    """
    before = {relative: _stand(root, staging, relative) for relative in relatives}
    try:
        for relative in relatives:
            swap(root, staging, kept, relative)
    except BaseException as cause:
        try:
            for relative in reversed(relatives):
                if _stand(root, staging, relative) != before[relative]:
                    swap(root, kept, staging, relative)
        except (OSError, SymbolicLinkRefused) as error:
            names = ", ".join(map(str, relatives))
            raise SwapCutOff(path=str(root), reason=str(error), names=names, kept=kept) from cause
        for directory, _, _ in os.walk(kept, topdown=False):
            with suppress(OSError):
                os.rmdir(directory)
        raise


def _stand(root: Path, staging: Path, relative: Path) -> tuple[bool, bool]:
    """Whether a directory is there, and whether a new one is: a swap changes one of them."""
    return (root / relative).exists(), (staging / relative).exists()


def swap(root: Path, staging: Path, kept: Path, relative: Path) -> None:
    """Moves the directory ``relative`` of ``root`` to ``kept``, and that of the staging directory
    to where it was; either may be absent.

    :raises SymbolicLinkRefused: a part of the way there is a link.
    """
    target, fresh, old = root / relative, staging / relative, kept / relative
    refuse_links(root, relative)
    if target.exists():
        old.parent.mkdir(parents=True, exist_ok=True)
        if fresh.exists():
            # The new one waits where the old one goes: a next run clears only ``staging``.
            fresh.rename(old)
            _exchange(old, target, aside=fresh)
        else:
            target.rename(old)
    elif fresh.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh.rename(target)
    for directory in {target.parent, old.parent, kept, root}:
        if directory.exists():
            sync_directory(directory)


def _exchange(new: Path, target: Path, aside: Path) -> None:
    """Exchanges ``new`` and ``target``; ``aside`` is a free name. When that fails, ``target`` is as
    it was, and ``aside`` what ``new`` was."""
    try:
        if exchange(new, target):
            return
        new.rename(aside)
        target.rename(new)
    except OSError:
        if not aside.exists():
            new.rename(aside)
        raise
    try:
        aside.rename(target)
    except OSError:
        new.rename(target)
        raise


def exchange(one: Path, other: Path) -> bool:
    """Exchanges two names atomically (``RENAME_EXCHANGE``); False: this system cannot do that.

    :raises OSError: it can, and refuses.
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # A C library without the call.
        return False
    names = os.fsencode(one), os.fsencode(other)
    if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def refuse_links(root: Path, relative: Path) -> None:
    """:raises SymbolicLinkRefused: a part of ``relative`` is a link."""
    for part in (relative, *relative.parents):
        if (root / part).is_symlink() and part != Path("."):
            raise SymbolicLinkRefused(path=str(root / part))
