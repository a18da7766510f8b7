"""Which command lines a store refuses that is not ours to change: of a DLedger group, a controller,
or with queues in RocksDB. Nobody is to be told to type them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rmqctl.engine.settings.logdirectories import dledger_logs
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.laterversions import is_written_by_its_brokers

Words = tuple[str, ...]

#: Commands that append to a log or change what goes with it.
_REFUSED: tuple[Words, ...] = (("flush",), ("group",), ("repair",), ("timer", "rebuild"))
_OF_FILES = "--to-file-queues"


def not_refused(words: Words, root: Path) -> Words | None:
    """The words of a command behind ``rmqctl``, or those of what is next in its place; None where
    there is nothing to type."""
    if dledger_logs(root):
        return _for_a_member(words)
    is_rebuild = words[0] == "rebuild" and _OF_FILES not in words
    if not is_rebuild and not _begins_as(words, _REFUSED):
        return words
    return None if _is_of_its_brokers(root) else words


def look_anew() -> None:
    """Before findings of a store are told, of which there may be many: it is looked at once for all
    of them, and may be another one than before."""
    _is_of_its_brokers.cache_clear()


@lru_cache(maxsize=64)
def _is_of_its_brokers(root: Path) -> bool:
    return is_written_by_its_brokers(root, MessageStoreConfig())


def _for_a_member(words: Words) -> Words | None:
    """What is next in a store whose log a DLedger group keeps: queues and index are made anew, and
    nothing is added to them."""
    if _begins_as(words, (*_REFUSED, ("salvage",))) or _OF_FILES in words:
        return None
    return tuple("--in-place" if word == "--missing" else word for word in words)


def _begins_as(words: Words, commands: tuple[Words, ...]) -> bool:
    return any(words[: len(one)] == one for one in commands)
