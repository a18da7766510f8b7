"""What a command writes beside its rows (pages, exports, plans, states) goes outside of every store
that it is told of: a broker does not start on a directory with a strange file in it, and deletes
what looks like its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rmqctl.cli.settings import Settings


def check_outside(option: str, place: str | Path, stores: Iterable[Settings]) -> None:
    """Before anything is read. A place behind a URL lies in no store of this machine.

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


def _lies_within(path: Path, store: Settings) -> bool:
    from rmqctl.engine.files.paths import check_store, resolved
    from rmqctl.engine.settings.logdirectories import lies_within
    from rmqctl.errors import RmqctlError

    try:
        check_store(store.root)
        inside = resolved(path).is_relative_to(resolved(store.root))
        return inside or lies_within(path, store.root, store.config)
    except RmqctlError:
        # Whether it is a store, and where its log lies, the command itself will ask, and tell.
        return False
