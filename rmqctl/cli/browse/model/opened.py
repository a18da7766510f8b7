"""The store that is browsed, as it was when it was opened last."""

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
    """A store for reading; :meth:`again` sees what a broker has written or removed since.

    What screens of before hold of the old one stays valid, and goes with them.

    :raises StoreNotFound, NotAStore, FileLengthContradiction: as of the store.
    """

    def __init__(self, root: Path, config: MessageStoreConfig) -> None:
        self.root = root
        self.config = config
        self.store = MessageStore(root, config)
        #: The verification that was begun last; it goes on while one looks elsewhere.
        self.findings: Findings | None = None

    def again(self, stop: Stop) -> bool:
        """Opens it anew, in a thread; errors as of the class."""
        self.store = MessageStore(self.root, self.config)
        return True

    def configs(self) -> tuple[dict[str, TopicConfig] | None, str]:
        """What ``topics.json`` says of the topics; where it is broken, nothing, and why."""
        try:
            return topic_configs(self.root), ""
        except ConfigFileUnreadable as error:
            return None, str(error)

    def state(self) -> str:
        """A few words: how long the log is, who else is at the store, and what one sees at once to
        be wrong. Looks for the log's end."""
        store = self.store
        told = [size(store.max_offset - store.min_offset)]
        if is_locked(self.root):
            told.append("in use")
        elif store.had_abort:
            told.append("not closed cleanly")
        if store.commit_log.files.irregular:
            told.append("log files of a wrong length")
        return ", ".join(told)
