"""``rmqctl diff``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.cli.command import command as make
from rmqctl.cli.options import two_stores
from rmqctl.cli.settings import Settings

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig


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

    Prints rows of type difference, then a summary. One broker.conf applies to both.
    """
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.operations.look.diff import Diff

    changes, config = _log_directories(settings, other)
    with settings.open(**changes) as a, MessageStore(other, config) as b:
        for store in (a, b):
            settings.note_config(store)
            settings.note_queues(store)
            settings.note_in_use(store.root, "what it stores meanwhile may count as a difference.")
        diff = Diff(a, b)
        with settings.writer("difference") as writer:
            with settings.progress("diff: log", diff.compared_bytes, writer) as advance:
                writer.rows(diff.log_rows(advance))
            queues = len(diff.queue_places)
            with settings.progress("diff: queues", queues, writer, counts=True) as advance:
                writer.rows(diff.queue_rows(advance))
            writer.rows(diff.config_rows())
            writer.rows([diff.summary()])
    return int(not diff.is_same)


def _log_directories(settings: Settings, other: Path) -> tuple[dict[str, Any], MessageStoreConfig]:
    """What of the broker.conf does not hold for the first store, and the configuration of the
    other one. The log directories that it names are those of one store: of the one that
    storePathRootDir names, else of the first."""
    from rmqctl.engine.settings.logdirectories import in_own_directory

    config = settings.config
    own = in_own_directory(config)
    named = config.store_path_root_dir
    if not _is_same(named, other) or _is_same(named, settings.root):
        return {}, own
    names = ("store_path_root_dir", "store_path_commit_log", "read_only_commit_log_store_paths")
    return {name: getattr(own, name) for name in names}, replace(settings, root=other).config


def _is_same(one: str, other: Path) -> bool:
    """Whether two names are those of one directory that is there."""
    try:
        return bool(one) and other.samefile(one)
    except OSError:
        return False
