"""The jobs that ``peer`` measures, each done by the engine, by a command and by the library."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
from rmqctl.operations.look.keyed import query_keys
from rmqctl.operations.look.pull import pull_lines
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_to
from tests.benchmarks.bench import RMQCTL, large_store, write_messages

if TYPE_CHECKING:
    from rmqctl.rows.keyed import IndexKeysSummary

QUEUES = 16
TOPIC = "bench-0"
#: How many keys a warm round queries.
KEYS = 500
LARGE_FILES, LARGE_FILE = 200, 1 << 30
#: Bytes that a put stores for a message besides its body, at most; and that a rebuild does.
PUT_BYTES, REBUILT_BYTES = 512, 256
#: Processes that work at once: as many as the commands take without ``--jobs``.
JOBS = min(len(os.sched_getaffinity(0)), 4)

encode = PropertyEncoder()

#: A line of a file for ``put --from``.
Row = dict[str, Any]
#: Gets everything ready, gives the function that is to be timed, and cleans up afterwards.
Round = Callable[[], AbstractContextManager[Callable[[], object]]]


class Warm(NamedTuple):
    """A job as it is timed in this process. With ``is_kept`` it reads a store that stays open for
    all rounds, as it does in the engine's process."""

    round: Round
    is_kept: bool = False


class Job(NamedTuple):
    """One piece of work, in four forms. ``engine`` is the request to Bench.java, and
    ``engine_once`` what differs in it when the engine runs as a whole process; ``warm`` is the same
    work in this process, and ``command`` as a command of its own (None: there is none). ``once``
    and ``often`` are how many things a whole process and a warm round do. ``cleared`` is removed
    before each whole process, of either side."""

    name: str
    engine: dict[str, Any]
    command: tuple[str, ...] | None
    warm: Warm
    once: int
    often: int
    cleared: tuple[Path, ...] = ()
    engine_once: dict[str, Any] = {}  # noqa: RUF012 (nobody writes into it)


def jobs_of_store(place: Path, body_size: int, count: int) -> list[Job]:
    """The jobs on one store: put first, and then all others on what ``put --from`` has stored. Its
    queues have the same number of messages each."""
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
        warmed: int,
        work: Callable[[MessageStore, list[Any]], object],
        made: Callable[[Row], Message],
    ) -> Warm:
        @contextmanager
        def one() -> Iterator[Callable[[], object]]:
            remove(other)
            with source.open(encoding="utf-8") as file:
                messages = [made(json.loads(line)) for line in file]
            warm_memory(place / "scratch", warmed)
            with MessageStore(other, writable=True, create=True) as opened:
                yield lambda: work(opened, messages)

        return Warm(one)

    @contextmanager
    def rebuilding() -> Iterator[Callable[[], object]]:
        remove(rebuilt)
        warm_memory(place / "scratch", rebuilt_bytes)
        yield lambda: rebuild_to(
            plan_rebuild(store, MessageStoreConfig(), "all"), rebuilt, jobs=JOBS
        )

    put_bytes, few_bytes = (number * (body_size + PUT_BYTES) for number in (count, few_count))
    rebuilt_bytes = count * REBUILT_BYTES
    puts = {"what": "put", "root": str(by_engine), "from": str(lines), "warmed": put_bytes}
    few_puts = {**puts, "from": str(few), "warmed": few_bytes}
    rebuild = ("rebuild", "all", *where, "--output", str(rebuilt))
    verify = ("verify", *where, "-q")
    pull_all = (*queue, "--max-messages", str(share), "--body-as", "utf8", "--format", "ndjson")
    (place / "keys").write_text("\n".join(keys))
    ask = ("index", "query", *where, "--topic", TOPIC, "--key", keys[0])
    ask_many = (*ask[:-2], "--keys-from", str(place / "keys"), "--format", "ndjson")
    one_key = {"keys": keys[:1]}
    checks = {"what": "check", **on_store}
    dispatches = {"what": "dispatch", **on_store, "warmed": rebuilt_bytes}
    pulls, queries = {"what": "pull", **on_store}, {"what": "query", **on_store, "keys": keys}
    pulling = reading(lambda opened: pull_queue(opened, share))
    querying = reading(lambda opened: query_many(opened, keys))
    querying_singly = reading(lambda opened: query_each(opened, keys))
    stream, encoding = (
        putting(lines, put_bytes, put_stream, made) for made in (plain_of, message_of)
    )
    singly = putting(few, few_bytes, put_each, message_of)
    return [
        Job("put, dispatched", puts, put, stream, count, count, (other, by_engine)),
        Job("put, encoding too", puts, None, encoding, count, count),
        Job("put one by one", few_puts, None, singly, few_count, few_count),
        Job("check with CRC", checks, verify, reading(check), count, count),
        Job("dispatch, rebuild", dispatches, rebuild, Warm(rebuilding), count, count, (rebuilt,)),
        Job("getMessage, pull", pulls, pull_all, pulling, share, share),
        Job("query by key", queries, ask_many, querying, len(keys), len(keys)),
        Job("query one by one", queries, ask, querying_singly, 1, len(keys), engine_once=one_key),
    ]


def opening(place: Path) -> Job:
    """The job of opening a large store (of sparse files), and reading its newest message."""
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
    """A message whose properties are encoded already: the engine's messages get theirs
    (``setPropertiesString``) before the clock starts, too."""
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
    """Checks every record and its checksum, as ``verify --only commitlog`` does."""
    scanner = Scanner(store.commit_log, check=True, tuning=ScanTuning(threads=JOBS))
    for part in scanner.scan_plain(PlainWanted()):
        assert not isinstance(part, Batch) or part.crc_matches.all()


def pull_queue(store: MessageStore, count: int) -> None:
    """Decodes every message of a queue and writes it as a line, as the command does."""
    pulled = 0
    for row in pull_lines(store, TOPIC, 0, 0, form="ndjson", max_messages=count, body="utf8"):
        if isinstance(row, Lines):
            pulled += row.messages
        else:
            pulled += row["type"] == "message"
    assert pulled == count


def query_many(store: MessageStore, keys: list[str]) -> None:
    """Writes the messages of all keys as lines, as the command does that is given many keys."""
    *_, last = query_keys(store, TOPIC, keys, form="ndjson", body="utf8")
    assert cast("IndexKeysSummary", last)["messages"] >= len(keys)


def query_each(store: MessageStore, keys: list[str]) -> None:
    """Makes rows of the messages of each key, one key after the other."""
    for key in keys:
        *found, _ = query(store, TOPIC, key)
        assert found


def run(*arguments: str) -> None:
    done = subprocess.run(
        [*RMQCTL, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"peer: rmqctl {' '.join(arguments)} failed:\n{done.stderr}")


def warm_memory(scratch: Path, size: int) -> None:
    """Has the system take so many bytes of memory for a file and free them again, so that the next
    files get memory that the machine still has. A virtual machine gives its host back what was free
    for seconds, and to ask for such a page again takes several times as long as to write it."""
    zeros = bytes(1 << 20)
    with scratch.open("wb", buffering=0) as file:
        for _ in range(-(-size // len(zeros))):
            file.write(zeros)
    scratch.unlink()


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
