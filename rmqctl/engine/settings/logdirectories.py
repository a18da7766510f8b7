"""Finds the directories of a store's log: its own ``commitlog/``, or several.

``storePathCommitLog`` lists them with commas between; ``readOnlyCommitLogStorePaths`` lists more
that get no new files. A broker of a DLedger group keeps its log, or the part since it joined, in
``dledger-<dLegerSelfId>/data``; its offsets continue those of the other files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.files import paths
from rmqctl.engine.files.filequeue import is_offset_name
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import AmbiguousLog, BrokerConfError

_SPLITTER = ","
_DLEDGER_PREFIX = "dledger-"
_DLEDGER_DATA = "data"
#: The most members of DLedger groups that are looked for. A store should have one.
_MOST_MEMBERS = 8


class LogDirectories(NamedTuple):
    """The directories of a log. ``appendable`` ones get new files in turn; ``listed`` are those of
    ``storePathCommitLog``. The files in ``dledger`` hold entries of a DLedger group."""

    all: tuple[Path, ...]
    appendable: tuple[Path, ...]
    listed: tuple[Path, ...]
    dledger: Path | None = None


def is_spread(config: MessageStoreConfig) -> bool:
    """Whether a configuration lists directories for the log of its store."""
    return _SPLITTER in config.store_path_commit_log


def at_root(config: MessageStoreConfig, root: Path) -> MessageStoreConfig:
    """The configuration for the store at ``root``. If ``storePathRootDir`` names this store, its
    log is in ``storePathCommitLog``, even if that is a single directory. A copy of the store has
    its own log."""
    path = config.store_path_commit_log.strip()
    if not path or is_spread(config) or not config.store_path_root_dir:
        return config
    named = Path(config.store_path_root_dir)
    own = root / paths.COMMIT_LOG
    if not _is_same(named, root) or _is_same(Path(path), own):
        return config
    return replace(config, store_path_commit_log=path + _SPLITTER)


def in_own_directory(config: MessageStoreConfig) -> MessageStoreConfig:
    """The configuration for a copy of the store, which has its log in itself."""
    return replace(
        config,
        store_path_root_dir="",
        store_path_commit_log="",
        read_only_commit_log_store_paths="",
    )


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths are the same place; if one does not exist, by their names."""
    try:
        return one.samefile(other)
    except OSError:
        return Path(os.path.abspath(one)) == Path(os.path.abspath(other))


def log_directories(root: Path, config: MessageStoreConfig) -> LogDirectories:
    """The directories of a store's log, including that of a DLedger group.

    :raises AmbiguousLog: several members of DLedger groups have a log there, and ``dLegerSelfId``
        names none of them. Also raises what :func:`_plain_directories` raises.
    """
    directories = _plain_directories(root, config)
    found = dledger_logs(root)
    named = f"{_DLEDGER_PREFIX}{config.d_leger_self_id}/{_DLEDGER_DATA}"
    if len(found) > 1 and named not in found:
        raise AmbiguousLog(path=str(root / found[0]), name=str(root / found[1]))
    if not found:
        return directories
    member = root / (named if named in found else found[0])
    return directories._replace(all=(*directories.all, member), dledger=member)


def dledger_logs(root: Path) -> list[str]:
    """The directories ``dledger-<dLegerSelfId>/data``, in which a DLedger broker
    (``enableDLegerCommitLog``, 4.5 and later) keeps its log. From the moment it exists, the broker
    appends only there (``DLedgerCommitLog#setRecoverPosition``)."""
    found = []
    for name in paths.scan_names(root):
        if name.startswith(_DLEDGER_PREFIX) and (root / name / _DLEDGER_DATA).is_dir():
            found.append(f"{name}/{_DLEDGER_DATA}")
            if len(found) == _MOST_MEMBERS:
                break
    return found


def _plain_directories(root: Path, config: MessageStoreConfig) -> LogDirectories:
    """The directories of files that hold only records, without DLedger headers.

    :raises AmbiguousLog: the store has a log of its own that the configuration does not list (a
        copied store, and the broker.conf of the original: its log may be another broker's).
    :raises BrokerConfError: no directory is left for new files.
    """
    own = root / paths.COMMIT_LOG
    if not is_spread(config):
        return LogDirectories((own,), (own,), (own,))
    listed = _split(config.store_path_commit_log)
    read_only = _split(config.read_only_commit_log_store_paths)
    everything = tuple(dict.fromkeys([*listed, *read_only]))
    if any(map(is_offset_name, paths.scan_names(own))) and not any(
        directory.exists() and directory.samefile(own) for directory in everything
    ):
        raise AmbiguousLog(path=str(own), name="storePathCommitLog")
    appendable = sorted({directory for directory in listed if directory not in read_only}, key=str)
    if not appendable:
        raise BrokerConfError(path="storePathCommitLog", reason="all its directories are read-only")
    return LogDirectories(everything, tuple(appendable), tuple(listed))


def lies_within(path: Path, root: Path, config: MessageStoreConfig) -> bool:
    """Whether a path, existing or not, lies in a store: below its root, in a directory of its log,
    or behind a link in it. Raises what :func:`log_directories` raises."""
    place = paths.resolved(path)
    parts = [root, *(root / name for name in paths.scan_names(root))]
    parts += log_directories(root, config).all
    return any(place.is_relative_to(paths.resolved(part)) for part in parts)


def _split(text: str) -> list[Path]:
    return [Path(name.strip()) for name in text.split(_SPLITTER) if name.strip()]
