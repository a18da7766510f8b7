"""Measures rmqctl beside the real engine: the same data, the same machine, one run.

Run it as ``python tests/benchmarks/peer``; see the README in the folder above.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from rmqctl import kernel
from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.read.lines import Lines
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.plain import PlainWanted
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.scan.tuning import ScanTuning
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.write.bulk import Message, PropertyEncoder, plain
from rmqctl.operations.look.index import query
from rmqctl.operations.look.pull import pull_lines
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_to
from tests.benchmarks.bench import RMQCTL, large_store, write_messages
from tests.interop.engine import DRIVER, MODULES, NotAvailable, build

JAVA = [
    "java",
    "-Xmx2g",
    *("--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    # A full disk of the machine is not what is measured.
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
    "-Drocketmq.client.logUseSlf4j=true",
]
QUEUES = 16
TOPIC = "bench-0"
#: Keys that a warm round asks for.
KEYS = 500
LARGE_FILES, LARGE_FILE = 200, 1 << 30
#: As many as the commands take by themselves.
JOBS = min(len(os.sched_getaffinity(0)), 4)
#: Rounds of a warm process that are not counted.
WARM_UP = 4


encode = PropertyEncoder()

#: A line of a file for ``put --from``.
Row = dict[str, Any]
#: Gets everything ready, and gives what is to be timed; puts away afterwards.
Round = Callable[[], AbstractContextManager[Callable[[], object]]]


class Warm(NamedTuple):
    """What is timed in this process. ``is_kept``: what it is done with, a store that is read,
    serves all rounds, as it does in the engine's process."""

    round: Round
    is_kept: bool = False


class Job(NamedTuple):
    """One thing to do, in four ways. ``engine`` is what Bench.java is asked for; ``warm`` is the
    same in this process, ``command`` as a process of its own (None: there is none), for which
    ``clear`` is removed before. ``once`` and ``often`` are how many things a whole process and a
    warm round do."""

    name: str
    engine: dict[str, Any]
    command: tuple[str, ...] | None
    warm: Warm
    once: int
    often: int
    clear: Path | None = None


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, default=100_000)
    arguments.add_argument("--runs", type=int, default=3, help="counted runs of each figure")
    arguments.add_argument("--only", help="lines whose name has this in it")
    arguments.add_argument("--version", choices=list(MODULES), default="4.9.3")
    arguments.add_argument("--directory", type=Path, default=None)
    arguments.add_argument("--results", type=Path, help="a file for the figures, for ../check")
    options = arguments.parse_args()
    try:
        build()
    except NotAvailable as problem:
        sys.exit(f"peer: {problem}")
    print(f"rmqctl beside RocketMQ {options.version}: things a second, and rmqctl's as a multiple")
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        peer = Peer(options.version, options.runs, options.only or "")
        for body_size in (100, 1000):
            title(f"{options.messages:,} messages with bodies of {body_size} bytes")
            for job in jobs_of_store(Path(place) / str(body_size), body_size, options.messages):
                peer.measure(job, body_size)
        title(f"A store of {LARGE_FILES} GiB")
        peer.measure(opening(Path(place)), 0)
    if options.results is not None:
        told = {"version": options.version, "messages": options.messages, "runs": options.runs}
        options.results.write_text(json.dumps(told | {"lines": peer.lines}, indent=1))


# --- what ------------------------------------------------------------------------------------


def jobs_of_store(place: Path, body_size: int, count: int) -> list[Job]:
    """Put, then everything else on what ``put --from`` has made; queues of one size."""
    place.mkdir()
    lines, store, by_engine = place / "lines.ndjson", place / "store", place / "by-engine"
    other, rebuilt = place / "other", place / "rebuilt"
    write_messages(lines, body_size, count)
    few, few_count = place / "few.ndjson", max(count // 10, 1)
    write_messages(few, body_size, few_count)
    keys = [f"order{number}" for number in range(0, count, 4)]  # those of TOPIC
    keys = random.Random(7).sample(keys, min(KEYS, len(keys)))
    share = count // QUEUES
    where = ("--store", str(store))
    run("put", *where, "--create", "--from", str(lines), "--flush", "async", "-q")
    put = ("put", "--store", str(other), "--create", "--from", str(lines), "--flush", "async", "-q")
    queue = ("pull", *where, "--topic", TOPIC, "--queue-id", "0", "--offset", "0")
    on_store: dict[str, Any] = {"root": str(store), "topic": TOPIC, "queueId": 0}

    def reading(work: Callable[[MessageStore], object]) -> Warm:
        @contextmanager
        def one() -> Iterator[Callable[[], object]]:
            with MessageStore(store) as opened:
                yield lambda: work(opened)

        return Warm(one, is_kept=True)

    def putting(
        source: Path,
        work: Callable[[MessageStore, list[Any]], object],
        made: Callable[[Row], Message],
    ) -> Warm:
        @contextmanager
        def one() -> Iterator[Callable[[], object]]:
            remove(other)
            with source.open(encoding="utf-8") as file:
                messages = [made(json.loads(line)) for line in file]
            with MessageStore(other, writable=True, create=True) as opened:
                yield lambda: work(opened, messages)

        return Warm(one)

    @contextmanager
    def rebuilding() -> Iterator[Callable[[], object]]:
        remove(rebuilt)
        yield lambda: rebuild_to(
            plan_rebuild(store, MessageStoreConfig(), "all"), rebuilt, jobs=JOBS
        )

    puts = {"what": "put", "root": str(by_engine), "from": str(lines)}
    few_puts = {**puts, "from": str(few)}
    rebuild = ("rebuild", "all", *where, "--output", str(rebuilt))
    verify = ("verify", *where, "-q")
    pull_all = (*queue, "--max-messages", str(share), "--body-as", "utf8", "--format", "ndjson")
    ask = ("index", "query", *where, "--topic", TOPIC, "--key", keys[0])
    checks, dispatches = {"what": "check", **on_store}, {"what": "dispatch", **on_store}
    pulls, queries = {"what": "pull", **on_store}, {"what": "query", **on_store, "keys": keys}
    pulling = reading(lambda opened: pull_queue(opened, share))
    querying = reading(lambda opened: query_keys(opened, keys))
    stream, encoding = (putting(lines, put_stream, made) for made in (plain_of, message_of))
    singly = putting(few, put_each, message_of)
    return [
        Job("put, dispatched", puts, put, stream, count, count, other),
        Job("put, encoding too", puts, None, encoding, count, count),
        Job("put one by one", few_puts, None, singly, few_count, few_count),
        Job("check with CRC", checks, verify, reading(check), count, count),
        Job("dispatch, rebuild", dispatches, rebuild, Warm(rebuilding), count, count, rebuilt),
        Job("getMessage, pull", pulls, pull_all, pulling, share, share),
        Job("query by key", queries, ask, querying, 1, len(keys)),
    ]


def opening(place: Path) -> Job:
    """Opening a large store, mostly holes, and one look at its newest message."""
    large_store(place, LARGE_FILES, LARGE_FILE)
    store, offset = place / "large", (LARGE_FILES - 1) * LARGE_FILE

    def look() -> None:
        with MessageStore(store) as opened:
            opened.look_message_by_offset(offset)

    @contextmanager
    def looking() -> Iterator[Callable[[], object]]:
        yield look

    asked = {"what": "open", "root": str(store), "offset": offset}
    command = ("message", str(offset), "--store", str(store))
    return Job("open, look at one", asked, command, Warm(looking), 1, 1)


def plain_of(row: Row) -> Message:
    """A message that is ready to be put: its properties are encoded, as those of the engine's are
    (``setPropertiesString``) before the clock starts."""
    message = message_of(row)
    return plain(message, encode) or message


def message_of(row: Row) -> MessageExtBrokerInner:
    return MessageExtBrokerInner(
        row["topic"],
        row["body"].encode(),
        row["queue_id"],
        properties={"TAGS": row["tags"], "KEYS": row["keys"], **row["properties"]},
        born_timestamp=system_clock(),
    )


def put_stream(store: MessageStore, messages: Sequence[Message]) -> None:
    stored = sum(len(bulk) for bulk in store.put_stream(messages, flush=False))
    assert stored == len(messages)


def put_each(store: MessageStore, messages: list[MessageExtBrokerInner]) -> None:
    assert all(store.put_message(message, flush=False).is_ok for message in messages)


def check(store: MessageStore) -> None:
    """Every record and its checksum as ``verify --only commitlog`` looks at them."""
    scanner = Scanner(store.commit_log, check=True, tuning=ScanTuning(threads=JOBS))
    for part in scanner.scan_plain(PlainWanted()):
        assert not isinstance(part, Batch) or part.crc_matches.all()


def pull_queue(store: MessageStore, count: int) -> None:
    """Every message decoded and written as a line, as the command does it."""
    pulled = 0
    for row in pull_lines(store, TOPIC, 0, 0, form="ndjson", max_messages=count, body="utf8"):
        if isinstance(row, Lines):
            pulled += row.messages
        else:
            pulled += row["type"] == "message"
    assert pulled == count


def query_keys(store: MessageStore, keys: list[str]) -> None:
    for key in keys:
        *found, _ = query(store, TOPIC, key)
        assert found


# --- how fast --------------------------------------------------------------------------------


class Peer:
    """The engine of a version, and rmqctl, at the same job."""

    def __init__(self, version: str, runs: int, only: str) -> None:
        target = DRIVER / MODULES[version] / "target"
        path = f"{target / 'classes'}:{(target / 'classpath.txt').read_text().strip()}"
        number = MODULES[version][-1]
        self._java = [*JAVA, f"-Dinterop.engine={number}", "-cp", path, "interop.Bench"]
        self._runs = runs
        self._only = only
        self.lines: list[dict[str, Any]] = []

    def measure(self, job: Job, body_size: int) -> None:
        """Prints things a second as a whole process and warm, of either side: a line for each of
        rmqctl's own engines."""
        if self._only not in job.name:
            return
        theirs = None
        if job.command is not None:
            theirs = job.once / self._processes(lambda: self._engine(job, 1))
        rounds = self._engine(job, WARM_UP + self._runs)
        theirs_warm = job.often / statistics.median(rounds[WARM_UP:])
        name = job.name
        for choice in ("pure", "compiled"):
            if choice == "compiled" and kernel.usable().module is None:
                continue
            os.environ[kernel.VARIABLE] = choice
            mine = None
            if job.command is not None:
                mine = job.once / self._processes(lambda: run(*job.command or ()), job.clear)
            mine_warm = job.often / self._warm(job)
            line = "".join(f"{shown(r):>12}" for r in (theirs, theirs_warm, mine, mine_warm))
            ratio = "-" if theirs is None or mine is None else f"{mine / theirs:.2f}"
            print(
                f"{name:20}{choice:9}{line}{ratio:>10}{mine_warm / theirs_warm:>10.2f}", flush=True
            )
            name = ""
            self.lines.append(
                {
                    "line": job.name,
                    "body": body_size,
                    "engine": choice,
                    "process": None if theirs is None or mine is None else mine / theirs,
                    "warm": mine_warm / theirs_warm,
                    "warm_rate": mine_warm,
                }
            )

    def _engine(self, job: Job, rounds: int) -> list[float]:
        """Seconds of each round, as the engine's process says."""
        request = {"config": {}, "rounds": rounds, **job.engine}
        done = subprocess.run([*self._java, json.dumps(request)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"peer: the engine's {job.name} failed:\n{done.stderr[-2000:]}")
        seconds: list[float] = json.loads(done.stdout)["seconds"]
        return seconds

    def _processes(self, action: Callable[[], object], clear: Path | None = None) -> float:
        seconds = []
        for _ in range(self._runs):
            remove(clear)
            seconds.append(timed(action))
        return statistics.median(seconds)

    def _warm(self, job: Job) -> float:
        seconds: list[float] = []
        with ExitStack() as stack:
            if job.warm.is_kept:
                action = stack.enter_context(job.warm.round())
                seconds += [timed(action) for _ in range(WARM_UP + self._runs)]
        while len(seconds) < WARM_UP + self._runs:
            with job.warm.round() as action:
                seconds.append(timed(action))
        return statistics.median(seconds[WARM_UP:])


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def run(*arguments: str) -> None:
    done = subprocess.run(
        [*RMQCTL, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"peer: rmqctl {' '.join(arguments)} failed:\n{done.stderr}")


def remove(directory: Path | None) -> None:
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


def title(text: str) -> None:
    print(f"\n{text}")
    print(f"{'':29}{'engine':>24}{'rmqctl':>24}{'rmqctl / engine':>20}")
    heads = f"{'process':>12}{'warm':>12}" * 2
    print(f"{'':29}{heads}{'process':>10}{'warm':>10}")


def shown(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.2f}"


if __name__ == "__main__":
    main()
