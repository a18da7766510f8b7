"""Times as options take them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import pytest

from rmqctl.cli.times import parse_time
from rmqctl.cli.types import Time
from tests.test_cli.conftest import Cli

#: Sunday, 31 March 2024, 14:00 in Berlin, where the clocks went forward that night.
NOW = 1_711_886_400_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("now", 0),
        ("-2h", 2 * HOUR),
        ("2h ago", 2 * HOUR),
        ("2hago", 2 * HOUR),
        ("-1h30m", 90 * MINUTE),
        ("1d2h3m4s5ms ago", DAY + 2 * HOUR + 3 * MINUTE + 4005),
        ("+15m", -15 * MINUTE),
        ("14:00", 0),
        ("13:59:30", 30_000),
        ("9:00", 5 * HOUR),
        ("15:00", -HOUR),
        ("today", 13 * HOUR),  # The day has lost an hour.
        ("today 13:00", HOUR),
        ("yesterday", 37 * HOUR),
        ("yesterday 14:00", 23 * HOUR),
        ("yesterdayT23:30", 13 * HOUR + 30 * MINUTE),
        ("2024-03-31T14:00", 0),
        ("2024-03-31 13:00", HOUR),
        ("2024-03-31", 13 * HOUR),
        ("2024-03-31T12:00:00Z", 0),
        ("2024-03-31#14:00:00:000", 0),
        ("2024-03-31#13:59:59:250", 750),
    ],
)
@pytest.mark.usefixtures("berlin")
def test_times_as_people_write_them(text: str, ago: int) -> None:
    assert parse_time(text, NOW) == NOW - ago


@pytest.mark.parametrize(
    "text",
    [
        *("", "ago", "2h", "h ago", "24:00", "14:60", "1:2", "today yesterday", "-2h ago"),
        *("2 hours ago", "-", "+", "noon", "14:00 yesterday", "0001-01-01T00:00+14:00"),
    ],
)
def test_what_is_no_time(text: str) -> None:
    assert parse_time(text, NOW) is None


@pytest.mark.parametrize(
    ("number", "told"),
    [
        ("1711886400", "is in seconds, and times are in milliseconds: give 1711886400000 for 2024"),
        ("1711886400000000", "is in microseconds, and times are in milliseconds: give 1711886400"),
        ("1711886400000000000", "is in nanoseconds, and times are in milliseconds: give 17118864"),
        ("20240331", "is a number of milliseconds: give 2024-03-31 for that day"),
        ("20240331140000", "is a number of milliseconds: give 2024-03-31 for that day"),
    ],
)
def test_numbers_of_another_unit_are_noticed(number: str, told: str) -> None:
    with pytest.raises(click.BadParameter, match=told):
        Time().convert(number, None, None)


@pytest.mark.parametrize(
    "number", [0, 17, 9_999_999, NOW, 20_249_931, 2**53, 9_007_199_254_740_991, 2**63 - 1]
)
def test_other_numbers_are_milliseconds(number: int) -> None:
    assert Time().convert(str(number), None, None) == number


def test_a_time_of_birth_is_one(cli: Cli) -> None:
    done = cli("put", "--topic", "t", "--body", "x", "--store", "s", "--born-timestamp", "17e5")
    assert done.code == 2 and "'17e5' is no time" in done.err and "yesterday" in done.err
