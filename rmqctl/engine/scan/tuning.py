"""How much the scanner takes at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScanTuning:
    """Sizes of the scanner's steps. They change how fast it is, and nothing that it says.

    ``batch_records``: records of a batch, at most, and ``first_records``: of which there is room at
    first, where a backend makes room. ``window_bytes``: what is chained at once, the least and
    the most; little after damage, where more may follow, and soon much again. ``lane_records`` and
    ``lane_bytes`` (least and most): what a lane of a chain has to itself, so that it is worth its
    start, which is searched for in the first ``lane_search_bytes`` of it. ``chunk_bytes``: of the
    matrices into which texts are gathered. ``crc_rows``: short bodies whose CRC is taken at once.
    ``threads``: that read a window together, where a backend can. ``kept_bytes``: what is looked at
    at once, at most, of pages that stay mapped, where nothing is noted of what is passed over, and
    memory is no reason for less: threads wait for each other at the end of a window.
    """

    batch_records: int = 16384
    first_records: int = 512
    window_bytes: tuple[int, int] = (1 << 20, 16 << 20)
    kept_bytes: int = 64 << 20
    lane_records: int = 32
    lane_bytes: tuple[int, int] = (1 << 13, 1 << 18)
    lane_search_bytes: int = 1 << 12
    chunk_bytes: int = 1 << 19
    crc_rows: int = 2048
    threads: int = 1


#: What was measured to be fast on logs of records of 200 to 1,000 bytes.
DEFAULT = ScanTuning()
