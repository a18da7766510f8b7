"""What a check finds in a log that is read in parts, as tasks of Spark read it."""

from __future__ import annotations

import pickle
from contextlib import closing
from pathlib import Path

from rmqctl.engine.scan.ranges import PartBounds, PartScan, numbered, plan_parts, unmet
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.verify import Finding, inparts


def found_in_parts(root: Path, config: MessageStoreConfig, part_bytes: int) -> list[Finding]:
    """The findings of the log's records, and of its end."""
    side = inparts.StoreSide(root, config)
    with closing(side.log) as log:
        parts = plan_parts(log, part_bytes)
        while True:
            told: list[inparts.PartFindings] = []
            bounds: list[PartBounds] = []
            for part in parts:
                scan, one = (
                    PartScan(Scanner(log, check=True), part),
                    inparts.LogSide(side.snapshot, log),
                )
                for entry in scan:
                    one.add(entry)
                told.append(pickle.loads(pickle.dumps(one.finish())))
                bounds.append(scan.bounds)
            wrong = unmet(bounds, log.files.end_offset)
            if not wrong:
                return list(side.join(told))
            parts = numbered(part.start for part in parts if part.number not in wrong)
