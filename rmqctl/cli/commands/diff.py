"""``rmqctl diff``."""

from __future__ import annotations

from pathlib import Path

from rmqctl.cli.command import command as make
from rmqctl.cli.options import two_stores
from rmqctl.cli.settings import Settings


@make(
    "diff",
    examples=[
        "rmqctl diff /data/master/store /data/slave/store",
        "rmqctl diff /backup/store --store DIR --broker-conf broker.conf",
        "rmqctl diff A B --format ndjson | jq 'select(.structure == \"queue\")'",
    ],
    exits={0: "the stores are the same", 1: "they differ"},
)
@two_stores
def command(settings: Settings, other: Path) -> int:
    """Compare two stores: master and slave, backup and original.

    Compares the logs byte for byte where both have one, and says at which record they first differ
    and which messages only one has; then the queues, the offsets of consumers and of delayed
    messages, and the topics and groups of config/. The first store is a, the second b; with one
    name it is b, and --store is a. Both are only read.

    Prints rows of type difference, then a summary. One broker.conf counts for both.
    """
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.settings.logdirectories import in_own_directory
    from rmqctl.operations.look.diff import Diff

    config = settings.config
    with settings.open() as a, MessageStore(other, in_own_directory(config)) as b:
        for store in (a, b):
            settings.note_config(store)
            settings.note_queues(store)
        diff = Diff(a, b)
        with (
            settings.writer("difference") as writer,
            settings.progress("diff", diff.compared_bytes, writer) as advance,
        ):
            writer.rows(diff.rows(advance))
    return int(not diff.is_same)
