"""Numbers the topics of a scan, for a whole batch at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formats.constants import INDEX_TAG_TYPE
from formats.text import decode_utf8, string_hash_code
from rmqctl.engine.files.paths import topic_directory_problem
from rmqctl.engine.scan.columns import Bytes, Ints, padded

_WORD = 8
_WORDS = 16
_SLOT_BITS = 16
_FACTORS = np.random.default_rng(0x5EED).integers(1, 2**63, _WORDS, np.uint64) * np.uint64(
    2
) + np.uint64(1)


class TopicTable:
    """The topics of a scan: a small number for each, and what dispatch needs of it.

    :meth:`lookup` guesses numbers by a table of hashes and then compares the bytes, so it is never
    wrong. Topics for which the guess fails (new, very long, or in the same slot) go through a
    dictionary. Damaged bytes that Java reads as the same name are one topic: that of the name.
    """

    #: Whether different bytes with the same decoded name get the same number.
    joins_names = True

    def __init__(self, *, indexes_tags: bool = False) -> None:
        """:param indexes_tags: records have an index item of their tags, as since 5.4."""
        self.indexes_tags = indexes_tags
        self.names: list[str] = []
        self._id_by_bytes: dict[bytes, int] = {}
        self._id_by_name: dict[str, int] = {}
        self._slots = np.zeros(1 << _SLOT_BITS, np.int64)
        # By topic number, with room for more: the name's bytes as words, then its length.
        self._words = np.zeros((_WORDS, 1), np.uint64)
        self._length = np.zeros(1, np.int64)
        self._allowed = np.zeros(1, bool)
        self._key_prefix = np.zeros(1, np.uint32)
        self._texts = b"\0\0\0\0", b""
        self._texts_of = 0

    def id_of(self, topic: str) -> int:
        """Number of a topic; a new topic gets one."""
        return self.number_of(topic.encode("utf-8", "surrogateescape"))

    def number_of(self, topic: bytes) -> int:
        """Number of a topic by its bytes; a new topic gets one."""
        number = self._id_by_bytes.get(topic)
        return self._add(topic) if number is None else number

    def texts(self) -> tuple[bytes, bytes]:
        """0 and the ends of all names in UTF-8 (int32), and the joined names, by topic number."""
        if self._texts_of < len(self.names):
            names = [name.encode() for name in self.names]
            ends = np.cumsum([0, *map(len, names)], dtype=np.int32)
            self._texts, self._texts_of = (ends.tobytes(), b"".join(names)), len(names)
        return self._texts

    def allowed_array(self) -> NDArray[np.bool_]:
        """Whether each topic can be a queue directory: bool, by topic number, a view."""
        return self._allowed[: len(self.names)]

    def key_prefix_array(self) -> NDArray[np.uint32]:
        """``hashCode`` of ``topic#`` for each topic: uint32, by topic number, a view."""
        return self._key_prefix[: len(self.names)]

    def tags_prefix_array(self) -> NDArray[np.uint32] | None:
        """``hashCode`` of ``topic#T#`` for each topic: uint32, by topic number; None if tags are
        not indexed."""
        if not self.indexes_tags:
            return None
        code = self.key_prefix_array()
        for character in f"{INDEX_TAG_TYPE}#":
            code = code * np.uint32(31) + np.uint32(ord(character))
        return code

    def lookup(self, data: Bytes, start: Ints, length: Ints) -> Ints:
        """Numbers of the topics (none empty) at places in ``data`` (uint8); adds new ones.

        The result is int64, parallel to ``start`` and ``length`` (int64, bytes). New topics are
        numbered in the order of the places.
        """
        count = min(-(-int(length.max()) // _WORD), _WORDS)
        rows = padded(data, start, np.minimum(length, count * _WORD), count * _WORD)
        words = rows.view(np.uint64)
        code = words[:, 0] * _FACTORS[0]
        for at in range(1, count):
            code += words[:, at] * _FACTORS[at]
        slot = (code >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)
        number: Ints = self._slots[slot]
        right = self._length[number] == length
        for at in range(count):
            right &= self._words[at][number] == words[:, at]
        right &= length <= _WORDS * _WORD
        for row in np.flatnonzero(~right).tolist():
            low = int(start[row])
            number[row] = self.number_of(data[low : low + int(length[row])].tobytes())
            self._slots[slot[row]] = number[row]
        return number

    def _add(self, topic: bytes) -> int:
        name = decode_utf8(topic)
        known = self._id_by_name.get(name) if self.joins_names else None
        number = self._id_by_bytes[topic] = len(self.names) if known is None else known
        if known is not None:
            return number
        self._id_by_name[name] = number
        self.names.append(name)
        if number == len(self._length):
            self._words = np.concatenate([self._words, np.zeros_like(self._words)], axis=1)
            self._length, self._allowed, self._key_prefix = (
                np.concatenate([column, np.zeros_like(column)])
                for column in (self._length, self._allowed, self._key_prefix)
            )
        head = topic[: _WORDS * _WORD].ljust(_WORDS * _WORD, b"\0")
        self._words[:, number] = np.frombuffer(head, np.uint64)
        self._length[number] = len(topic)
        self._allowed[number] = topic_directory_problem(name) is None
        self._key_prefix[number] = string_hash_code(name + "#") & 0xFFFFFFFF
        return number
