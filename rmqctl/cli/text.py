"""How data becomes text on a terminal: nothing from a store gets there raw.

Control characters (C0, DEL, C1), invisible and direction-changing ones and lone surrogates are
shown as ``\\x1b`` or ``\\u202e``. Times are shown as ISO 8601 in the local zone, durations as
``1m30s``, sizes as ``1.2 GiB``.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.rows import Row

_CONTROL = (
    "\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
_MILLISECONDS = "_milliseconds"
#: Fields with times and durations whose names do not end as those of others.
_TIMES, _DURATIONS = ("hour",), ("delay_ms_up_to",)
#: Properties that are shown first.
_FIRST = ("KEYS", "TAGS")
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms"))
#: Text between backticks, which is to be copied unbroken; and what stands for a blank in it while
#: lines are broken: no character of a shown text.
_QUOTED, _BLANK = re.compile(r"`[^`]*`"), "\0"
#: Most characters of a message (two paths of the usual length fit), and how many are kept of each
#: end of a longer one.
_LONGEST_MESSAGE, _KEPT_OF_MESSAGE = 2000, 400
#: Types of rows whose ``size`` is the size of files.
_OF_FILES = ("disk", "file", "fleet_store", "summary")
_SIZE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
#: From here on a size is shown in larger units than bytes.
_LONG_NUMBER = 10_000


def visible(text: str) -> str:
    """``text`` with everything that a terminal would obey made visible."""
    if text.isascii() and text.isprintable():
        return text
    return _pattern(f"[\0-\x1f{_CONTROL}]").sub(_escaped, text)


@functools.cache
def _pattern(characters: str) -> re.Pattern[str]:
    return re.compile(characters)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def shortened(text: str) -> str:
    """A message, without its middle when it is very long (it may quote an argument of a hundred
    kilobytes). What is wrong stands at its beginning, the next step at its end."""
    if len(text) <= _LONGEST_MESSAGE:
        return text
    front, end = text[:_KEPT_OF_MESSAGE], text[-_KEPT_OF_MESSAGE:]
    return f"{front}… ({len(text) - 2 * _KEPT_OF_MESSAGE} more characters) …{end}"


def safe_json(text: str) -> str:
    """JSON text in which the characters that :func:`visible` escapes are JSON escapes: it is still
    the same document."""
    if text.isascii() and "\x7f" not in text:
        return text
    # The C0 characters are escaped already, but for the newline that ends a row.
    return _pattern(f"[{_CONTROL}]").sub(_json_escaped, text)


def _json_escaped(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def iso_time(milliseconds: int) -> str:
    """ISO 8601 with the local zone; the number itself when it is no time (0, or beyond 9999)."""
    from datetime import UTC, datetime, timedelta

    if milliseconds <= 0:
        return str(milliseconds)
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
        return moment.astimezone().isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)


def duration(milliseconds: int) -> str:
    """``7h25m``, ``1m30s``, ``250ms``: the two largest units, as RocketMQ names them."""
    left, parts = abs(milliseconds), []
    for size, unit in _UNITS:
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
        elif parts:
            break
        if len(parts) == 2:
            break
    return ("-" if milliseconds < 0 else "") + ("".join(parts) or "0ms")


def human_size(count: int) -> str:
    """Bytes as ``1.2 GiB``; numbers below ten thousand stay as they are."""
    if abs(count) < _LONG_NUMBER:
        return str(count)
    size, unit = float(count), 0
    while abs(size) >= 1024 and unit < len(_SIZE_UNITS):
        size, unit = size / 1024, unit + 1
    digits = 0 if size == int(size) or abs(size) >= 100 else 1
    return f"{size:.{digits}f} {_SIZE_UNITS[unit - 1]}"


def title(name: str) -> str:
    """A field's name in a table, where a duration shows its own units."""
    return name.removesuffix(_MILLISECONDS)


def is_time(name: str) -> bool:
    """Whether a field of this name holds a time, in milliseconds."""
    return name.endswith("timestamp") or name in _TIMES


def is_number(name: str, rows: Sequence[Row]) -> bool:
    """Whether a column holds numbers, which are aligned to the right."""
    kinds = {type(row.get(name)) for row in rows} - {type(None)}
    return kinds == {int} and not is_time(name)


def cell(name: str, value: Any) -> str:
    """One value as a table shows it."""
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if name.endswith(_MILLISECONDS) or name in _DURATIONS:
            return duration(value)
        if name.endswith("bytes"):
            return human_size(value)
        if name.endswith("_file_size"):  # To be compared with a broker.conf.
            return str(value) if value < _LONG_NUMBER else f"{value} ({human_size(value)})"
        return iso_time(value) if is_time(name) else str(value)
    if isinstance(value, dict):
        return " ".join(parts(value))
    if isinstance(value, list | tuple):
        return ", ".join(cell(name, item) for item in value)
    return visible(str(value))


def cell_of(row: Row, name: str) -> str:
    """A field of a row as a table shows it. The ``size`` of files is shown in larger units, as
    other bytes are; that of one structure stays exact, to be compared with others."""
    if name == "size" and row["type"] in _OF_FILES:
        return cell("bytes", row["size"])
    return cell(name, row.get(name))


def parts(value: dict[str, Any]) -> list[str]:
    """``name=value`` of each part of a value, keys and tags of a message first."""
    names = [*(name for name in _FIRST if name in value), *(n for n in value if n not in _FIRST)]
    return [f"{visible(str(name))}={cell(str(name), value[name])}" for name in names]


def width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def _char_width(char: str) -> int:
    """0 for marks and the vowels of a composed Hangul syllable, 2 for what fills two columns."""
    from unicodedata import category, east_asian_width

    if "\u1160" <= char <= "\u11ff" or category(char) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def _fitting(text: str, room: int) -> int:
    """How many characters at the front of a text fit into ``room`` columns."""
    if text.isascii():
        return min(len(text), room)
    used = 0
    for at, char in enumerate(text):
        used += _char_width(char)
        if used > room:
            return at
    return len(text)


def cut(text: str, room: int, *, in_the_middle: bool = False) -> str:
    """``text`` in at most ``room`` columns, with ``…`` in place of what does not fit: its end, or,
    where names differ at both ends, its middle."""
    # What is far too long is not measured to its end: a character has a column, or nearly always.
    if len(text) <= 4 * room and width(text) <= room:
        return text
    behind = (room - 1) // 2 if in_the_middle else 0
    end = text[len(text) - _fitting(text[::-1], behind) :]
    # An accent without its letter would stand on the dots.
    end = end[next((at for at, char in enumerate(end) if _char_width(char)), len(end)) :]
    return f"{text[: _fitting(text, room - 1 - width(end))]}…{end}"


def wrapped(text: str, room: int) -> list[str]:
    """Lines of at most ``room`` columns: broken between words, and within one that is longer."""
    if len(text) <= room and width(text) <= room:
        return [text]
    lines, used = [""], 0
    for word in text.split(" "):
        wide = width(word)
        gap = " " if lines[-1] else ""
        if used + len(gap) + wide <= room:
            lines[-1] += gap + word
            used += len(gap) + wide
            continue
        pieces = _folded(word, room)
        lines[-1:] = [lines[-1], *pieces] if lines[-1] else pieces
        used = width(lines[-1])
    return lines


def in_sentences(text: str, room: int) -> list[str]:
    """Lines of at most ``room`` columns, broken between words only: what stands between backticks
    is to be copied, so it stays together, and what is too long is left to the terminal."""
    lines, used = [""], 0
    for word in _QUOTED.sub(lambda quoted: quoted[0].replace(" ", _BLANK), text).split(" "):
        wide = width(word)
        gap = " " if lines[-1] else ""
        if lines[-1] and used + 1 + wide > room:
            lines.append(word)
            used = wide
        else:
            lines[-1] += gap + word
            used += len(gap) + wide
    return [line.replace(_BLANK, " ") for line in lines]


def _folded(word: str, room: int) -> list[str]:
    """A word in pieces of at most ``room`` columns, which are two or more."""
    if word.isascii():
        return [word[at : at + room] for at in range(0, len(word), room)] or [""]
    pieces, begin, used = [], 0, 0
    for at, char in enumerate(word):
        used += (wide := _char_width(char))
        if used > room:
            pieces.append(word[begin:at])
            begin, used = at, wide
    return [*pieces, word[begin:]]


def pairs(row: Row) -> str:
    """A row on one line, without its type: ``name=value, name="one, two", …``."""
    return ", ".join(
        f"{title(name)}={_quoted(cell_of(row, name))}" for name in row if name != "type"
    )


def _quoted(text: str) -> str:
    return f'"{text}"' if ", " in text else text
