"""Files that a command writes beside its rows (pages, exports, plans, states) must lie outside of
the stores that it works on. A broker does not start on a directory with a foreign file in it, and
it deletes files that look like its own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rmqctl.cli.settings import Settings


def check_outside(option: str, place: str | Path, stores: Iterable[Settings]) -> None:
    """Checks a place before anything is read. One behind a URL lies in no store of this machine.

    :param option: what the place was given with.
    :raises click.UsageError: it lies in one of the stores; or it is ``-``, which would become a
        file of that name: standard output has the rows.
    """
    from rmqctl.engine.files.paths import local_path

    if str(place) == "-":
        raise click.UsageError(
            f"{option} is -, but standard output has the rows: give a name, ./- for just that one."
        )
    path = local_path(str(place))
    if "://" in path:
        return
    for one in stores:
        if "://" not in str(one.root) and _lies_within(Path(path), one):
            raise click.UsageError(
                f"{option} {place} lies in the store {one.root}, where nothing but a broker's own "
                "files may be: give a place outside."
            )


def check_place(path: Path) -> None:
    """Checks that a file can be written at a place, before a page or a plan is made for it.

    :raises CannotWriteThere: there is no directory for it, or that takes no file; or a directory, a
        device or a FIFO has its name, whose place a file must not take.
    """
    from rmqctl.engine.files.paths import resolved
    from rmqctl.errors import CannotWriteThere

    if not path.absolute().parent.is_dir():
        raise CannotWriteThere(path=str(path), reason="there is no directory for it")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise CannotWriteThere(path=str(path), reason="no right to write in its directory")
    if resolved(path).is_symlink():
        raise CannotWriteThere(path=str(path), reason="links there lead to each other")
    if path.exists() and not path.is_file():
        raise CannotWriteThere(path=str(path), reason="it is no regular file")


def _lies_within(path: Path, store: Settings) -> bool:
    from rmqctl.engine.files.paths import check_store, resolved
    from rmqctl.engine.settings.logdirectories import lies_within
    from rmqctl.errors import RmqctlError

    try:
        check_store(store.root)
        inside = resolved(path).is_relative_to(resolved(store.root))
        return inside or lies_within(path, store.root, store.config)
    except (RmqctlError, OSError):
        # The command itself will find, and tell, that it is no store, that nobody may look at it
        # (and so write into it), or where its log should be.
        return False
