"""Command lines that a store refuses because only its brokers may change it: a member of a DLedger
group, a store of controller mode, or one with queues in RocksDB. No advice names such a line."""

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
    """The words of a command (without ``rmqctl``) that this store takes: the given ones, or those
    of another command in their place. None: the store takes neither."""
    if _is_of_a_member(root):
        return _for_a_member(words)
    is_rebuild = words[0] == "rebuild" and _OF_FILES not in words
    if not is_rebuild and not _begins_as(words, _REFUSED):
        return words
    return None if _is_of_its_brokers(root) else words


def look_anew() -> None:
    """Forgets what is known of stores. To be called before the findings of a store are told: they
    may be many, so each store is looked at once, and it may have changed since the last time."""
    _is_of_a_member.cache_clear()
    _is_of_its_brokers.cache_clear()


@lru_cache(maxsize=64)
def _is_of_a_member(root: Path) -> bool:
    return bool(dledger_logs(root))


@lru_cache(maxsize=64)
def _is_of_its_brokers(root: Path) -> bool:
    return is_written_by_its_brokers(root, MessageStoreConfig())


def _for_a_member(words: Words) -> Words | None:
    """The words for a store whose log a DLedger group keeps: its queues and index can be made anew,
    but nothing can be added to them."""
    if _begins_as(words, (*_REFUSED, ("salvage",))) or _OF_FILES in words:
        return None
    return tuple("--in-place" if word == "--missing" else word for word in words)


def _begins_as(words: Words, commands: tuple[Words, ...]) -> bool:
    return any(words[: len(one)] == one for one in commands)
