"""Puts directories that were built aside into the place of those of a store.

Where the kernel and the file system can (``renameat2(RENAME_EXCHANGE)``), the old and the new
directory change places in one step: a kill leaves one or the other there, each whole. Elsewhere two
renames do it, and between them neither is there. The old directory is kept until it is purged.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rmqctl.engine.files import paths, writing
from rmqctl.engine.files.durable import remove_tree, sync_directory
from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.files.owner import hand_over_tree, make_directories
from rmqctl.engine.files.unfinished import KEPT_BY_REBUILD
from rmqctl.errors import CannotWrite, NoDirectoryToWriteTo, SymbolicLinkRefused

#: The directories of a store in which a rebuild in place builds, and that of a timer. A kill leaves
#: them; the next rebuild of the same kind, or a purge, removes them.
STAGING, TIMER_STAGING = "rmqctl-new", "rmqctl-timer"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
#: The errors of a system that cannot exchange: it has no such call, or the file system has not.
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


class SwapCutOff(CannotWrite):
    """A swap could neither go on nor be undone."""

    template = (
        "cannot write {path}: {reason}. Some of {names} are new and some are the former ones, of "
        "which those that are replaced lie in {kept}."
    )
    step = "Mend that, and run the command again; it makes all of them anew."


def kept_name() -> str:
    """The directory in which one run keeps what it replaces."""
    return KEPT_BY_REBUILD + datetime.now().strftime("%Y%m%d%H%M%S%f")


def kept_directories(root: Path) -> list[Path]:
    """The directories that former runs have kept, and those in which killed ones had built."""
    staging = STAGING, TIMER_STAGING
    places = [
        root / name
        for name in paths.scan_names(root)
        if name.startswith(KEPT_BY_REBUILD) or name in staging
    ]
    return [place for place in places if place.is_dir() and not place.is_symlink()]


def purge(root: Path) -> list[Path]:
    """Removes what was kept, and what killed runs had built, and returns the removed directories. A
    broker may run meanwhile, but no rebuild of the store: its new directories are among these.

    :raises StoreInUse: a rebuild may run; nothing was removed.
    :raises CannotWrite: the system refuses to remove a directory.
    """
    kept = kept_directories(root)
    # Listed first, then checked: a rebuild that begins now makes a directory not among these.
    is_built = any((root / name).exists() for name in (STAGING, TIMER_STAGING))
    lock = StoreLock(root) if kept and is_built else None
    try:
        for path in kept:
            shutil.rmtree(path)
    except OSError as error:
        raise writing.writing_error(error.filename or root, error) from error
    finally:
        if lock is not None:
            lock.release()
    return kept


def swap_all(root: Path, staging: Path, kept: Path, relatives: Sequence[Path]) -> None:
    """Swaps all of the directories (:func:`swap`), or none: when one swap fails, or is interrupted,
    those that were done are undone. A further interrupt does not end that; one more does, and
    leaves what a kill leaves.

    :raises SwapCutOff: undoing failed, too.
    """
    before = [_Before.of(root, staging, kept, relative) for relative in relatives]
    begun: list[_Before] = []
    try:
        for one in before:
            begun.append(one)
            swap(root, staging, kept, one.relative)
    except BaseException as cause:
        try:
            _undo_all(begun)
        except (OSError, SymbolicLinkRefused) as error:
            names = ", ".join(map(str, relatives))
            raise SwapCutOff(path=str(root), reason=str(error), names=names, kept=kept) from cause
        for directory, _, _ in os.walk(kept, topdown=False):
            with suppress(OSError):
                os.rmdir(directory)
        raise


def _undo_all(begun: Sequence[_Before]) -> None:
    """Undoes swaps, the last one first. An interrupt begins that anew: what they are undone for is
    raised soon, and ends the run, too."""
    try:
        for one in reversed(begun):
            one.bring_back()
    except KeyboardInterrupt:
        for one in reversed(begun):
            one.bring_back()


def swap(root: Path, staging: Path, kept: Path, relative: Path) -> None:
    """Moves the directory ``relative`` of ``root`` to ``kept``, and that of the staging directory
    into its place. Either may be absent. What root has built gets the owner of what it replaces.
    When that fails, or is interrupted, both are where they were.

    :raises SymbolicLinkRefused: a part of the path is a link.
    """
    before = _Before.of(root, staging, kept, relative)
    try:
        before.swap()
    except BaseException:
        before.bring_back()
        raise


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file or directory from all others, by whatever name it goes."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


@dataclass(frozen=True, slots=True)
class _Before:
    """What stood where before a swap. An interrupt may come between any two steps, and a system may
    fail at what it has done all the same: which of the steps were done, only identities tell. A
    former directory is never in ``staging``, which is removed."""

    root: Path
    staging: Path
    kept: Path
    relative: Path
    #: The identity of the store's directory, and of the new one.
    former: tuple[int, int] | None
    new: tuple[int, int] | None
    #: The directories above the store's that were missing, the lowest first.
    missing: list[Path]

    @classmethod
    def of(cls, root: Path, staging: Path, kept: Path, relative: Path) -> _Before:
        """Looks at what stands there now."""
        missing = [root / part for part in relative.parents if not (root / part).exists()]
        former, new = _identity(root / relative), _identity(staging / relative)
        return cls(root, staging, kept, relative, former, new, missing)

    def _places(self) -> tuple[Path, Path, Path]:
        """Where the store's directory is, the new one, and the former one in the end."""
        return self.root / self.relative, self.staging / self.relative, self.kept / self.relative

    def swap(self) -> None:
        """Swaps; errors as of :func:`swap`. Whatever raises, :meth:`bring_back` undoes it."""
        target, fresh, old = self._places()
        refuse_links(self.root, self.relative)
        if fresh.exists():
            hand_over_tree(fresh, target if target.exists() else self.root)
        if target.exists():
            make_directories(old.parent)
            if fresh.exists():
                # First to where the old one will be: a later run clears only ``staging``.
                fresh.rename(old)
                if not exchange(old, target):
                    old.rename(fresh)
                    target.rename(old)
                    fresh.rename(target)
            else:
                target.rename(old)
        elif fresh.exists():
            make_directories(target.parent)
            fresh.rename(target)
        self._sync()

    def bring_back(self) -> None:
        """Brings both to where they were, from wherever a swap, or this, has left them.

        :raises OSError: the system refuses, or one of them cannot be found: nothing is moved then
            that is not known.
        :raises SymbolicLinkRefused: a part of the path has become a link.
        """
        target, fresh, old = self._places()
        stands = _identity(target)
        if stands != self.former:
            refuse_links(self.root, self.relative)
            if stands not in (None, self.new):
                raise FileExistsError(errno.EEXIST, "something else stands there", str(target))
            if self.former is not None and _identity(old) != self.former:
                raise FileNotFoundError(errno.ENOENT, "the former one is not there", str(old))
            if self.former is None or (stands is not None and not exchange(old, target)):
                target.rename(fresh)
            if self.former not in (None, _identity(target)):
                old.rename(target)
        if self.new is not None and _identity(old) == self.new:
            old.rename(fresh)
        for directory in self.missing:
            with suppress(OSError):  # It was not made, or others are in it.
                directory.rmdir()
        self._sync()

    def _sync(self) -> None:
        target, _, old = self._places()
        for directory in {target.parent, old.parent, self.kept, self.root}:
            if directory.exists():
                sync_directory(directory)


def exchange(one: Path, other: Path) -> bool:
    """Exchanges two names atomically (``RENAME_EXCHANGE``); False where this system cannot.

    :raises OSError: the system can, but refuses.
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


@contextmanager
def built_aside(root: Path, staging: Path) -> Iterator[None]:
    """Inside, something is built in the directory ``staging`` of a store, and swapped into the
    store. Whatever is left of ``staging`` then is removed.

    :raises CannotWrite: what the system says.
    """
    try:
        yield
    except OSError as error:
        raise CannotWrite(path=str(root), reason=str(error.strerror)) from error
    finally:
        remove_tree(staging)


def make_staging(staging: Path) -> None:
    """Makes the directory to build in, without what a killed run has left there.

    :raises NoDirectoryToWriteTo: something else has its name.
    """
    remove_tree(staging)
    try:
        staging.mkdir()
        hand_over_tree(staging, staging.parent)
    except FileExistsError as error:
        raise NoDirectoryToWriteTo(path=str(staging)) from error


def refuse_links(root: Path, relative: Path) -> None:
    """:raises SymbolicLinkRefused: a part of ``relative`` is a link."""
    for part in (relative, *relative.parents):
        if (root / part).is_symlink() and part != Path("."):
            raise SymbolicLinkRefused(path=str(root / part))
