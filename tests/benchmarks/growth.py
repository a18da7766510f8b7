"""Measures how the bulk commands grow: the same work on stores of more and more messages.

Run it as ``python tests/benchmarks/growth.py``; see the README beside it. It takes the time of the
processor, which what else runs on a machine lengthens little, and the peak of memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
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
#: Messages of the store whose work is next to nothing: what is left is the start.
FEW = 1000


class Cost(NamedTuple):
    """Seconds of the processor, and bytes."""

    seconds: float
    peak: int


class Command(NamedTuple):
    """A command on a store; what it makes in ``output`` is removed before."""

    name: str
    arguments: tuple[str, ...]
    output: str | None = None
    reads_lines: bool = False


COMMANDS = [
    Command(
        "put --from",
        ("put", "--store", "store", "--create", "--from", "lines", "--flush", "async", "-q"),
        "store",
        reads_lines=True,
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
    arguments.add_argument("--runs", type=int, default=3, help="the best of so many counts")
    arguments.add_argument("--directory", type=Path, default=None)
    arguments.add_argument("--broker-conf", type=Path, help="files of other sizes")
    arguments.add_argument("--only", default="", help="put, and what has this in its name")
    arguments.add_argument("--write", action="store_true", help="into the page on performance")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        measure = Measure(Path(place), options)
        few = measure.all_of(FEW)
        costs = {count: measure.all_of(count) for count in options.messages}
    text = table(few, costs)
    print(text)
    if options.write:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}", "utf-8")


class Measure:
    """Runs all commands on a store of its own for each size."""

    def __init__(self, place: Path, options: argparse.Namespace) -> None:
        self._place, self._body_size, self._runs = place, options.body, options.runs
        self._commands = [c for c in COMMANDS if c.reads_lines or options.only in c.name]
        conf = options.broker_conf
        self._conf = ("--broker-conf", str(conf.resolve())) if conf is not None else ()

    def all_of(self, count: int) -> dict[str, Cost]:
        """What each command costs with so many messages."""
        lines = self._place / "lines"
        write_messages(lines, self._body_size, count)
        costs = {}
        for command in self._commands:
            runs = [self._cost(command) for _ in range(self._runs)]
            costs[command.name] = Cost(min(r.seconds for r in runs), max(r.peak for r in runs))
            if command.reads_lines:
                lines.unlink()
            if command.output == "new":
                self._remove("new")
        self._remove("store")
        print(f"{count:,} messages are done", file=sys.stderr, flush=True)
        return costs

    def _cost(self, command: Command) -> Cost:
        if command.output is not None:
            self._remove(command.output)
        process = subprocess.Popen(
            [*RMQCTL, *command.arguments, *self._conf], cwd=self._place, stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"growth: rmqctl {' '.join(command.arguments)} failed")
        return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss << 10)

    def _remove(self, name: str) -> None:
        shutil.rmtree(self._place / name, ignore_errors=True)


def table(few: dict[str, Cost], costs: dict[int, dict[str, Cost]]) -> str:
    """Microseconds a message without the start, and peaks of memory, and how the last store's are
    to the first's."""
    first, last = min(costs), max(costs)

    def row(name: str, shown: Callable[[float], str], value: Callable[[int], float]) -> str:
        cells = [shown(value(count)) for count in costs]
        return f"| {' | '.join([name, *cells, f'{value(last) / value(first):.2f}'])} |\n"

    def time_of(name: str) -> Callable[[int], float]:
        return lambda count: 1e6 * (costs[count][name].seconds - few[name].seconds) / count

    def peak_of(name: str) -> Callable[[int], float]:
        return lambda count: costs[count][name].peak / 1e6

    heads = [f"{count:,} messages" for count in costs]
    text = f"| | {' | '.join(heads)} | last : first |\n|{'---|' * (len(costs) + 2)}\n"
    for name in few:
        text += row(f"`{name}`, µs of CPU a message", "{:.2f}".format, time_of(name))
        text += row("peak, MB", "{:.0f}".format, peak_of(name))
    return text


if __name__ == "__main__":
    main()
