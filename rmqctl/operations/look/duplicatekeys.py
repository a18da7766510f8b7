"""The keys that several messages have, of the logs of one or several stores, for ``stats``.

Every key has a hash in the index, and only keys whose hash occurs more than once may be there
twice. These are counted by their texts, so many hashes at a time that memory is bounded: a log in
which most keys are there twice is passed over several times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from formats.constants import PROPERTY_KEYS, PROPERTY_UNIQ_KEY
from formats.text import decode_utf8
from rmqctl.engine.log.onward import onward
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.properties import key_places
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.errors import TooMuchHere
from rmqctl.operations.progress import Progress
from rmqctl.rows.sections import order

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows import Row

#: Hashes whose keys are counted in one pass. Their texts take some hundred MB.
HASHES_AT_ONCE = 1 << 21
#: The most keys that are held in a pass. There are more only if many keys have one hash.
MAX_HELD = 1 << 24

_Hashes = NDArray[np.int32]
#: Topic, kind (the property that holds it) and text.
_Key = tuple[str, str, str]


class DuplicateKeys:
    """The keys that several messages have; a message with a key twice has it once. ``number`` is
    how many keys there are, ``messages`` the sum of their messages. Both are 0 until
    :meth:`count`."""

    def __init__(self, hashes: list[_Hashes], top: int) -> None:
        """:param hashes: those of all keys, which are taken out of the list. :param top: of so many
        keys with most messages :meth:`rows` has a row."""
        together = np.concatenate([np.empty(0, np.int32), *hashes])
        hashes.clear()
        together.sort()
        #: The hashes that occur more than once, sorted.
        self._suspects = np.unique(together[1:][together[1:] == together[:-1]])
        self._top = top
        self._most: list[tuple[_Key, int]] = []
        self.number = self.messages = 0

    def count(self, stores: Sequence[MessageStore], progress: Progress) -> None:
        """Reads the logs. ``progress`` is called with bytes up to the size of all logs together,
        however often they are read.

        :raises TooMuchHere: more than :data:`MAX_HELD` keys would have to be held.
        """
        size = sum(store.max_offset - store.min_offset for store in stores)
        starts = range(0, len(self._suspects), HASHES_AT_ONCE)
        for turn, start in enumerate(starts):
            suspects = self._suspects[start : start + HASHES_AT_ONCE]
            counts: Counter[_Key] = Counter()
            done = turn * size
            for store in stores:
                for batch in _batches(store):
                    counts.update(key for _, key in _keys_among(batch, suspects))
                    if len(counts) > MAX_HELD:
                        raise TooMuchHere(what=f"{MAX_HELD} keys")
                    progress((done + batch.end_offset - store.min_offset) // len(starts))
                done += store.max_offset - store.min_offset
            self._add([one for one in counts.items() if one[1] > 1])

    def _add(self, found: list[tuple[_Key, int]]) -> None:
        self.number += len(found)
        self.messages += sum(times for _, times in found)
        self._most = nsmallest(
            self._top,
            chain(self._most, found),
            key=lambda one: (-one[1], *map(order, one[0])),
        )

    def rows(self) -> Iterator[Row]:
        """Rows ``duplicate_key``, those with most messages first."""
        for (topic, kind, key), times in self._most:
            yield {
                "type": "duplicate_key",
                "topic": topic,
                "kind": kind,
                "key": key,
                "messages": times,
            }


def _batches(store: MessageStore) -> Iterator[Batch]:
    log = store.commit_log
    return (entry for entry in onward(log, Scanner(log).scan) if isinstance(entry, Batch))


def _keys_among(batch: Batch, suspects: _Hashes) -> set[tuple[int, _Key]]:
    """The keys of a batch whose hashes are among the suspects, each once for each row."""
    is_suspect = _is_among(batch.key_hash, suspects)
    has_suspect = np.zeros(len(batch), np.bool_)
    has_suspect[batch.key_row[is_suspect]] = True
    is_read = has_suspect[batch.key_row]
    position, length, is_unique = key_places(
        np.frombuffer(batch.mapped.buffer, np.uint8),
        batch.properties_position[has_suspect],
        batch.properties_length[has_suspect],
    )
    chosen = is_suspect[is_read]
    row = batch.key_row[is_suspect]
    names, buffer = batch.topics.names, batch.mapped.buffer
    return {
        (number, (names[topic], PROPERTY_UNIQ_KEY if unique else PROPERTY_KEYS, text))
        for number, topic, at, size, unique in zip(
            row.tolist(),
            batch.topic_id[row].tolist(),
            position[chosen].tolist(),
            length[chosen].tolist(),
            is_unique[chosen].tolist(),
            strict=True,
        )
        for text in [decode_utf8(bytes(buffer[at : at + size]))]
    }


def _is_among(hashes: _Hashes, suspects: _Hashes) -> NDArray[np.bool_]:
    """Which hashes are among the suspects, which are sorted, and not empty. ``np.isin`` would sort
    all suspects again for each batch."""
    at = np.minimum(np.searchsorted(suspects, hashes), len(suspects) - 1)
    found: NDArray[np.bool_] = suspects[at] == hashes
    return found
