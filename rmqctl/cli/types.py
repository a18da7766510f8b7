"""Types of values that commands take: whole numbers, times, the store's path."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import click

LONG_MAX = 0x7FFFFFFFFFFFFFFF


INT_MAX = 0x7FFFFFFF


class Whole(click.ParamType[int]):
    """A whole number in decimal digits, within limits."""

    name = "number"

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip()
        if not re.fullmatch(r"-?[0-9]{1,40}", text):
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if not self.low <= int(text) <= self.high:
            self.fail(f"{text} is not within {self.low} to {self.high}", param, ctx)
        return int(text)


#: A physical offset, a queue offset: a Java long that is not negative.
OFFSET = Whole(0, LONG_MAX)


QUEUE_ID = Whole(0, INT_MAX)


class StorePath(click.Path):
    """A directory's name; an empty one is a variable that was not set, and not ``.``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "":
            self.fail("it is empty", param, ctx)
        return Path(value)


_AGO = re.compile(r"-([0-9]{1,9})(ms|s|m|h|d|w)")


_UNIT = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


#: Seconds of the years 2001 to 2286; as milliseconds all of them are in early 1970.
_SECONDS = range(1_000_000_000, 10_000_000_000)


def _in_seconds(number: int) -> str:
    from datetime import UTC, datetime, timedelta

    begin = datetime(1970, 1, 1, tzinfo=UTC)
    shown = [
        (begin + step).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        for step in (timedelta(seconds=number), timedelta(milliseconds=number))
    ]
    return (
        f"{number} is in seconds, and times are in milliseconds: give {number}000 for {shown[0]}, "
        f"or {shown[1]} if you mean that"
    )


class Time(click.ParamType[int]):
    """Epoch milliseconds, ISO 8601 (local zone when it names none), or ``-2h`` before now."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if re.fullmatch(r"[0-9]+", text):
            number = Whole(0, LONG_MAX).convert(text, param, ctx)
            if number in _SECONDS:
                self.fail(_in_seconds(number), param, ctx)
            return number
        ago = _AGO.fullmatch(text)
        if ago:
            return time.time_ns() // 1_000_000 - int(ago[1]) * _UNIT[ago[2]]
        from datetime import UTC, datetime, timedelta

        try:
            moment = datetime.fromisoformat(text).astimezone()
        except (ValueError, OverflowError):
            self.fail(
                f"{text!r} is no time: give epoch milliseconds, ISO 8601 such as "
                "2024-05-01T12:00:00+02:00, or -2h (ms, s, m, h, d, w)",
                param,
                ctx,
            )
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
