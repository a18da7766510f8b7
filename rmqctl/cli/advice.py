"""What to type next about a finding: a command line for its code, with store and place filled in.

:data:`COMMANDS` has every code of verify, lint and config check. A line never changes anything
without being asked again: what replaces files says its plan and wants ``--yes`` first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.cli.text import shell_line

if TYPE_CHECKING:
    from rmqctl.operations.verify import Finding

#: Fields of a finding, and the options that take them.
_OPTIONS = {
    "topic": "--topic",
    "queue_id": "--queue-id",
    "physical_offset": "--start",
    "queue_offset": "--offset",
}
#: A file or directory of a queue, and the file of config/ that has a copy.
_QUEUE = re.compile(r"consumequeue(?:_ext)?/([^/]+)/([0-9]{1,10})(?:/|$)")
_GROUP = re.compile(r"group (.+) at -?[0-9]+")


class Command(NamedTuple):
    """Words of a command line behind ``rmqctl``. ``{name}`` in a word is a field of the finding,
    without which there is no command; ``options`` are fields that are given where they are known.
    """

    words: tuple[str, ...]
    options: tuple[str, ...] = ()


_VERIFY = Command(("verify",))
_FLUSH = Command(("flush",))
_DUMP = Command(("dump", "{physical_offset}"))
_SALVAGE = Command(("salvage", "--output", "{salvaged}", "--dry-run"))
_OF_QUEUE = Command(("walk", "commitlog"), ("topic", "queue_id"))
_QUEUE_ANEW = Command(
    ("rebuild", "queues", "--in-place", "--topic", "{topic}", "--queue-id", "{queue_id}")
)
_INDEX_ANEW = Command(("rebuild", "index", "--in-place"))
_INDEX_ADDED = Command(("rebuild", "index", "--missing"))

#: The command of each code; None where nothing that rmqctl does is the next step.
COMMANDS: dict[str, Command | None] = {
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
    "dispatch-stops": _DUMP,
    "topic-not-allowed": _DUMP,
    "commitlog-file-missing": _SALVAGE,
    "file-length-mismatch": _QUEUE_ANEW,
    "file-length-unproven": None,
    "index-length-mismatch": _INDEX_ANEW,
    "foreign-file": None,
    "queue-files-too-small": None,
    "not-a-directory": None,
    "symbolic-link": None,
    "unreadable-file": None,
    "torn-tail": None,
    "stale-record": None,
    "residue-after-end": None,
    "log-starts-late": None,
    "not-understood": None,
    "unclean-shutdown": _FLUSH,
    "commitlog-missing": None,
    "file-removed-meanwhile": _VERIFY,
    # queues
    "consumequeue-missing": Command(("rebuild", "queues", "--missing")),
    "queue-missing": _QUEUE_ANEW,
    "queue-of-deleted-topic": _OF_QUEUE,
    "queue-begun-again": _OF_QUEUE,
    "multi-dispatch-queue-missing": None,
    "multi-dispatch-contradicted": None,
    "record-without-unit": _QUEUE_ANEW,
    "dispatch-behind": _FLUSH,
    "unit-mismatch": _QUEUE_ANEW,
    "extension-sizes-astray": _QUEUE_ANEW,
    "extension-file-unclaimed": None,
    "unit-delivery-time-mismatch": _QUEUE_ANEW,
    "unit-misplaced": _QUEUE_ANEW,
    "unit-hole": _QUEUE_ANEW,
    "unit-points-past-log-end": _QUEUE_ANEW,
    "unit-points-into-damage": Command(
        ("pull", "--topic", "{topic}", "--queue-id", "{queue_id}"), ("queue_offset",)
    ),
    "unit-points-to-no-record": _QUEUE_ANEW,
    "unit-of-other-queue": _QUEUE_ANEW,
    "queue-offset-repeated": _OF_QUEUE,
    # index
    "index-missing": _INDEX_ADDED,
    "index-sizes-unusual": None,
    "index-behind": _INDEX_ADDED,
    "index-starts-late": _INDEX_ANEW,
    "key-not-indexed": _INDEX_ANEW,
    "index-item-without-key": _INDEX_ANEW,
    "index-item-points-into-damage": None,
    "index-item-repeated": None,
    "index-item-mismatch": _INDEX_ANEW,
    "index-prev-mismatch": _INDEX_ANEW,
    "index-slot-mismatch": _INDEX_ANEW,
    "index-header-mismatch": _INDEX_ANEW,
    "index-uncounted-items": _FLUSH,
    # checkpoint
    "checkpoint-missing": _FLUSH,
    "checkpoint-unreadable": _FLUSH,
    "checkpoint-in-future": None,
    "checkpoint-zero": _FLUSH,
    # lint
    "queue-file-missing": _QUEUE_ANEW,
    "sizes-contradicted": None,
    "not-writable": None,
    "mixed-owners": None,
    "dledger-log": None,
    "file-limit-too-low": None,
    "map-limit-too-low": None,
    "lock-held": None,
    # config
    "config-unreadable": None,
    "config-backup-unreadable": None,
    "config-missing": None,
    "config-absent": None,
    "config-temporary-left": None,
    "config-older-than-backup": None,
    "config-duplicate-key": None,
    "config-entry-malformed": None,
    "consumer-offset-past-queue": Command(
        (
            *("group", "set-offset", "{group}", "--topic", "{topic}"),
            *("--queue-id", "{queue_id}", "--to", "end"),
        )
    ),
    "consumer-offset-before-queue": None,
    "consumer-offset-moved-back": None,
    "consumer-offset-without-queue": _VERIFY,
    "group-without-config": None,
    "queue-without-topic-config": None,
    "topic-without-queue": None,
    "queue-not-readable": None,
    "queue-not-writable": None,
    "delay-offset-past-queue": _VERIFY,
    "delay-offset-before-queue": None,
    "delay-offset-missing": None,
    "delay-level-unknown": None,
}


def command_line(found: Finding, store: str, broker_conf: str | None) -> str | None:
    """The command line that is next, whole and quoted for a shell; None where there is none."""
    from rmqctl.operations.verify import CODES

    command = COMMANDS[found.code]
    if command is None or found.advice != CODES[found.code].advice:
        return None  # A finding with other advice than its code's is of another state.
    # Beside the store: a new directory, of which a dry run only says what would be in it.
    values = _values(found) | {"salvaged": f"{store.rstrip('/')}.salvaged"}
    words = ["rmqctl"]
    for word in command.words:
        name = word[1:-1] if word.startswith("{") else None
        if name is not None and values.get(name) is None:
            return None
        words.append(word if name is None else str(values[name]))
    for name in command.options:
        if values.get(name) is not None:
            words += [_OPTIONS[name], str(values[name])]
    words += ["--store", store]
    if broker_conf:
        words += ["--broker-conf", broker_conf]
    return shell_line(words)


def _values(found: Finding) -> dict[str, object]:
    """A finding's fields, with what only its other fields tell: queue of a path, group."""
    values: dict[str, object] = found._asdict()
    queue = _QUEUE.match(found.path or "")
    if queue and found.topic is None:
        values |= {"topic": queue[1], "queue_id": int(queue[2])}
    group = _GROUP.fullmatch(found.found or "")
    values["group"] = group and group[1]
    return values
