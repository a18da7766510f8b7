"""Java's rules about strings, where the bytes of a store depend on them.

Three things in a store come out of Java's string handling: the tags code of a queue unit and the
key hash of an index item (`String#hashCode`), the order of a record's properties (the iteration
order of a `java.util.HashMap`), and what malformed UTF-8 turns into when it is read. They are
rebuilt here so that what this project writes equals what a broker writes.

Left out: the order inside a `HashMap` bucket that has become a tree, which takes eleven names of
equal hash: a bucket of nine or ten makes the table grow to 64 first.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from formats.constants import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
)

# A surrogate in UTF-8 is malformed. Java replaces it as a whole, Python byte by byte.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()

_NAME_VALUE_SEPARATOR = NAME_VALUE_SEPARATOR.encode()
_PROPERTY_SEPARATOR = PROPERTY_SEPARATOR.encode()

_INT_RANGE, _LONG_RANGE = range(INT_MIN, INT_MAX + 1), range(LONG_MIN, LONG_MAX + 1)
# Digits of any script, as `Character#digit` takes them.
_WHOLE = re.compile(r"[+-]?\d+")
# Fewer than these are quickly read.
_MANY_DIGITS = 20

_TRIMMED = "".join(map(chr, range(ord(" ") + 1)))
# White space to Python, and not to Java: the next line, and spaces that do not break.
_NO_WHITE_SPACE = "\x85\xa0\u2007\u202f"

_INITIAL_CAPACITY = 16
CAPACITY_OF_5 = 128
"""Of the map into which a broker of 5.x reads properties (`string2messageProperties`)."""
_TREEIFY_THRESHOLD = 8
_MIN_TREEIFY_CAPACITY = 64


def decode_utf8(data: bytes) -> str:
    """Decode as Java's `new String(data, UTF_8)` does: malformed input becomes U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def encode_utf8(text: str) -> bytes:
    """Encode as Java's `String#getBytes(UTF_8)` does: a lone surrogate becomes a question mark."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Two halves that stand side by side are one character to Java, so join them first.
        units = text.encode("utf-16-le", "surrogatepass")
        return units.decode("utf-16-le", "surrogatepass").encode(errors="replace")


def string_hash_code(text: str) -> int:
    """Return `String#hashCode`: a signed 32-bit number over the UTF-16 code units."""
    code = 0
    try:
        # Each byte of Latin-1 is one code unit.
        for unit in text.encode("latin-1"):
            code = (31 * code + unit) & 0xFFFFFFFF
    except UnicodeEncodeError:
        for unit in memoryview(text.encode("utf-16", "surrogatepass")[2:]).cast("H"):
            code = (31 * code + unit) & 0xFFFFFFFF
    return code - 0x1_0000_0000 if code & 0x8000_0000 else code


@lru_cache(512)
def tags_code(tags: str) -> int:
    """Return the tags code of a TAGS property (`MessageExtBrokerInner#tagsString2tagsCode`)."""
    return string_hash_code(tags)


def index_key_hash(topic: str, key: str) -> int:
    """Return the key hash under which a message of `topic` is indexed by `key`; never negative."""
    code = abs(string_hash_code(f"{topic}#{key}"))
    # Math.abs leaves Integer.MIN_VALUE negative, which IndexFile#indexKeyHashMethod maps to 0.
    return 0 if code == 0x8000_0000 else code


def hash_map_order(names: Iterable[str], capacity: int = _INITIAL_CAPACITY) -> list[str]:
    """Return the names in the order in which a fresh `HashMap` that they were put into yields them.

    The names are put in the given order; a repeated one keeps its first place. Order is by bucket,
    and within a bucket by insertion, which growing the table preserves. `capacity` is a power of
    two, the table's at first.
    """
    return list(_hash_map_order(tuple(names), capacity))


@lru_cache(512)
def _hash_map_order(names: tuple[str, ...], capacity: int) -> tuple[str, ...]:
    spread_by_name = {}
    for name in names:
        if name not in spread_by_name:
            code = string_hash_code(name)
            spread_by_name[name] = code ^ ((code & 0xFFFFFFFF) >> 16)
    mask = _table_capacity(list(spread_by_name.values()), capacity) - 1
    return tuple(sorted(spread_by_name, key=lambda name: spread_by_name[name] & mask))


def _table_capacity(spreads: list[int], capacity: int) -> int:
    """Return the capacity of a `HashMap` table after hashes have been put one by one."""
    if len(spreads) <= _TREEIFY_THRESHOLD:
        return capacity
    for count in range(1, len(spreads) + 1):
        bucket = spreads[count - 1] & (capacity - 1)
        # A crowded bucket of a small table grows the table (HashMap#treeifyBin) ...
        if capacity < _MIN_TREEIFY_CAPACITY:
            neighbours = sum(s & (capacity - 1) == bucket for s in spreads[: count - 1])
            if neighbours >= _TREEIFY_THRESHOLD:
                capacity *= 2
        # ... and so does a table that is more than three quarters full.
        if count * 4 > capacity * 3:
            capacity *= 2
    return capacity


def split_properties(data: bytes) -> list[tuple[bytes, bytes | None]]:
    """Return the entries of stored properties as they stand there, dropping nothing.

    The value is None in an entry without a separator. A trailing 0x02 yields a last entry
    `(b"", None)`; no bytes yield no entries. `join_properties` gives back the same bytes.
    """
    if not data:
        return []
    entries: list[tuple[bytes, bytes | None]] = []
    for entry in data.split(_PROPERTY_SEPARATOR):
        name, separator, value = entry.partition(_NAME_VALUE_SEPARATOR)
        entries.append((name, value if separator else None))
    return entries


def join_properties(entries: Iterable[tuple[bytes, bytes | None]]) -> bytes:
    """Return the stored form of entries as `split_properties` yields them."""
    return _PROPERTY_SEPARATOR.join(
        name if value is None else name + _NAME_VALUE_SEPARATOR + value for name, value in entries
    )


def decode_properties(data: bytes) -> dict[str, str]:
    """Return the properties that RocketMQ sees in a record (`string2messageProperties`).

    An entry without a separator, with an empty name or with an empty value is dropped; of a
    repeated name the last value counts. Any bytes are accepted.
    """
    properties = {}
    for entry in decode_utf8(data).split(PROPERTY_SEPARATOR):
        name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def encode_properties(
    properties: Mapping[str, str | None], capacity: int = _INITIAL_CAPACITY
) -> bytes:
    """Return the stored form of properties (`MessageDecoder#messageProperties2String` of 4.9.3).

    The mapping's order is the order in which a producer set them; the result has `HashMap` order
    of a table of `capacity` and no trailing separator. A value of None is skipped, an empty one is
    written.
    """
    # None values still occupy a place in the map, so they take part in the order.
    entries = (
        f"{name}{NAME_VALUE_SEPARATOR}{value}"
        for name in hash_map_order(properties, capacity)
        if (value := properties[name]) is not None
    )
    return encode_utf8(PROPERTY_SEPARATOR.join(entries))


def java_int_value(number: int) -> int:
    """`Long#intValue`: the low 32 bits, with their sign."""
    return (number - INT_MIN) % len(_INT_RANGE) + INT_MIN


def java_long_value(number: int) -> int:
    """A sum or product as a `long` has it: the low 64 bits, with their sign."""
    return (number - LONG_MIN) % (1 << 64) + LONG_MIN


def java_trim(text: str) -> str:
    """`String#trim`: without the characters up to the space at both ends, and no others."""
    return text.strip(_TRIMMED)


def java_split(text: str, separator: str) -> list[str]:
    """`String#split` at one character that means itself: without the empty strings at the end."""
    if separator not in text:
        return [text]
    parts = text.split(separator)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def is_blank(text: str) -> bool:
    """`StringUtils#isBlank`: nothing but white space as `Character#isWhitespace` has it."""
    return all(character.isspace() and character not in _NO_WHITE_SPACE for character in text)


def java_int(text: str) -> int | None:
    """`Integer#parseInt`; None where it throws."""
    return _parsed(text, _INT_RANGE)


def java_long(text: str) -> int | None:
    """`Long#parseLong`; None where it throws."""
    return _parsed(text, _LONG_RANGE)


def _parsed(text: str, numbers: range) -> int | None:
    if len(text) < _MANY_DIGITS and text.isascii() and text.isdigit():
        number = int(text)
        return number if number in numbers else None
    if not _WHOLE.fullmatch(text) or max(text) > "\uffff":
        return None
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > len(str(numbers.stop)):
        return None
    number = -int(digits or "0") if text[0] == "-" else int(digits or "0")
    return number if number in numbers else None
