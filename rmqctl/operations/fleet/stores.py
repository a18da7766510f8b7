"""The list of stores: a file with a store a line, or what a pattern has found; and their names."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.files import paths
from rmqctl.errors import UsageError
from rmqctl.rows.columns import broker_of

#: Bytes: a path a line, some ten thousand of them.
MOST_BYTES = 16 << 20
#: What stands before ``=`` and is a name: a path with a directory in it is none.
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
    """A store of the list: the name that rows call it by; its directory (absolute) or URL, and that
    as it may be shown; the ``broker.conf`` that holds for it, if there is one."""

    name: str
    path: str
    shown: str
    broker_conf: str | None = None

    @property
    def is_remote(self) -> bool:
        return "://" in self.path


class Listed(NamedTuple):
    """A line of a list: the name that it gives, if any, and the path, pattern or URL."""

    name: str | None
    path: str


def listed(text: str, source: str, directory: Path) -> list[Listed]:
    """The lines of a list that name something. Paths that are not absolute are below ``directory``,
    where the list lies.

    :raises StoresFileError: a line is none of a list.
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

    A store is called as its line says, else by its path as a broker is (``broker-a`` of
    ``/data/broker-a/store``); those that would be called the same have their path for a name.

    :param expand: the stores that a pattern means; a path that means none is a store that is not
        there, which its row will say.
    :param conf_pattern: their broker.conf, with ``{name}`` and ``{path}`` in it; without one it is
        the ``broker.conf`` that lies beside a store's directory, where there is one.
    :raises UsageError: two stores have one name, or a name is given to several.
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
    return str(beside) if beside.is_file() else None
