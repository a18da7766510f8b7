"""Brings the checkers of a stretch to where the stretch before it has left them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from rmqctl.engine.dispatch.batches import marked_key_batch, unit_batch
from rmqctl.engine.record.record import Damage
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.plain import Plain, PlainWanted
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.operations.verify.damageranges import Ranges
from rmqctl.operations.verify.index import IndexChecker
from rmqctl.operations.verify.log import LogChecker
from rmqctl.operations.verify.queues import QueueChecker
from rmqctl.operations.verify.resumed import MOST_AGAIN
from rmqctl.operations.verify.resumedindex import EarlierItems
from rmqctl.operations.verify.snapshot import Snapshot


class Resumed(NamedTuple):
    """The checkers of a stretch. ``keys`` is None if the index is not checked; ``damaged`` are the
    ranges that they share."""

    records: LogChecker
    queues: QueueChecker
    keys: IndexChecker | None
    damaged: Ranges


def resume(
    begin: int,
    snapshot: Snapshot,
    scanner: Scanner,
    wanted: PlainWanted,
    checkers: Resumed,
    *,
    looks_at_queues: bool,
) -> None:
    """Call this before the first record of a stretch that begins at ``begin``, a physical offset
    within the log. Records before it are taken again where units or items around ``begin`` do not
    tell how far the stretch before has come.

    :param looks_at_queues: the queues are checked, or the checkpoint, for which they tell the store
        time of the record before; with many queues it takes long.
    """
    records, queues, keys, damaged = checkers
    beginnings = list(queues.beginnings(scanner.log, begin)) if looks_at_queues else []
    records.newest_timestamp = max((one.store_timestamp for one in beginnings), default=0)
    if not wanted.units:
        beginnings.clear()
    items = EarlierItems(snapshot, scanner.log)
    if keys is not None:
        beginnings.append(items.beginning(begin))
    froms = [one.again_from for one in beginnings if one.again_from is not None]
    start = min((one for one in froms if begin - MOST_AGAIN <= one < begin), default=begin)
    queues.resumes(start)
    if keys is not None:
        keys.resumes(items.last_place(start))
    if start == begin:
        return
    dispatcher = snapshot.dispatcher()

    for entry in scanner.scan_plain(wanted, start, begin):
        if isinstance(entry, Damage):
            damaged.add(entry)
        if isinstance(entry, Batch):
            queues.passes(queues.add(unit_batch(entry, dispatcher)))
        elif isinstance(entry, Plain):
            queues.passes(queues.add(entry))
        if keys is not None and isinstance(entry, Batch | Plain):
            deque(keys.add(marked_key_batch(entry)), 0)
    queues.taken_again()
    if keys is not None:
        keys.taken_again()
