"""Where the files of a store's log lie: in its own ``commitlog/``, or in several directories.

``storePathCommitLog`` lists them with commas between, ``readOnlyCommitLogStorePaths`` more of them,
that get no new files. A broker of a DLedger group has its log, or what came since it joined one, in
``dledger-<dLegerSelfId>/data``: one range of offsets with the other files."""

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
#: Members of DLedger groups that are named: a store has one.
_MOST_MEMBERS = 8


class LogDirectories(NamedTuple):
    """Directories of a log; ``appendable`` get new files, in turn, and ``listed`` are those of
    ``storePathCommitLog``. ``dledger`` is the one whose files hold entries of a DLedger group."""

    all: tuple[Path, ...]
    appendable: tuple[Path, ...]
    listed: tuple[Path, ...]
    dledger: Path | None = None


def is_spread(config: MessageStoreConfig) -> bool:
    """Whether a configuration lists directories for the log of its store."""
    return _SPLITTER in config.store_path_commit_log


def at_root(config: MessageStoreConfig, root: Path) -> MessageStoreConfig:
    """The configuration as it holds for the store at ``root``: one that ``storePathRootDir`` names
    has its log where ``storePathCommitLog`` says, also where that is a single directory. A copy of
    it has its own."""
    path = config.store_path_commit_log.strip()
    if not path or is_spread(config) or not config.store_path_root_dir:
        return config
    named = Path(config.store_path_root_dir)
    own = root / paths.COMMIT_LOG
    if not _is_same(named, root) or _is_same(Path(path), own):
        return config
    return replace(config, store_path_commit_log=path + _SPLITTER)


def in_own_directory(config: MessageStoreConfig) -> MessageStoreConfig:
    """The configuration as it holds for a copy of the store, whose log lies in it."""
    return replace(
        config,
        store_path_root_dir="",
        store_path_commit_log="",
        read_only_commit_log_store_paths="",
    )


def _is_same(one: Path, other: Path) -> bool:
    """Whether two names are those of one place; one that is not there is told by its name."""
    try:
        return one.samefile(other)
    except OSError:
        return Path(os.path.abspath(one)) == Path(os.path.abspath(other))


def log_directories(root: Path, config: MessageStoreConfig) -> LogDirectories:
    """Where the log of a store lies, that of a DLedger group too.

    :raises AmbiguousLog: several members of DLedger groups have a log there, and ``dLegerSelfId``
        names none of them. Else as of :func:`_plain_directories`.
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
    """Where a DLedger broker (``enableDLegerCommitLog``, 4.5 and later) keeps the log: one
    ``dledger-<dLegerSelfId>/data``. It counts as soon as it is there: the broker appends to no
    other from then on (``DLedgerCommitLog#setRecoverPosition``)."""
    found = []
    for name in paths.scan_names(root):
        if name.startswith(_DLEDGER_PREFIX) and (root / name / _DLEDGER_DATA).is_dir():
            found.append(f"{name}/{_DLEDGER_DATA}")
            if len(found) == _MOST_MEMBERS:
                break
    return found


def _plain_directories(root: Path, config: MessageStoreConfig) -> LogDirectories:
    """Where the files lie that hold records and nothing else.

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
    """Whether a path, of a file that need not be there, lies in a store: at its root, in one of the
    directories of its log, or behind a link in it. Errors as of :func:`log_directories`."""
    place = paths.resolved(path)
    parts = [root, *(root / name for name in paths.scan_names(root))]
    parts += log_directories(root, config).all
    return any(place.is_relative_to(paths.resolved(part)) for part in parts)


def _split(text: str) -> list[Path]:
    return [Path(name.strip()) for name in text.split(_SPLITTER) if name.strip()]
