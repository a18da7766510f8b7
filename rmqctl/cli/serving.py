"""The rows of ``rmqctl serve``, and the notes that it prints before a client connects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.cli.addresses import Address, is_loopback

if TYPE_CHECKING:
    from rmqctl.cli.haoptions import HaOptions
    from rmqctl.cli.settings import Settings
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.store import Store
    from rmqctl.rows.serving import CommittedOffsetRow, ListeningRow
    from rmqctl.serve.hasockets import HaServer
    from rmqctl.serve.processors.request import Served

_MOST_NAMED = 5


def listening_row(
    served: Served, address: str, slaves: HaServer | None, metrics: str | None
) -> ListeningRow:
    """The row that says that the server listens, and where."""
    return {
        "type": "listening",
        "address": address,
        "ha_address": None if slaves is None else slaves.address,
        "store": str(served.store.root),
        "broker_name": served.names.broker,
        "cluster_name": served.names.cluster,
        "metrics_address": metrics,
        "read_only": not served.store.writable,
        "flush": flush_of(served.store),
        "topics": len(served.topics),
    }


def flush_of(store: Store) -> str | None:
    """How sent messages get to the disk: ``sync`` or ``async``; None where none are taken."""
    if not store.writable:
        return None
    return "async" if store.config.flush_disk_type == "ASYNC_FLUSH" else "sync"


def committed_rows(served: Served) -> list[CommittedOffsetRow]:
    """The offsets that clients have committed and that are in no file."""
    return [
        {
            "type": "committed_offset",
            "group": one.group,
            "topic": one.topic,
            "queue_id": one.queue_id,
            "stored_offset": one.stored,
            "committed_offset": one.offset,
        }
        for one in served.offsets.changed()
    ]


def note_what_is_odd(
    settings: Settings,
    store: MessageStore,
    served: Served,
    listen: Address,
    ha: HaOptions | None,
) -> None:
    """Notes what an operator should know before a client connects.

    :raises OffsetsBeyondEnd: some group would consume everything again, and no option says what to
        do about it.
    """
    from rmqctl.engine.state.topicconfig import needs_no_config

    settings.note_config(store)
    settings.note_queues(store)
    settings.note_compacted(store)
    if flush_of(store) == "async":
        settings.note(
            "note: ASYNC_FLUSH: what was answered last may be lost with the power, not by a kill."
        )
    if names := [one for one in served.topics.without_config if not needs_no_config(one)]:
        settings.note(
            f"note: topics with queues that are in no topics.json: {_some(names)}. They are served."
        )
    if store.writable:
        _note_refused_sends(settings, store)
    else:
        _note_who_writes(settings, store)
    behind = store.max_offset - store.dispatched_to
    if not store.writable and store.had_abort and store.dispatched_to >= 0 and behind > 0:
        settings.note(
            f"note: a killed broker has left {behind} bytes of log behind the last message that a "
            "queue has: what stands there is not served. `rmqctl flush` dispatches it."
        )
    if served.accounts is None and not is_loopback(listen.host):
        settings.note(
            f"note: {listen.host} is reached from other machines, and nothing is authenticated: "
            "who can connect can read every message."
        )
    if served.accounts is not None and ha is not None and not ha.allowed:
        settings.note(
            "note: the HA port knows no accounts: who can connect there can read the whole log. "
            "--ha-allow says from where slaves may come."
        )
    beyond = served.offsets.beyond_end(store)
    if beyond:
        told = [
            f"{one.group} of {one.topic}, queue {one.queue_id}: {one.offset}, and the queue ends "
            f"at {one.max_offset}"
            for one in beyond
        ]
        text = f"groups have committed offsets that the store does not reach: {_some(told)}."
        if not served.ends_offsets:
            from rmqctl.serve.errors import OffsetsBeyondEnd

            raise OffsetsBeyondEnd(
                reason=f"{text} As on a broker they would consume those queues again from 0."
            )
        settings.note(f"note: {text} They go on at the end.")


def _note_refused_sends(settings: Settings, store: MessageStore) -> None:
    """Notes that sends will be refused: behind damage near the end of the log nothing is put. The
    store is opened all the same, as what it holds can be read."""
    from rmqctl.engine.start.nearend import check_before
    from rmqctl.errors import DamagedStore

    try:
        check_before(store.commit_log, store.max_offset)
    except DamagedStore as error:
        settings.note(f"note: what clients send will be refused: {error}")


def _note_who_writes(settings: Settings, store: MessageStore) -> None:
    """Notes that somebody writes to a store that is only read: it is served as it was found."""
    from rmqctl.engine.files.lock import holder_of_lock

    holder = holder_of_lock(store.root)
    if holder is not None:
        settings.note(
            f"note: {holder} has the store open for writing: what it stores from now on is not "
            "served, and what it deletes cannot be read. A restart of serve shows the new state."
        )


def _some(names: list[str]) -> str:
    more = f"; and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return "; ".join(names[:_MOST_NAMED]) + more
