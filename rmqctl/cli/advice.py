"""The command line that is next about a finding: that of its code, with store and place filled in.

:data:`COMMANDS` has every code of verify, lint and config check. No line changes anything without
asking first: a command that replaces files shows its plan and wants ``--yes``, and ``repair
--plan`` only writes a plan.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.cli import refused
from rmqctl.shell import shell_line

if TYPE_CHECKING:
    from rmqctl.operations.verify import Finding

#: The option for each field of a finding.
_OPTIONS = {
    "topic": "--topic",
    "queue_id": "--queue-id",
    "physical_offset": "--start",
    "queue_offset": "--offset",
}
_NUMBER = re.compile(r"([0-9]+) or more")
_OWNER = re.compile(r"user ([0-9]+)")
#: Codes whose command would need the broker.conf to be right: without one there is no command.
_NEEDS_CONF = ("unit-delivery-time-mismatch",)


class Command(NamedTuple):
    """The words of a command line, without ``rmqctl``. ``{name}`` in a word stands for a value of
    :func:`_values`; where that is not known, there is no command.

    :param options: fields of the finding that are given as options where they are known.
    :param cures: with consent the command removes the finding; else it shows what to decide about.
    :param is_of_system: a command of the system, whose name is the first word.
    """

    words: tuple[str, ...]
    options: tuple[str, ...] = ()
    cures: bool = False
    is_of_system: bool = False


_VERIFY = Command(("verify",))
_INFO = Command(("info",))
FLUSH = Command(("flush",), cures=True)
_DUMP = Command(("dump", "{physical_offset}"))
_SALVAGE = Command(("salvage", "--output", "{salvaged}", "--dry-run"))
#: A plan, for what a repair may mend.
REPAIR_PLAN = Command(("repair", "--plan", "{plan}"), cures=True)
_OF_QUEUE = Command(("walk", "commitlog"), ("topic", "queue_id"))
_DELAYED = Command(("schedule", "ls"))
_TIMER_ANEW = Command(("timer", "rebuild"), cures=True)
_TIMED = Command(("timer", "ls"))
_QUEUE_ANEW = Command(
    ("rebuild", "queues", "--in-place", "--topic", "{topic}", "--queue-id", "{queue_id}"),
    cures=True,
)
_FILES_OF_ROCKSDB = Command(("rebuild", "queues", "--to-file-queues", "--in-place"), cures=True)
_INDEX_ANEW = Command(("rebuild", "index", "--in-place"), cures=True)
_INDEX_ADDED = Command(("rebuild", "index", "--missing"), cures=True)
#: What differs between a file of ``config/`` and its copy.
_DIFFERENCE = Command(("diff", "{file}.bak", "{file}"), is_of_system=True)


def _of_length(found: Finding) -> Command | None:
    """The command about a file of a wrong length: a queue is made anew; for a file of the log a
    salvage says what could be saved; for others, and empty ones, there is a plan of a repair."""
    if found.queue is not None:
        return _QUEUE_ANEW
    is_of_log = (found.path or "").startswith("commitlog/") and found.found != "0"
    return _SALVAGE if is_of_log else REPAIR_PLAN


def _of_foreign(found: Finding) -> Command | None:
    """The command about a foreign file. There is none for a name that only does not fit the sizes:
    by other sizes it may be a file of the store. There is none either in another directory of the
    log, as a repair moves files within the store only."""
    path = found.path or ""
    is_doubtful = (found.found or "").startswith("not a multiple")
    if is_doubtful or path == "commitlog" or path.startswith("/"):
        return None
    return REPAIR_PLAN


def _of_config(found: Finding) -> Command | None:
    """The command about a file of config/ that cannot be read; none for a ``.bak`` copy."""
    return None if (found.path or "").endswith(".bak") else REPAIR_PLAN


#: The command of each code, or a function of the finding that gives it. None: the next step is
#: nothing that could be typed.
COMMANDS: dict[str, Command | Callable[[Finding], Command | None] | None] = {
    # commit log: what stands there, and what is left behind it
    "bad-magic": _SALVAGE,
    "total-size-mismatch": _SALVAGE,
    "total-size-out-of-range": _SALVAGE,
    "body-length-out-of-range": _SALVAGE,
    "topic-length-out-of-range": _SALVAGE,
    "properties-length-out-of-range": _SALVAGE,
    "physical-offset-mismatch": _SALVAGE,
    "blank-size-mismatch": _DUMP,
    "zeroed-records": _SALVAGE,
    "body-crc-mismatch": _SALVAGE,
    "record-crc-mismatch": _DUMP,
    "properties-malformed": _DUMP,
    "delay-not-a-number": _SALVAGE,
    "message-not-decodable": _DUMP,
    "queue-place-impossible": _SALVAGE,
    "dispatch-stops": _DUMP,
    "store-time-implausible": _DUMP,
    "topic-not-allowed": _DUMP,
    "commitlog-file-missing": _SALVAGE,
    "file-length-mismatch": _of_length,
    "file-length-unproven": None,
    "index-length-mismatch": _INDEX_ANEW,
    "foreign-file": _of_foreign,
    "queue-files-too-small": None,
    "not-a-directory": _of_foreign,
    "symbolic-link": None,
    "unreadable-file": Command(("ls", "-ld", "{file}"), is_of_system=True),
    "torn-tail": REPAIR_PLAN,
    "stale-record": REPAIR_PLAN,
    "residue-after-end": None,
    "log-starts-late": None,
    "not-understood": None,
    "unclean-shutdown": FLUSH,
    "repair-unfinished": Command(("repair", "--resume"), cures=True),
    "commitlog-missing": None,
    "file-removed-meanwhile": _VERIFY,
    # queues
    "consumequeue-missing": Command(("rebuild", "queues", "--missing"), cures=True),
    "queue-missing": _QUEUE_ANEW,
    "queue-of-deleted-topic": _OF_QUEUE,
    "queue-begun-again": _OF_QUEUE,
    "multi-dispatch-queue-missing": None,
    "multi-dispatch-contradicted": None,
    "record-without-unit": _QUEUE_ANEW,
    "dispatch-behind": FLUSH,
    "unit-mismatch": _QUEUE_ANEW,
    "extension-sizes-astray": _QUEUE_ANEW,
    "extension-file-unclaimed": None,
    "unit-delivery-time-mismatch": _QUEUE_ANEW,
    "unit-misplaced": _QUEUE_ANEW,
    "unit-hole": _QUEUE_ANEW,
    # A plan takes units away only where the log has not lost what they lead to otherwise.
    "unit-points-past-log-end": REPAIR_PLAN,
    "unit-points-into-damage": Command(
        ("pull", "--topic", "{topic}", "--queue-id", "{queue_id}"), ("queue_offset",)
    ),
    "unit-points-to-no-record": REPAIR_PLAN,
    "unit-of-other-queue": _QUEUE_ANEW,
    "queue-offset-repeated": _OF_QUEUE,
    "queue-offsets-skipped": _OF_QUEUE,
    # index
    "index-missing": _INDEX_ADDED,
    "index-sizes-unusual": Command(("index", "info")),
    "index-behind": _INDEX_ADDED,
    "index-starts-late": _INDEX_ANEW,
    "key-not-indexed": _INDEX_ANEW,
    "index-item-without-key": _INDEX_ANEW,
    "index-item-points-into-damage": _SALVAGE,
    "index-item-repeated": None,
    "index-item-mismatch": _INDEX_ANEW,
    "index-prev-mismatch": _INDEX_ANEW,
    "index-slot-mismatch": _INDEX_ANEW,
    "index-header-mismatch": _INDEX_ANEW,
    "index-uncounted-items": FLUSH,
    # checkpoint
    "checkpoint-missing": FLUSH,
    "checkpoint-unreadable": FLUSH,
    "checkpoint-in-future": Command(("checkpoint", "set", "--computed"), cures=True),
    "checkpoint-zero": FLUSH,
    # a start of 5.x
    "timer-wheel-length": _TIMER_ANEW,
    "timer-metrics-unreadable": None,
    "timer-wheel-missing": _TIMER_ANEW,
    "timer-log-length": _TIMER_ANEW,
    "timer-log-file-missing": _TIMER_ANEW,
    "timer-log-cut-short": _TIMER_ANEW,
    "timer-log-lost": _TIMER_ANEW,
    "timer-checkpoint-missing": _TIMER_ANEW,
    "timer-clock-implausible": _TIMER_ANEW,
    "timer-checkpoint-behind": _TIMER_ANEW,
    "timer-unit-damaged": _TIMER_ANEW,
    "timer-queue-lost": _TIMER_ANEW,
    "timer-behind": _TIMED,
    "timer-slot-misplaced": _TIMER_ANEW,
    "timer-chain-broken": _TIMER_ANEW,
    "timer-unit-unreachable": _TIMER_ANEW,
    "timer-message-expired": _TIMED,
    "timer-unit-past-log-end": _TIMER_ANEW,
    "timer-unit-mismatch": _TIMER_ANEW,
    "rocksdb-not-compared": None,
    "rocksdb-unreadable": Command(
        ("rebuild", "queues", "--to-file-queues", "--in-place", "--from-log-alone"), cures=True
    ),
    "unit-store-time-mismatch": _FILES_OF_ROCKSDB,
    "queue-end-contradicted": _FILES_OF_ROCKSDB,
    "queue-begin-contradicted": _FILES_OF_ROCKSDB,
    "queue-type-contradicted": None,
    # tiered storage
    "tiered-storage": None,
    "tiered-metadata-unreadable": None,
    "tiered-metadata-missing": None,
    "tiered-segment-missing": None,
    "tiered-segment-short": None,
    "tiered-segment-long": None,
    "tiered-segment-unknown": None,
    "tiered-segment-gap": None,
    "tiered-segment-stray": None,
    "tiered-foreign-file": None,
    "tiered-queue-cut": None,
    "tiered-unit-past-end": None,
    "tiered-unit-mismatch": None,
    "tiered-body-crc-mismatch": None,
    "tiered-log-unreferenced": None,
    "tiered-index-unreadable": None,
    "tiered-index-slots-unknown": None,
    "tiered-index-broken": None,
    "tiered-index-item-mismatch": None,
    "compaction-file-unpaired": None,
    "compaction-file-length": None,
    "compaction-foreign-file": None,
    "compaction-left-over": None,
    "compaction-record-damaged": None,
    "compaction-body-crc-mismatch": None,
    "compaction-record-differs": None,
    "compaction-record-without-key": None,
    "compaction-unit-mismatch": None,
    "compaction-record-without-unit": None,
    "compaction-offsets-disordered": None,
    "compaction-not-compacted": None,
    "compaction-message-missing": None,
    "compaction-position-unreadable": None,
    "compaction-position-ahead": None,
    # a log of DLedger
    "epoch-file-unreadable": None,
    "epochs-out-of-order": None,
    "epoch-past-end": None,
    "confirmed-past-end": None,
    "broker-identity-unreadable": None,
    "long-topic-not-confirmed": _DUMP,
    "dledger-header-mismatch": _DUMP,
    "dledger-index-order": None,
    "dledger-term-falls": None,
    "dledger-index-unit-mismatch": None,
    "dledger-index-behind": None,
    "dledger-index-length": None,
    "dledger-committed-past-end": None,
    "dledger-uncommitted": None,
    "dledger-state-unreadable": None,
    # lint
    "queue-file-missing": _QUEUE_ANEW,
    "queue-file-without-unit": _QUEUE_ANEW,
    "sizes-contradicted": None,
    "not-writable": Command(("chmod", "-R", "u+w", "{store}"), cures=True, is_of_system=True),
    "read-only-mount": Command(("findmnt", "-T", "{file}"), is_of_system=True),
    "mixed-owners": Command(("chown", "-R", "{owner}", "{store}"), cures=True, is_of_system=True),
    "dledger-log": None,
    "file-limit-too-low": Command(("ulimit", "-Hn", "{number}"), is_of_system=True),
    "map-limit-too-low": Command(
        ("sysctl", "-w", "vm.max_map_count={number}"), cures=True, is_of_system=True
    ),
    "lock-held": _INFO,
    # config
    "config-unreadable": _of_config,
    "config-backup-unreadable": None,
    "config-missing": _of_config,
    "config-absent": None,
    "config-offsets-lost": None,
    "config-temporary-left": None,
    "config-older-than-backup": _DIFFERENCE,
    "config-duplicate-key": None,
    "config-entry-malformed": None,
    # A plan first looks whether the queue has all that the log has of it.
    "consumer-offset-past-queue": REPAIR_PLAN,
    "consumer-offset-before-queue": REPAIR_PLAN,
    "consumer-offset-moved-back": _DIFFERENCE,
    "consumer-offset-without-queue": _VERIFY,
    "group-without-config": None,
    "queue-without-topic-config": None,
    "topic-without-queue": None,
    "queue-not-readable": None,
    "queue-not-writable": None,
    "delay-offset-past-queue": _VERIFY,
    "delay-offset-before-queue": _DELAYED,
    "delay-offset-missing": _DELAYED,
    "delay-level-unknown": _DELAYED,
}


def command_of(found: Finding) -> Command | None:
    """The command that is next about a finding; None where there is nothing to type."""
    from rmqctl.operations.verify import CODES, findings
    from rmqctl.operations.verify.latercodes import ROCKSDB_ANEW

    of_advice = {ROCKSDB_ANEW: _FILES_OF_ROCKSDB}
    of_advice |= dict.fromkeys((findings.WAS_WHOLE, findings.RECORD_DOUBTED), _SALVAGE)
    of_advice |= dict.fromkeys((findings.TORN_BEHIND_ITS_UNIT, findings.CUT_SHORT), REPAIR_PLAN)
    if found.advice in of_advice:
        return of_advice[found.advice]
    if found.advice not in (CODES[found.code].advice, findings.NO_FILE_ADVICE):
        return None  # Its own advice says that the command of its code is not the right one here.
    known = COMMANDS[found.code]
    return known if known is None or isinstance(known, Command) else known(found)


def command_line(found: Finding, store: str, broker_conf: str | None) -> str | None:
    """The whole command line that is next, quoted for a shell; None where there is none."""
    command = command_of(found)
    accepted = None if command is None else refused.not_refused(command.words, Path(store))
    if command is None or accepted is None:
        return None
    if found.code in _NEEDS_CONF and broker_conf is None:
        return None
    values = _values(found, store)
    words = []
    for word in accepted:
        filled = _FIELD.sub(lambda match: _filled(values, match[1]), word)
        if _LACKING in filled:
            return None
        words.append(filled)
    for name in command.options:
        if values.get(name) is not None:
            words += [_OPTIONS[name], str(values[name])]
    return shell_line(words) if command.is_of_system else line_for(words, store, broker_conf)


_FIELD = re.compile(r"\{(\w+)\}")
#: What no word has in it.
_LACKING = "\0"


def _filled(values: dict[str, object], name: str) -> str:
    value = values.get(name)
    return _LACKING if value is None else str(value)


def _values(found: Finding, store: str) -> dict[str, object]:
    """The values for the words of a command: the fields of the finding, and what follows from them
    and the store (the queue of a path, the number that is needed, files)."""
    values: dict[str, object] = found._asdict()
    if found.queue is not None:
        values |= {"topic": found.queue[0], "queue_id": found.queue[1]}
    number = _NUMBER.fullmatch(found.expected or "")
    owner = _OWNER.fullmatch(found.expected or "")
    return values | {
        "number": number and number[1],
        "owner": owner and owner[1],
        "store": store,
        "file": store if found.path == "." else found.path and os.path.join(store, found.path),
        **_beside(store),
    }


def look_anew() -> None:
    """Forgets what is known of stores, and of the files beside them. To be called before the
    findings of a store are told: there may be a million, so each store is looked at once."""
    refused.look_anew()
    _beside.cache_clear()


@lru_cache(maxsize=64)
def _beside(store: str) -> Mapping[str, object]:
    """Names beside the store's directory: that of a salvaged store, and that of a plan. The first
    is not looked for, as its command is a dry run."""
    before = store.rstrip("/")
    return {"salvaged": f"{before}.salvaged", "plan": _free_name(f"{before}.plan", ".json")}


def filled_line(words: tuple[str, ...], store: str, broker_conf: str | None) -> str:
    """The command line of words of which only names of :func:`_beside` are to be filled in."""
    look_anew()
    names = {f"{{{name}}}": str(value) for name, value in _beside(store).items()}
    return line_for([names.get(word, word) for word in words], store, broker_conf)


def line_for(words: Sequence[str], store: str, broker_conf: str | None) -> str:
    """The command line ``rmqctl`` with some words, the store and its broker.conf."""
    conf = ["--broker-conf", broker_conf] if broker_conf else []
    return shell_line(["rmqctl", *words, "--store", store, *conf])


def _free_name(before: str, behind: str) -> str:
    """A name that no file has yet: a plan is never overwritten."""
    names = (f"{before}{'' if number < 2 else f'-{number}'}{behind}" for number in range(1, 1000))
    return next((name for name in names if not os.path.lexists(name)), before + behind)
