"""The open store, as it was when it was last opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.cli.browse.model.shown import size
from rmqctl.engine.files.lock import is_locked
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.state.topicconfig import TopicConfig, topic_configs
from rmqctl.errors import ConfigFileUnreadable

if TYPE_CHECKING:
    from rmqctl.cli.browse.model.findings import Findings
    from rmqctl.cli.browse.model.lines import Stop
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig


class Opened:
    """A store for reading. :meth:`again` opens it again, to see what a broker has written or
    removed.

    Objects of the old store that earlier screens refer to stay valid as long as these screens.

    :raises StoreNotFound, NotAStore, FileLengthContradiction: as for every store.
    """

    def __init__(self, root: Path, config: MessageStoreConfig) -> None:
        self.root = root
        self.config = config
        self.store = MessageStore(root, config)
        #: The last verification. It goes on while other screens are shown.
        self.findings: Findings | None = None

    def again(self, stop: Stop) -> bool:
        """Opens the store again. Called in a thread. Raises what the class raises."""
        self.store = MessageStore(self.root, self.config)
        return True

    def configs(self) -> tuple[dict[str, TopicConfig] | None, str]:
        """The configurations of topics in ``topics.json``; or None, and why they cannot be read."""
        try:
            return topic_configs(self.root), ""
        except ConfigFileUnreadable as error:
            return None, str(error)

    def state(self) -> str:
        """The state in a few words: the length of the log, whether a broker or writer has the store
        open, and obvious problems. Searches the end of the log."""
        store = self.store
        told = [size(store.max_offset - store.min_offset)]
        if is_locked(self.root):
            told.append("in use")
        elif store.had_abort:
            told.append("not closed cleanly")
        if store.commit_log.files.irregular:
            told.append("log files of a wrong length")
        return ", ".join(told)
