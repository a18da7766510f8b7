"""Checks, before anything is changed, that the system will allow the moves of a repair.

A rename works within one file system only, and cannot replace a mount point. Missing rights are
told here, and not between two moves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from rmqctl.engine.files.paths import resolved
from rmqctl.errors import CannotWrite, StoreReadOnly
from rmqctl.operations.mend.swap import refuse_links
from rmqctl.operations.repair import model
from rmqctl.operations.repair.plan import touched

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(rb"\\([0-7]{3})")


def check_movable(root: Path, steps: tuple[model.Step, ...]) -> None:
    """Checks everything that steps replace or write to.

    :raises SymbolicLinkRefused: a link is on the way there.
    :raises CannotWrite: something of it is mounted in the store.
    :raises StoreReadOnly: there is no right to move it, or to put something in its place.
    """
    mounts = set(_mounts_in(resolved(root)))
    for step in steps:
        is_many = step.action in (model.REBUILD_QUEUES, model.REBUILD_QUEUE, model.REBUILD_TIMER)
        for path in touched(step) if is_many else [step.path]:
            refuse_links(root, Path(path).parent)
            if step.action in (model.EXTEND_FILE, model.CUT_TAIL):  # Changed where it lies.
                _check_right(root / path)
            else:
                _check_mounts(root, path, mounts)
                _check_rights(root / path)


def _mounts_in(root: Path) -> Iterator[Path]:
    """The mount points below a directory; none where the system does not tell them."""
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        name = _ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), line.split(b" ")[4])
        place = Path(os.fsdecode(name))
        if place != root and place.is_relative_to(root):
            yield place


def _check_mounts(root: Path, path: str, mounts: set[Path]) -> None:
    place = resolved(root) / path
    if mounts.isdisjoint((place, *place.parents)):
        return
    reason = (
        "it is, or lies in, what is mounted there, and a repair moves things within one file "
        "system; leave the step out of the plan, or apply it to a copy of the store"
    )
    raise CannotWrite(path=str(root / path), reason=reason)


def _check_rights(place: Path) -> None:
    above = place.parent
    while not os.path.lexists(above):
        above = above.parent
    _check_right(above)
    if place.is_dir() and not place.is_symlink():
        _check_right(place)  # Its entry `..` is another one then.


def _check_right(place: Path) -> None:
    rights = os.W_OK | os.X_OK if place.is_dir() else os.W_OK
    if not os.access(place, rights):
        raise StoreReadOnly(path=str(place), reason="there is no right to")
