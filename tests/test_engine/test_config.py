"""The page of the configuration names every property that is read, and its default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.errors import BrokerConfError

PAGE = Path(__file__).parents[2] / "docs/reference/configuration.md"
ROW = re.compile(r"^\| `(\w+)` \| (?:`(.*?)`)? ?\| (.+) \|$", re.MULTILINE)


def test_the_page_has_every_property_with_its_default() -> None:
    rows = {name: default for name, default, _ in ROW.findall(PAGE.read_text())}
    config = MessageStoreConfig()
    found = {}
    for name, default in rows.items():
        read = parse_broker_conf(f"{name}={default}")
        (field,) = read.explicit
        assert getattr(read, field) == getattr(config, field), name
        found[field] = name
    told_elsewhere = {"explicit", "overruled"}
    assert set(found) == {f.name for f in fields(config)} - told_elsewhere
    # Every name is the broker's: this page's rows are no more than the fields.
    assert len(rows) == len(found)


def test_both_spellings_of_mapped_are_told() -> None:
    text = PAGE.read_text()
    for name in re.findall(r"`(mappedFile\w+)`", text):
        assert name.replace("mapped", "maped") in text


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (0, 100),
        (1, 100),
        (100, 100),
        (199, 100),
        (200, 200),
        (300, 200),
        (999, 500),
        (60_000, 1000),
    ],
)
def test_the_timers_precision_is_one_that_a_broker_takes(given: int, taken: int) -> None:
    """``MessageStoreConfig#setTimerPrecisionMs``; one of 0 had the timer divided by it."""
    config = parse_broker_conf(f"timerPrecisionMs={given}")
    assert config.timer_precision_ms == taken and config.is_explicit("timer_precision_ms")


@pytest.mark.parametrize(
    "name",
    [
        "mappedFileSizeCommitLog",
        "mapedFileSizeConsumeQueue",
        "mapperFileSizeBatchConsumeQueue",
        "mappedFileSizeTimerLog",
        "maxHashSlotNum",
    ],
)
def test_a_size_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(BrokerConfError, match="not a positive whole number"):
        parse_broker_conf(f"{name}=0")
