"""``python -m tests.faults [--count N] [--seed SEED] [--results FILE] [--write]``: tries faults and
prints the table of what verify found; with ``--write`` into its page."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests import golden_data
from tests.faults.table import PAGE, table, with_table
from tests.faults.trials import Trial, subjects, trials

_COUNT, _SEED = 10_000, "1"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=_COUNT)
    arguments.add_argument("--seed", default=_SEED)
    arguments.add_argument("--results", type=Path, help="every trial, as a line of JSON")
    arguments.add_argument("--write", action="store_true")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        tried = list(_told(_all(Path(name), options.seed, options.count), options.results))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    longest = max(trial.seconds for trial in tried)
    print(f"{memory} MiB of memory at most; the longest check took {longest:.2f} s")
    shown = table(tried)
    if options.write:
        PAGE.write_text(with_table(PAGE.read_text("utf-8"), shown), "utf-8")
    else:
        print(shown)
    return 0


def _all(directory: Path, seed: str, count: int) -> Iterator[Trial]:
    def golden(name: str) -> Path:
        return golden_data.unpacked(name, directory)

    (directory / "damaged").mkdir()
    yield from trials(subjects(golden, directory / "damaged"), seed, range(count))


def _told(tried: Iterator[Trial], results: Path | None) -> Iterator[Trial]:
    """The trials, each written to ``results`` as soon as it is done."""
    lines = None if results is None else results.open("w", encoding="utf-8")
    for trial in tried:
        if lines is not None:
            fault = trial.fault._replace(data=None)._asdict()
            row = trial._asdict() | {"fault": fault, "structure": trial.fault.structure}
            print(json.dumps(row), file=lines, flush=True)
        yield trial
    if lines is not None:
        lines.close()


if __name__ == "__main__":
    sys.exit(main())
