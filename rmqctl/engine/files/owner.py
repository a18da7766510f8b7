"""Who owns what root makes.

A broker runs as a user of its own, opens each file of its store for writing, and does not start
where it may not. So a file or directory that root makes belongs to the owner of the directory in
which it is made. Where the system does not let root give it away, it stays as it was made, and
``rmqctl lint`` names it: a network file system may take root for somebody else, a file system in
user space may know no owners, and a container may not have the owner's number.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def hand_over(made: int, directory: int) -> None:
    """Gives a new file or directory the owner of the directory that it is in, if root made it;
    both are descriptors."""
    owner = _other_owner(directory)
    if owner is not None:
        with suppress(OSError):
            os.fchown(made, *owner)


def hand_over_tree(built: Path, like: Path) -> None:
    """Gives a file, or a directory with all that is in it, the owner of ``like``, if root does so.
    No link is followed.

    :raises OSError: the system cannot look at ``like``.
    """
    owner = _other_owner(like)
    if owner is None:
        return
    with suppress(OSError):
        os.chown(built, *owner, follow_symlinks=False)
        for directory, directories, files in os.walk(built):
            for name in (*directories, *files):
                os.chown(os.path.join(directory, name), *owner, follow_symlinks=False)


def make_directories(path: Path) -> None:
    """Makes a directory, and those above it that are missing. It may be there already.

    :raises OSError: the system refuses, or something else stands there.
    """
    for one in reversed((path, *path.parents)):
        if not one.is_dir():
            one.mkdir(exist_ok=True)
            hand_over_tree(one, one.parent)


def _other_owner(like: Path | int) -> tuple[int, int] | None:
    """User and group of a path or descriptor; None if those of this process are the same, or if it
    is not root, which alone may give something away."""
    if os.geteuid() != 0:
        return None
    status = os.stat(like)
    owner = status.st_uid, status.st_gid
    return None if owner == (0, os.getegid()) else owner
