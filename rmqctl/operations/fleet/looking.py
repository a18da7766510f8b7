"""The row of one store that ``fleet`` prints, also of one that cannot be read."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from rmqctl.engine.files import paths
from rmqctl.engine.files.again import looked_again
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.filesizes import commit_log_file_size
from rmqctl.engine.settings.logdirectories import at_root
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, load_broker_conf
from rmqctl.engine.start.logend import end_of_files
from rmqctl.errors import NotAStore, RmqctlError, StoreNotFound, UsageError
from rmqctl.operations.fleet.counting import Count, counted, first_timestamp
from rmqctl.operations.fleet.stores import FleetStore
from rmqctl.operations.look.disk import disk_usage
from rmqctl.operations.verify import Finding, Summary, verify
from rmqctl.rows.field import fields_of
from rmqctl.rows.fleets import FleetStoreRow

if TYPE_CHECKING:
    from rmqctl.rows import Row

_COUNTED = ("record_bytes", "damages")
#: The fields that the rows of each verb have beside those that all have.
VERBS: dict[str, tuple[str, ...]] = {
    "verify": ("errors", "warnings", "infos", "worst", "queues", "index_items"),
    "stats": (*_COUNTED, "topics", "queues", "retries", "dead_letters"),
    "du": (*_COUNTED, "damaged_bytes", "blank_bytes", "files", "size", "allocated_bytes"),
}
_SEVERITIES = ("error", "warning", "info")
#: The exit code of an exception that is neither rmqctl's nor the system's: a bug.
_BUG = 70


class Task(NamedTuple):
    """A store to be looked at. So many ``threads`` read its log to verify it. Without ``reads_log``
    ``du`` only looks at the files."""

    store: FleetStore
    verb: str
    config: MessageStoreConfig
    reads_log: bool = True
    threads: int = 1


#: How many findings there were, by severity and code.
Codes = Counter[tuple[str, str]]


class RemoteQueue(Protocol):
    @property
    def topic(self) -> str: ...


class Remote(Protocol):
    """A store behind a URL, whose files cannot be mapped."""

    def check(self) -> None:
        """:raises StoreNotFound, NotAStore: it is none."""

    def log(self) -> CommitLog: ...
    def queues(self) -> Sequence[RemoteQueue]: ...
    def names(self, directory: str) -> list[tuple[str, int | None]]: ...
    def listing(self) -> Iterator[tuple[str, int, int]]:
        """Every file: its name, its size (bytes), when it was changed (ns)."""


#: Opens the store at a URL.
OpenRemote = Callable[[str, MessageStoreConfig], Remote]


def config_of(store: FleetStore) -> MessageStoreConfig:
    """The configuration of a store. :raises BrokerConfError: its broker.conf cannot be read."""
    if store.broker_conf is None:
        return MessageStoreConfig()
    config = load_broker_conf(store.broker_conf)
    return config if store.is_remote else at_root(config, Path(store.path))


def fields(verb: str) -> list[str]:
    """The fields of a verb's rows, in their order."""
    return [
        one.name
        for one in fields_of(FleetStoreRow)
        if not one.is_optional or one.name in VERBS[verb]
    ]


def row(store: FleetStore, verb: str, began: float, **known: object) -> FleetStoreRow:
    """A row with the fields that are known; the others of the verb are None.

    :param began: when the look at the store began, by the monotonic clock (seconds).
    """
    values: dict[str, Any] = dict.fromkeys(fields(verb))
    values |= {"type": "fleet_store", "store": store.name, "path": store.shown}
    values |= {"seconds": round(time.monotonic() - began, 3), "kept": False, "exit_code": 0}
    return cast("FleetStoreRow", values | known)


def failed(store: FleetStore, verb: str, began: float, error: Exception) -> FleetStoreRow:
    """The row of a store that could not be read: it says why, and what to do next."""
    code, text = _BUG, ""
    if isinstance(error, StoreNotFound | NotAStore):
        code = error.exit_code
        text = (
            f"{error.template.format(**error.values)} Correct its line: name the directory that "
            "holds commitlog/ and consumequeue/."
        )
    elif isinstance(error, RmqctlError):
        code, text = error.exit_code, error.for_command_line
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        code = 5
        text = (
            f"{where}{error.strerror or error}. The system refused, which says nothing about the "
            "store: check owner, permissions and disk."
        )
    elif isinstance(error, MemoryError):
        code, text = 5, "not enough memory. Give the process more, or look at less at once."
    else:
        text = (
            f"a bug in rmqctl: {type(error).__name__}: {error}. Run `rmqctl {verb}` on this store "
            "with RMQCTL_DEBUG=1 for the traceback, and report it."
        )
    return row(store, verb, began, exit_code=code, error=text)


def looked_at(task: Task, open_remote: OpenRemote | None = None) -> FleetStoreRow:
    """The row of a store. It never raises: whatever is wrong is in the row, as other stores are
    still to be looked at."""
    began = time.monotonic()
    try:
        found = looked_again(lambda: _found(task, open_remote))
    except Exception as error:
        return failed(task.store, task.verb, began, error)
    return row(task.store, task.verb, began, **found)


def _found(task: Task, open_remote: OpenRemote | None) -> dict[str, object]:
    if not task.store.is_remote:
        return _of_directory(task)
    refuse_if_not_mapped(task.store, task.verb)
    assert open_remote is not None
    remote = open_remote(task.store.path, task.config)
    remote.check()
    log = remote.log()
    count = counted(log) if task.reads_log else None
    return told_of(task, count, log, remote)


def _of_directory(task: Task) -> dict[str, object]:
    root = Path(task.store.path)
    if task.verb == "verify":
        codes, summary = Codes(), Summary()
        for found in verify(root, task.config, jobs=task.threads):
            if isinstance(found, Finding):
                codes[found.severity, found.code] += 1
            else:
                summary = found
        return verified(root, task.config, codes, summary)
    paths.check_store(root)
    with MessageStore(root, task.config) as store:
        count = counted(store.commit_log) if task.reads_log else None
        return told_of(task, count, store.commit_log, None)


def refuse_if_not_mapped(store: FleetStore, verb: str) -> None:
    """:raises UsageError: the verb maps files, and a URL has none here."""
    if verb == "verify" and store.is_remote:
        raise UsageError(
            reason=f"verify maps a store's files, and {store.shown} has none here: copy it to a "
            "file system that every node sees, and name the directory."
        )


def verified(
    root: Path, config: MessageStoreConfig, codes: Codes, summary: Summary
) -> dict[str, object]:
    """The fields of the row of a check."""
    # Among equally frequent codes the choice does not depend on the order in which they came.
    worst = min(
        codes, key=lambda one: (_SEVERITIES.index(one[0]), -codes[one], one[1]), default=None
    )
    log = open_commit_log(root, config, commit_log_file_size(root, config))
    with closing(log):
        first = first_timestamp(log)
    return {
        "records": summary.records,
        "bytes": summary.max_offset - summary.min_offset,
        **summary.counts(),
        "worst": worst and worst[1],
        "queues": summary.queues,
        "index_items": summary.index_items,
        "min_offset": summary.min_offset,
        "max_offset": summary.max_offset,
        "first_store_timestamp": first,
        "last_store_timestamp": summary.newest_timestamp,
        "exit_code": int(not summary.is_clean),
    }


def told_of(
    task: Task, count: Count | None, log: CommitLog, remote: Remote | None
) -> dict[str, object]:
    """The fields of the row of ``stats`` and ``du``. ``count`` is None where the log was not
    read."""
    found: dict[str, object] = {"min_offset": log.min_offset}
    if count is not None:
        end = log.files.end_offset
        if count.end_offset is not None:
            end = end_of_files(log, count.end_offset, count.before_end)
        found |= {
            "records": count.records,
            "bytes": end - log.min_offset,
            "max_offset": end,
            "first_store_timestamp": count.first,
            "last_store_timestamp": count.last,
        }
        found |= {n: getattr(count, n) for n in VERBS[task.verb] if hasattr(count, n)}
        damages = count.damages
        if task.verb == "stats":
            # As by `stats` of one store, what has the name of a log file and is none counts, too.
            damages += sum(one.size < 0 for one in log.files.irregular)
        clean = damages == 0 and (task.verb == "du" or count.records > 0)
        found |= {"damages": damages, "exit_code": int(not clean)}
    else:
        found["first_store_timestamp"] = first_timestamp(log)
    if task.verb == "stats":
        found |= _queues(task, remote)
    elif remote is not None:
        sizes = [size for _, size, _ in remote.listing()]
        found |= {"files": len(sizes), "size": sum(sizes)}
    else:
        rows = disk_usage(Path(task.store.path), task.config)
        found |= {
            "files": sum(one["files"] for one in rows),
            "size": sum(one["size"] for one in rows),
            "allocated_bytes": sum(one["allocated_bytes"] for one in rows),
        }
    return found


def _queues(task: Task, remote: Remote | None) -> Row:
    if remote is not None:
        topics = [queue.topic for queue in remote.queues()]
    else:
        directory = Path(task.store.path) / paths.CONSUME_QUEUE
        topics = [where.topic for where in paths.queue_directories(directory)]
    return {"topics": len(set(topics)), "queues": len(topics)}
