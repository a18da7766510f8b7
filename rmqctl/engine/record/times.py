"""Times of a store as text."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_time(timestamp: int) -> str:
    """Epoch milliseconds as ISO 8601 in UTC; the number where the calendar does not go that far."""
    try:
        moment = datetime.fromtimestamp(timestamp // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{timestamp % 1000:03d}Z"
