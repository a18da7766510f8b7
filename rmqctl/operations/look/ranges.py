"""Checks the ranges of places and times that a user gives."""

from __future__ import annotations

from rmqctl.errors import UsageError


def check_range(low_name: str, low: int | None, high_name: str, high: int | None) -> None:
    """:raises UsageError: ``low`` is greater than ``high``."""
    if low is not None and high is not None and low > high:
        raise UsageError(reason=f"{low_name} {low} is behind {high_name} {high}: swap them.")
