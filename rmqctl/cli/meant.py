"""Suggestions for an option or a command that does not exist: tables of the words that other tools,
and RocketMQ's own, have for the same thing. Loaded only for the error message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

#: From this similarity on one word counts as the other, misspelled (1: they are the same).
_NEAR = 0.7
#: Option: what it is called elsewhere (``mqadmin``, kafka, git, unix), without dashes.
_OPTIONS: dict[str, str] = {
    "--all": "every everything",
    "--batch": "batch-size bulk",
    "--body": "payload value message-body content text data",
    "--body-as": "bodies payload show-body print-body body-format body-encoding encoding content "
    "text decode",
    "--body-file": "file input-file payload-file data-file",
    "--born-timestamp": "born-time timestamp time",
    "--boundary": "mode which",
    "--broker-conf": "c config conf config-file configfile properties-file broker-config settings",
    "--by": "group-by groupby per",
    "--columns": "fields select projection",
    "--conf": "spark-conf sparkconf set",
    "--create": "init mkdir new make",
    "--decompress": "uncompress unzip gunzip inflate decompressed decode",
    "--decompress-limit": "max-body-size body-limit limit-bytes max-bytes",
    "--delay-level": "delay level delayed",
    "--disk": "fs files allocated",
    "--disk-ratio": "disk-used used ratio percent",
    "--dry-run": "n simulate check plan what-if whatif pretend noop no-act test",
    "--end": "e end-offset to-offset stop until-offset last-offset end-physical-offset stop-offset",
    "--end-offset": "end to-offset stop last-offset end-queue-offset until-offset",
    "--filter": "where sql sql92 expression grep selector match property query",
    "--flush": "sync fsync flush-disk-type durability",
    "--follow": "f tail watch live",
    "--format": "o fmt output-format type as out-format",
    "--from": "input input-file file stdin source in",
    "--from-end": "tail latest from-latest new-only",
    "--group": "g consumer-group consumer cg group-name groupname",
    "--in-place": "i inplace overwrite fix repair replace",
    "--input": "input-format format from-format",
    "--interval": "every period seconds poll refresh",
    "--json": "j as-json",
    "--keep": "output dir store",
    "--key": "k keys msg-key message-key key-hash keyhash",
    "--level": "delay-level levels delay",
    "--limit": "n l max count head top rows size num number first max-messages max-rows msg-num "
    "max-num m lines take maxmsgs",
    "--manual": "now force",
    "--master": "spark spark-master cluster",
    "--missing": "add repair incremental only-missing lacking",
    "--no-bytes": "fast no-size",
    "--offset": "o start start-offset from-offset queue-offset consumer-offset begin-offset from",
    "--now": "at time date timestamp",
    "--output": "o out to dest destination out-dir output-dir outdir dir target output-path save",
    "--producer-group": "group g producer",
    "--property": "p prop properties header headers attribute user-property",
    "--queue-id": "i queue qid queue-no queueno partition q queue-number",
    "--queues": "per-queue by-queue partitions queue queue-id",
    "--quiet": "silent no-output s",
    "--raw": "items hash key-hash index-items",
    "--report": "page html web chart",
    "--rounds": "times limit max",
    "--scan": "full deep full-scan no-index slow scan-log",
    "--since": "s after begin from-time start-time begin-time begin-timestamp start-timestamp "
    "since-time newer newer-than from begin-date start",
    "--start": "b begin from-offset begin-offset start-offset offset physical-offset "
    "commitlog-offset commit-log-offset first-offset from",
    "--stats": "statistics metrics timing",
    "--store": "d path dir directory root store-path storepath store-dir data data-dir store-path-"
    "root-dir p s",
    "--structure": "only what part",
    "--sync-flush-timeout": "flush-timeout timeout",
    "--tag": "tags t expr sub-expression subexpression subscription",
    "--time": "timestamp at date t since when",
    "--to": "offset target time timestamp to-offset reset-to value",
    "--topic": "t topics topic-name topicname",
    "--unique-key": "uniq-key uniqkey unique key k id msg-id message-id uniqid uniq unique-id",
    "--until": "before end-time to-time end-timestamp until-time older older-than to end-date end",
    "--verbose": "debug wide all all-columns full long l",
    "--version": "V release",
    "--watch": "w live follow repeat",
    "--yes": "y force f assume-yes confirm consent no-confirm",
}

#: Command: what it is called elsewhere.
_COMMANDS: dict[str, str] = {
    "backup": "snapshot archive copy save-store",
    "clean": "delete expire retention purge gc cleanup",
    "config": "conf settings check-config",
    "diff": "compare cmp difference",
    "du": "size usage disk space",
    "dump": "hexdump xxd show-bytes decode explain",
    "export": "save extract parquet to-parquet",
    "find": "grep search locate where lookup",
    "flush": "recover sync recovery",
    "group": "reset-offset resetoffset set-offset reset offsets-reset",
    "groups": "lag consumers consumer consumer-progress progress offsets consumer-groups",
    "index": "query querymsgbykey query-by-key key keys",
    "info": "status show store about summary",
    "help": "man usage commands",
    "version": "release ver",
    "message": "get msg querymsgbyid query-by-id show-message cat messages read",
    "offset": "bytime by-time seek time searchoffset",
    "pull": "consume consumer-messages fetch poll receive peek consumemessage",
    "put": "send produce append publish insert add sendmessage write",
    "queues": "ls list queue partitions consumequeue",
    "rebuild": "mend recreate regenerate",
    "repair": "fix heal cure",
    "replicate": "slave replica mirror",
    "restore": "unpack recover",
    "salvage": "rescue recover recovery",
    "schedule": "delay delayed delays",
    "serve": "server broker listen namesrv daemon start",
    "simulate-start": "start simulate rehearse predict what-if",
    "sql": "select query spark-sql",
    "stats": "statistics count report top",
    "topics": "topic list ls topiclist topic-list topicstatus",
    "transaction": "half transactions tx prepared",
    "verify": "check fsck validate doctor lint test scrub",
    "walk": "log tail scan cat printmsg print list-messages commitlog iterate dump-log",
}


def _plain(word: str) -> str:
    """``--queueId`` and ``--queue_id`` as ``queue-id``."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", word.lstrip("-"))
    return text.replace("_", "-").lower() if len(text) > 1 else text


def meant_options(typed: str, options: Iterable[str]) -> list[str]:
    """The ``options`` that mean what was typed, in their order; else the one that is spelled most
    like it."""
    return _meant(typed, options, _OPTIONS)


def meant_commands(typed: str, commands: Iterable[str]) -> list[str]:
    """As :func:`meant_options`, of commands."""
    return _meant(typed, commands, _COMMANDS)


def near(typed: str, names: Sequence[str]) -> str | None:
    """The one of a store's names that is spelled most like the typed one; None where none is
    similar."""
    folded = {name.lower(): name for name in reversed(names)}
    if typed.lower() in folded:
        return folded[typed.lower()]
    return next(iter(get_close_matches(typed, names, 1, _NEAR)), None)


def _meant(typed: str, known: Iterable[str], others: dict[str, str]) -> list[str]:
    word = _plain(typed)
    names = {_plain(name): name for name in known}
    if word in names:
        return [names[word]]
    meant = [name for name in names.values() if word in others.get(name, "").split()]
    return meant or [names[near] for near in get_close_matches(word, names, 1, _NEAR)]
