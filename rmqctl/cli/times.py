"""Times as people write them, in epoch milliseconds.

A number is milliseconds. ``2024-05-01T12:00`` is ISO 8601, in the local zone when it names none;
``2024-05-01#12:00:00:000`` is what ``mqadmin`` takes.
``now``, ``today``, ``yesterday`` (their midnight), ``14:30`` (today) and ``yesterday 14:30`` are of
the local zone; ``-2h``, ``-1h30m``, ``2h ago`` and ``+2h`` count from now.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_LENGTH = "((?:[0-9]{1,9}(?:ms|s|m|h|d|w))+)"
_RELATIVE = re.compile(f"([-+]){_LENGTH}|{_LENGTH} ?ago")
_PART = re.compile("([0-9]+)(ms|s|m|h|d|w)")
#: Days before this one.
_DAYS = {"today": 0, "yesterday": 1}
_OF_DAY = re.compile(r"(?:(today|yesterday)[ T]?)?(?:([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?)?")
_OF_MQADMIN = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})#([0-9:]{8}):([0-9]{3})")
#: Digits of a number that is a time of the years 2001 to 2286 in another unit, its name, and how
#: many of them are a second.
_OTHER_UNITS = {10: ("seconds", 1), 16: ("microseconds", 10**6), 19: ("nanoseconds", 10**9)}
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def parse_time(text: str, now: int) -> int | None:
    """A time that is no plain number, in epoch milliseconds, as is ``now``; None where it is
    none."""
    if text == "now":
        return now
    relative = _RELATIVE.fullmatch(text)
    if relative:
        sign = 1 if relative[1] == "+" else -1
        parts = _PART.findall(relative[2] or relative[3])
        return now + sign * sum(int(count) * _UNITS[unit] for count, unit in parts)
    try:
        iso = _OF_MQADMIN.sub(r"\1T\2.\3", text)
        moment = _of_day(text, now) or datetime.fromisoformat(iso)
        return (moment.astimezone() - _BEGIN) // _MILLISECOND
    except (ValueError, OverflowError):
        return None


def parse_length(text: str) -> int | None:
    """A length of time such as ``90s`` or ``1h30m``, in milliseconds; None where it is none."""
    if not re.fullmatch(_LENGTH, text):
        return None
    return sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text))


def in_other_unit(digits: str) -> str | None:
    """What to say of a number that is hardly meant in milliseconds; None where it may well be."""
    if digits.startswith(("19", "20")) and len(digits) in (8, 14):
        try:
            day = datetime.fromisoformat(digits[:8]).date()
        except ValueError:
            return None
        return f"{digits} is a number of milliseconds: give {day} for that day"
    name, per_second = _OTHER_UNITS.get(len(digits), ("", 0))
    # Ten digits begin with any; the longer ones are left to who means the end of all times.
    if not name or (len(digits) > 10 and not digits.startswith(("1", "2"))):
        return None
    meant = int(digits) * 1000 // per_second
    shown = [
        (_BEGIN + timedelta(milliseconds=one)).isoformat(timespec="milliseconds")[:23] + "Z"
        for one in (meant, *([int(digits)] if len(digits) == 10 else []))
    ]
    otherwise = f", or {shown[1]} if you mean that" if len(shown) > 1 else ""
    return (
        f"{digits} is in {name}, and times are in milliseconds: give {meant} for {shown[0]}"
        f"{otherwise}"
    )


def _of_day(text: str, now: int) -> datetime | None:
    """``yesterday``, ``14:30`` or both, as a time without a zone: a day has its own clock.

    :raises ValueError: there is no such time of day.
    """
    found = _OF_DAY.fullmatch(text) if text else None
    if found is None:
        return None
    today = (_BEGIN + timedelta(milliseconds=now)).astimezone().replace(tzinfo=None)
    day = today - timedelta(days=_DAYS[found[1] or "today"])
    hour, minute, second = (int(part or 0) for part in found.groups()[1:])
    return day.replace(hour=hour, minute=minute, second=second, microsecond=0)
