"""The list of stores, from a file with one store a line or from patterns; and their names."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.files import paths
from rmqctl.errors import UsageError
from rmqctl.rows.columns import broker_of

#: Most bytes of a list: it has room for many ten thousands of paths.
MOST_BYTES = 16 << 20
#: ``NAME = PATH``. Text with a slash before ``=`` is no name, but part of a path.
_NAMED = re.compile(r"([^/=\s][^/=]*?)\s*=\s*(.+)")


class StoresFileError(UsageError):
    """A list of stores that cannot be read as one."""

    template = (
        "{path}, line {line}: {reason}. Give a directory, a pattern or a URL a line, each with "
        "NAME= before it if you like; # begins a comment."
    )


class NoStores(UsageError):
    """A list that names nothing, or a pattern that matches nothing."""

    template = (
        "{path}: {reason}. Give a file with a store a line, or a pattern such as '{example}'."
    )


class FleetStore(NamedTuple):
    """A store of the list: the name that rows give it; its directory (absolute) or URL, and the
    same without secrets, to be shown; and its ``broker.conf``, if there is one."""

    name: str
    path: str
    shown: str
    broker_conf: str | None = None

    @property
    def is_remote(self) -> bool:
        return "://" in self.path


class Listed(NamedTuple):
    """A line of a list: its name, if it gives one, and its path, pattern or URL."""

    name: str | None
    path: str


def listed(text: str, source: str, directory: Path) -> list[Listed]:
    """The lines of a list that name stores. Relative paths begin at ``directory``, where the list
    lies.

    :raises StoresFileError: a line cannot be one of a list.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _NAMED.fullmatch(line)
        name, path = (match[1], match[2]) if match and "://" not in match[1] else (None, line)
        if "\0" in line:
            raise StoresFileError(path=source, line=number, reason="no path holds a zero byte")
        path = paths.local_path(path)
        if "://" not in path:
            path = os.path.abspath(directory / path)
        found.append(Listed(name, path))
    return found


def named(
    lines: Iterable[Listed],
    expand: Callable[[str], list[str]],
    shown: Callable[[str], str] = str,
    conf_pattern: str | None = None,
) -> list[FleetStore]:
    """The stores of a list, in its order, each once.

    A store has the name that its line gives, else the broker's name in its path (``broker-a`` of
    ``/data/broker-a/store``). Stores that would get the same name in this way have their paths as
    names.

    :param expand: gives the stores that a pattern stands for. A path for which it gives none counts
        as a store that is not there, which its row will say.
    :param shown: a path or URL as it may be shown.
    :param conf_pattern: the path of their broker.conf, with ``{name}`` and ``{path}`` in it. None:
        the ``broker.conf`` beside each store's directory is taken, where there is one.
    :raises UsageError: two stores are given the same name, or several stores one name.
    """
    given: dict[str, str | None] = {}
    for line in lines:
        places = expand(line.path) or [line.path]
        if line.name is not None and len(places) > 1:
            raise UsageError(
                reason=f"{line.name}={line.path} names {len(places)} stores: give a name to one."
            )
        for place in places:
            given[place] = line.name or given.get(place)
    taken = Counter(name for name in given.values() if name is not None)
    for name, times in taken.items():
        if times > 1:
            raise UsageError(reason=f"{times} stores are called {name}: give each its own name.")
    usual = Counter(broker_of(shown(place)) for place, name in given.items() if name is None)
    stores = []
    for place, own in given.items():
        short = broker_of(shown(place))
        is_its_alone = usual[short] == 1 and short not in taken
        name = own or (short if is_its_alone else shown(place))
        stores.append(FleetStore(name, place, shown(place), _conf(place, name, conf_pattern)))
    return stores


def _conf(place: str, name: str, pattern: str | None) -> str | None:
    if pattern is not None:
        return pattern.replace("{name}", name).replace("{path}", place)
    if "://" in place:
        return None
    beside = Path(place).parent / "broker.conf"
    try:
        mode = os.lstat(beside).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return str(beside)  # Nobody may look: the store's row will say so.
    # Another thing in its place is that row's error, too; of a pipe a read would not end.
    return None if stat.S_ISFIFO(mode) else str(beside)
