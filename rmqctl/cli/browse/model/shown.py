"""Formats values for the lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def short_time(milliseconds: int | None) -> str:
    """A time such as ``2026-11-22 06:04:00.123`` in the local zone; the number if it is outside the
    calendar."""
    if milliseconds is None or milliseconds <= 0:
        return "-" if milliseconds is None else str(milliseconds)
    try:
        moment = (_EPOCH + timedelta(milliseconds=milliseconds)).astimezone()
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"


def to_the_second(milliseconds: int | None) -> str:
    """:func:`short_time` without its milliseconds."""
    return short_time(milliseconds).partition(".")[0]


def size(count: int) -> str:
    """``1.5 MiB``."""
    number, unit = float(count), 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{number:.1f} {_UNITS[unit]}"
