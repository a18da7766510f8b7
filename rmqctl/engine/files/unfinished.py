"""What our work on a store leaves in it, by name. A repair that was cut off leaves its journal:
until it is ended, or taken back, the store is between old and new, and nobody writes to it."""

from __future__ import annotations

import os
from pathlib import Path

from rmqctl.errors import RmqctlError

#: Where a repair builds, and keeps what it replaces until it is done.
REPAIR = "rmqctl-repair"
#: What a file or directory is called while it is built, behind its name.
BESIDE = ".rmqctl-new"
#: What a repair, and a rebuild, has replaced: what such a directory's name begins with.
KEPT_BY_REPAIR, KEPT_BY_REBUILD = "rmqctl-backup-", "rmqctl-old-"
#: What a repair does; from when it is there the store may have been changed.
JOURNAL = "journal.json"


class RepairUnfinished(RmqctlError):
    template = (
        "a repair of {path} was cut off, so the store is between old and new. Nothing was changed. "
        "`rmqctl repair --resume` ends it, `rmqctl repair --undo` takes it back."
    )


def is_amid_repair(root: Path) -> bool:
    """Whether a repair was cut off, or goes on just now."""
    return os.path.lexists(f"{root}/{REPAIR}/{JOURNAL}")


def check_not_amid_repair(root: Path) -> None:
    """:raises RepairUnfinished: a repair of the store was cut off."""
    if is_amid_repair(root):
        raise RepairUnfinished(path=str(root))
