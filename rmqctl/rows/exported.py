"""What ``export`` writes, on Spark and in its own process: which columns, and what it counted."""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.rows.columns import STRUCTURES

#: The columns there are.
KNOWN = tuple(column.name for column in STRUCTURES["commitlog"])
#: A former name of the body, in base64.
BASE64 = "body_base64"
#: How the files of each format end.
SUFFIXES = {"parquet": ".parquet", "ndjson": ".json", "csv": ".csv"}
#: The day of a store time that no calendar has.
NO_DAY = "unknown"


def exported_columns(text: str | None = None) -> list[str]:
    """The columns that ``--columns`` names, every one without it.

    :raises ValueError: there is no such column, or no file would have one.
    """
    wanted = list(KNOWN) if text is None else [name.strip() for name in text.split(",")]
    unknown = [name for name in wanted if name not in (*KNOWN, BASE64)]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r}: {', '.join(KNOWN)}.")
    if set(wanted) == {"topic"}:
        raise ValueError("--columns needs another column: the directories say the topic.")
    return list(dict.fromkeys(wanted))


def file_columns(columns: list[str], kind: str) -> list[str]:
    """The columns that the files of a format have: the directory says the topic, which lines of
    NDJSON say, too, so that each is a message of its own; where a body is text, its spelling is
    named behind it."""
    written = []
    for name in columns:
        if name != "topic" or kind == "ndjson":
            written.append(name)
        if name == "body" and kind != "parquet":
            written.append("body_encoding")
    return ["type", *written] if kind == "ndjson" and "topic" in columns else written


class Exported(NamedTuple):
    """How many messages were written, how many damaged places there were, and of how many messages
    the body is not what was stored."""

    messages: int
    damages: int
    body_crc_mismatches: int

    def row(self) -> dict[str, int]:
        """The fields of a summary: mismatches where there are any."""
        return {
            name: count for name, count in self._asdict().items() if count or "body" not in name
        }
