"""The work for one store of a fleet, in a directory or at a URL. It runs in another process, and
does not import Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.operations.fleet import looking
from rmqctl.spark.remote.remote import RemoteStore

if TYPE_CHECKING:
    from rmqctl.operations.fleet.looking import Task
    from rmqctl.rows.fleets import FleetStoreRow


def looked_at(task: Task) -> FleetStoreRow:
    """The row of a store in a directory or at a URL."""
    return looking.looked_at(task, RemoteStore)
