"""``rmqctl find``."""

from __future__ import annotations

from typing import Any

import click

from formats.constants import LONG_MAX
from rmqctl.cli.command import command as make
from rmqctl.cli.options import (
    body_option,
    common,
    decompress_options,
    time_range,
    topic_option,
)
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import Whole

#: What was not looked at, and what to do about it.
_NOT_SEARCHED = {
    "log": "keys that are not in the index, other properties, and bodies: `{command}` looks there",
    "no-index": "keys: the store has no index files (`rmqctl rebuild index` makes them)",
    "topics-without-queues": "keys of topics without queues: config/topics.json is broken "
    "(`rmqctl config check`)",
    "before-index": "keys of messages before the first index file",
    "irregular-index-files": "index files of a wrong length (`rmqctl rebuild index`)",
    "damaged-parts": "damaged parts of the log (`rmqctl verify` names them)",
    "compressed-bodies": "compressed bodies that cannot be decompressed, or are larger than "
    "--decompress-limit",
    "uploaded-files": "uploaded messages that are no longer in the log: `rmqctl tiered query` "
    "and `rmqctl tiered walk` look there",
    "beyond-limit": "what comes after so many messages: raise --limit",
}


@make(
    "find",
    examples=[
        "rmqctl find order-42 --store DIR",
        "rmqctl find order-42 --topic orders --body-as utf8 --decompress",
        "rmqctl find 'out of stock' --scan --since -2h --format ndjson",
        "rmqctl find FD0000000000000000000000000000026E175FFD2B27",
    ],
    exits={1: "nothing was found where it was looked for, or a body shown is not what was stored"},
)
@click.argument("text")
@topic_option()
@click.option("--scan", "scans", is_flag=True, help="Also read the log: properties and bodies.")
@time_range
@click.option(
    "--limit",
    metavar="N",
    type=Whole(1, LONG_MAX),
    default=100,
    show_default=True,
    help="Print at most N messages.",
)
@decompress_options
@body_option
@common
def command(settings: Settings, **wanted: Any) -> int:
    """Find messages by a key, a message id, or any text.

    Looks for TEXT in the index as a key or unique key of every topic, and in the log as a message
    id; with --scan it reads the log too: every property and body, compressed ones as well. Prints
    rows of type message with found_by, then a summary, and says where it did not look.
    """
    from rmqctl.cli.advice import line_for
    from rmqctl.operations.look.find import Wanted, find

    what = Wanted(**wanted)
    with settings.open() as store, settings.writer("message", also=["found_by"]) as writer:
        log_bytes = store.max_offset - store.min_offset if what.scans else 0
        with settings.progress("find", log_bytes, writer) as advance:
            summary = writer.rows(find(store, what, advance))
        if not summary["messages"]:
            settings.note_absent_topic(store, what.topic)
    scanning = line_for(["find", what.text, "--scan"], str(settings.root), settings.broker_conf)
    for name in summary["not_searched"]:
        if name in _NOT_SEARCHED:  # That --topic leaves other topics out needs no word.
            told = _NOT_SEARCHED[name].format(command=scanning)
            settings.note(f"note: not looked at: {told}.")
    settings.note_missing(summary)
    return int(settings.note_bodies(summary) or not summary["messages"])
