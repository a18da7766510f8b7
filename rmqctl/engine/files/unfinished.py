"""Names of what rmqctl itself leaves in a store.

A repair that was cut off leaves its journal. Until the repair is completed or undone, the store is
between its old and its new state, and no command writes to it.
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqctl.errors import RmqctlError

#: Where a repair builds, and keeps what it replaces until it is done.
REPAIR = "rmqctl-repair"
#: Suffix of a file or directory while it is built.
BESIDE = ".rmqctl-new"
#: Prefixes of the directories that hold what a repair, or a rebuild, has replaced.
KEPT_BY_REPAIR, KEPT_BY_REBUILD = "rmqctl-backup-", "rmqctl-old-"
#: The steps of a repair, in ``REPAIR``. Once it is there, the store may have been changed.
JOURNAL = "journal.json"


class RepairUnfinished(RmqctlError):
    template = (
        "a repair of {path} was interrupted: some of the store is old, some new. Nothing was "
        "changed. `rmqctl repair --resume` completes it, `rmqctl repair --undo` takes it back."
    )


def is_amid_repair(root: Path) -> bool:
    """Whether a repair was cut off, or is running now."""
    return os.path.lexists(f"{root}/{REPAIR}/{JOURNAL}")


def check_not_amid_repair(root: Path) -> None:
    """:raises RepairUnfinished: a repair of the store was cut off."""
    if is_amid_repair(root):
        raise RepairUnfinished(path=str(root))
