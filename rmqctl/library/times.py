"""Converts times between the forms that programs use and the store's epoch milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

#: A time: epoch milliseconds, text in ISO 8601, or a datetime. Without a zone it is local.
Moment = int | str | datetime

_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
#: Seconds of the years 2001 to 2286; as milliseconds all of them are in early 1970.
_SECONDS = range(1_000_000_000, 10_000_000_000)


def milliseconds(moment: Moment | None) -> int | None:
    """A time in epoch milliseconds; None stays None.

    :raises ValueError: a text is no time, a number seems to be in seconds, or a time lies outside
        the calendar.
    :raises TypeError: the value is of no type of :data:`Moment`.
    """
    if moment is None:
        return None
    if isinstance(moment, int) and not isinstance(moment, bool):
        if moment in _SECONDS:
            raise ValueError(f"{moment} is in seconds, and times are in milliseconds")
        return moment
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if not isinstance(moment, datetime):
        raise TypeError(
            f"a time is a datetime, ISO 8601 or epoch milliseconds, not {type(moment).__name__}"
        )
    try:
        return (moment.astimezone() - _EPOCH) // _MILLISECOND
    except OverflowError:
        raise ValueError(f"{moment.isoformat()} is in no calendar of UTC") from None


def moment_of(timestamp: int) -> datetime | None:
    """Epoch milliseconds as a datetime in UTC; None where the calendar does not go that far."""
    try:
        return _EPOCH + timestamp * _MILLISECOND
    except OverflowError:
        return None
