"""The sizes of the scanner's steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScanTuning:
    """Sizes of the scanner's steps. They change its speed, but never its results.

    ``batch_records`` and ``batch_bytes``: the most records of a batch, and about the most bytes
    (the pure backend has no such limit). ``first_records``: for how many a backend makes
    room at first. ``window_bytes``: the fewest and the most bytes of a window; small ones after
    damage, because more may follow, and then larger ones again. ``lane_records`` and ``lane_bytes``
    (fewest and most): the length of a lane of a chain, which must be worth the search for its
    start, in its first ``lane_search_bytes``. ``chunk_bytes``: bytes of the matrices into which
    texts are gathered. ``crc_rows``: how many CRCs of short bodies are computed at once.
    ``threads``: how many read a window together, if the backend can. ``kept_bytes``: the most bytes
    of a window of pages that stay mapped, when nothing is noted of plain records. It is larger
    because it needs no memory, and threads wait for each other at the end of a window.
    """

    batch_records: int = 1 << 14
    batch_bytes: int = 1 << 22
    first_records: int = 512
    window_bytes: tuple[int, int] = (1 << 20, 16 << 20)
    kept_bytes: int = 64 << 20
    lane_records: int = 32
    lane_bytes: tuple[int, int] = (1 << 13, 1 << 18)
    lane_search_bytes: int = 1 << 12
    chunk_bytes: int = 1 << 19
    crc_rows: int = 2048
    threads: int = 1


#: Measured to be fast on logs with records of 200 to 1,000 bytes.
DEFAULT = ScanTuning()
