"""Measures how time and memory of the bulk commands grow with the number of messages in a store.

Run it as ``python tests/benchmarks/growth.py``; see the README beside it. It measures processor
time, which other work on the machine changes little, and the peak of memory. The stores take turns,
for a machine is faster in one minute than in the next.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.bench import RMQCTL, write_messages

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "performance.md"
BEGIN, END = "<!-- growth: python tests/benchmarks/growth.py --write -->", "<!-- end of growth -->"
SIZES = [10**6, 4 * 10**6, 16 * 10**6]
#: Messages of a store so small that a command spends nearly all of its time on starting.
FEW = 1000
#: Bytes of memory that are left free before a command begins.
FREE = 1 << 29


class Cost(NamedTuple):
    """Seconds of processor time, and bytes of memory at the peak."""

    seconds: float
    peak: int


class Command(NamedTuple):
    """A command on a store. ``output`` is what it makes, and is removed before it runs."""

    name: str
    arguments: tuple[str, ...]
    output: str | None = None


COMMANDS = [
    Command(
        "put --from",
        ("put", "--store", "store", "--create", "--from", "lines", "--flush", "async", "-q"),
        "store",
    ),
    Command("verify", ("verify", "--store", "store", "-q")),
    Command("rebuild all", ("rebuild", "all", "--store", "store", "--output", "new"), "new"),
    Command("walk, NDJSON", ("walk", "commitlog", "--store", "store", "--format", "ndjson")),
    Command("export, NDJSON", ("export", "--store", "store", "--output", "new", "--format",
                               "ndjson"), "new"),
]  # fmt: skip


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, nargs="+", default=SIZES)
    arguments.add_argument("--body", type=int, default=100, help="bytes of a body")
    arguments.add_argument("--runs", type=int, default=3, help="turns of all stores")
    arguments.add_argument("--directory", type=Path, default=None)
    arguments.add_argument("--broker-conf", type=Path, help="files of other sizes")
    arguments.add_argument("--only", default="", help="put, and what has this in its name")
    arguments.add_argument("--write", action="store_true", help="into the page on performance")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        text = table(Measure(Path(place), options).all_turns())
    print(text)
    if options.write:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}", "utf-8")


class Measure:
    """Runs all commands, on one store for each number of messages."""

    def __init__(self, place: Path, options: argparse.Namespace) -> None:
        self._place, self._body_size, self._runs = place, options.body, options.runs
        self._counts = [FEW, *sorted(options.messages)]
        self._commands = [c for c in COMMANDS if c.output == "store" or options.only in c.name]
        conf = options.broker_conf
        self._conf = ("--broker-conf", str(conf.resolve())) if conf is not None else ()

    def all_turns(self) -> dict[str, list[dict[int, Cost]]]:
        """For each command, the costs of each turn by the number of messages."""
        for count in self._counts:
            (self._place / str(count)).mkdir()
            write_messages(self._place / str(count) / "lines", self._body_size, count)
        turns: dict[str, list[dict[int, Cost]]] = {}
        for command in self._commands:
            turns[command.name] = [
                {count: self._cost(command, count) for count in self._counts}
                for _ in range(self._runs)
            ]
            print(f"{command.name} is done", file=sys.stderr, flush=True)
        return turns

    def _cost(self, command: Command, count: int) -> Cost:
        place = self._place / str(count)
        if command.output is not None:
            shutil.rmtree(place / command.output, ignore_errors=True)
        fill_memory(self._place / "filler")
        process = subprocess.Popen(
            [*RMQCTL, *command.arguments, *self._conf], cwd=place, stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"growth: rmqctl {' '.join(command.arguments)} failed")
        shutil.rmtree(place / "new", ignore_errors=True)
        return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss << 10)


def fill_memory(filler: Path) -> None:
    """Has the system's file cache take nearly all memory, as it does on a machine that has run for
    days: new pages then come from the cache. Else they would come from free memory, and a virtual
    machine gives its host back what was free for seconds. To ask for such a page again takes
    several times as long as to write it, which would slow large stores only."""
    if not filler.exists():
        with filler.open("wb") as file:
            for _ in range(memory("MemTotal") >> 24):
                if memory("MemFree") < FREE:
                    break
                file.write(bytes(1 << 24))
            os.fsync(file.fileno())
    with filler.open("rb", buffering=0) as file:
        # The file's beginning was used longest ago, and is out of the cache already.
        while memory("MemFree") > FREE and file.read(1 << 24):
            pass


def memory(name: str) -> int:
    """A figure of /proc/meminfo, in bytes."""
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def table(turns: dict[str, list[dict[int, Cost]]]) -> str:
    """A table of each command's time and memory by the number of messages. Times are microseconds
    of a message, without the start, and the least of all turns; peaks of memory are the largest.
    The last column is the ratio of the largest store's to the smallest's, which of times is the
    median of the turns' ratios."""
    counts = sorted(next(iter(turns.values()))[0])[1:]
    first, last = counts[0], counts[-1]
    heads = [f"{count:,} messages" for count in counts]
    text = f"| | {' | '.join(heads)} | last : first |\n|{'---|' * (len(counts) + 2)}\n"

    def row(name: str, shown: Callable[[float], str], values: list[float], ratio: float) -> str:
        return f"| {' | '.join([name, *map(shown, values), f'{ratio:.2f}'])} |\n"

    def time_of(turn: dict[int, Cost], count: int) -> float:
        return 1e6 * (turn[count].seconds - turn[FEW].seconds) / count

    for name, own in turns.items():
        times = [min(time_of(turn, count) for turn in own) for count in counts]
        ratio = statistics.median(time_of(turn, last) / time_of(turn, first) for turn in own)
        text += row(f"`{name}`, µs of CPU a message", "{:.2f}".format, times, ratio)
        peaks = [max(turn[count].peak for turn in own) / 1e6 for count in counts]
        text += row("peak, MB", "{:.0f}".format, peaks, peaks[-1] / peaks[0])
    return text


if __name__ == "__main__":
    main()
