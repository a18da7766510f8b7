"""Types of values that commands take: whole numbers, times, the store's path."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import click

from formats.constants import INT_MAX, LONG_MAX


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


class Text(click.ParamType[str]):
    """A text to be stored, so it is UTF-8: an argument may hold any bytes."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            str(value).encode()
        except UnicodeEncodeError:
            self.fail(f"{value!r} is not UTF-8", param, ctx)
        return str(value)


class Name(click.ParamType[str]):
    """A name that is not empty: an empty one is a variable that was not set, and would be no name
    of anything that is looked for. One that is looked for may hold any bytes, as names of
    directories do; one that ``is_stored`` is :class:`Text`."""

    name = "text"

    def __init__(self, *, is_stored: bool = False) -> None:
        self._is_stored = is_stored

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "":
            self.fail("it is empty", param, ctx)
        return Text().convert(value, param, ctx) if self._is_stored else str(value)


class InputFile(click.File):
    """A file that is read as bytes, or ``-`` for standard input."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-" and sys.stdin is None:
            self.fail("standard input is closed", param, ctx)
        return super().convert(value, param, ctx)


class StorePath(click.Path):
    """A directory's name, or a store's own: ``@name``, which stays a text. An empty one is a
    variable that was not set, and not ``.``."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | str:
        if value == "":
            self.fail("it is empty", param, ctx)
        if str(value).startswith("@"):
            return str(value)
        return Path(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        from rmqctl.cli.completing import stores

        named = stores(incomplete)
        if incomplete.startswith("@"):
            return named
        return [*super().shell_complete(ctx, param, incomplete), *named]


#: Milliseconds: what is less is a date of early 1970, and no other way to write a time.
_EARLIEST = 10_000_000


class Time(click.ParamType[int]):
    """Epoch milliseconds, or a time as :mod:`rmqctl.cli.times` reads it."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if re.fullmatch(r"[0-9]+", text):
            number = Whole(0, LONG_MAX).convert(text, param, ctx)
            if number > _EARLIEST:
                from rmqctl.cli.times import in_other_unit

                if told := in_other_unit(str(number)):
                    self.fail(told, param, ctx)
            return number
        from rmqctl.cli.times import parse_time

        moment = parse_time(text, time.time_ns() // 1_000_000)
        if moment is None:
            self.fail(
                f"{text!r} is no time: give epoch milliseconds, ISO 8601 such as "
                "2024-05-01T12:00:00+02:00, -2h (ms, s, m, h, d, w), 14:30, yesterday, "
                "'yesterday 14:30' or now",
                param,
                ctx,
            )
        return moment


class Length(click.ParamType[int]):
    """A length of time such as ``1h30m``, in milliseconds."""

    name = "length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from rmqctl.cli.times import parse_length

        length = value if isinstance(value, int) else parse_length(str(value).strip())
        if length is None:
            self.fail(f"{value!r} is no length of time: give 90s, 10m or 1h30m", param, ctx)
        return length
