"""Times as programs give them, and as the store has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

#: What may stand for a time: epoch milliseconds, ISO 8601, a datetime. Without a zone it is local.
Moment = int | str | datetime

_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
#: Seconds of the years 2001 to 2286; as milliseconds all of them are in early 1970.
_SECONDS = range(1_000_000_000, 10_000_000_000)


def milliseconds(moment: Moment | None) -> int | None:
    """Epoch milliseconds; None stays None.

    :raises ValueError: a text is no time, or a number is one of seconds.
    :raises TypeError: it is neither.
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
    return (moment.astimezone() - _EPOCH) // _MILLISECOND


def moment_of(timestamp: int) -> datetime | None:
    """Epoch milliseconds as a datetime in UTC; None: no calendar has it."""
    try:
        return _EPOCH + timestamp * _MILLISECOND
    except OverflowError:
        return None
