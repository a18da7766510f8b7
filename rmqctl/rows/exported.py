"""What ``export`` writes, on Spark and in its own process: the columns, and the counts."""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.rows.columns import STRUCTURES

#: The columns that can be exported.
KNOWN = tuple(column.name for column in STRUCTURES["commitlog"])
#: A former name of the body, in base64.
BASE64 = "body_base64"
#: The file suffix of each format.
SUFFIXES = {"parquet": ".parquet", "ndjson": ".json", "csv": ".csv"}
#: Stands for the day of a store time that is outside the calendar.
NO_DAY = "unknown"


def exported_columns(text: str | None = None) -> list[str]:
    """The columns that ``--columns`` names; all columns without it.

    :raises ValueError: there is no such column, or the files would have no column.
    """
    wanted = list(KNOWN) if text is None else [name.strip() for name in text.split(",")]
    unknown = [name for name in wanted if name not in (*KNOWN, BASE64)]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r}: {', '.join(KNOWN)}.")
    if set(wanted) == {"topic"}:
        raise ValueError("--columns needs another column: the directories say the topic.")
    return list(dict.fromkeys(wanted))


def file_columns(columns: list[str], kind: str) -> list[str]:
    """The columns in the files of a format. The topic is in the name of the directory; only lines
    of NDJSON have it as well, so that each line is a complete message. In text formats a column
    after ``body`` says how the body is encoded."""
    written = []
    for name in columns:
        if name != "topic" or kind == "ndjson":
            written.append(name)
        if name == "body" and kind != "parquet":
            written.append("body_encoding")
    return ["type", *written] if kind == "ndjson" and "topic" in columns else written


class Exported(NamedTuple):
    """The counts of an export: messages written, damaged places left out, and messages whose body
    does not match its CRC."""

    messages: int
    damages: int
    body_crc_mismatches: int

    def row(self) -> dict[str, int]:
        """The fields of the summary. Mismatches are left out if there are none."""
        return {
            name: count for name, count in self._asdict().items() if count or "body" not in name
        }
