"""``rmqctl queues``."""

from __future__ import annotations

from rmqctl.cli.command import command as make
from rmqctl.cli.options import common, queue_id_option, topic_option
from rmqctl.cli.settings import Settings


@make(
    "queues",
    examples=["rmqctl queues --store DIR", "rmqctl queues --topic orders --format ndjson"],
    exits={1: "--topic or --queue-id was given and no queue matched"},
)
@topic_option()
@queue_id_option()
@common
def command(settings: Settings, topic: str | None, queue_id: int | None) -> int:
    """List the consume queues: offsets and number of messages.

    Prints rows of type queue, then a summary. max_offset is the offset of the next message.
    """
    from rmqctl.operations.look.queues import queues

    with settings.open() as store, settings.writer("queue") as writer:
        settings.note_queues(store)
        summary = writer.rows(queues(store, topic, queue_id))
        if not summary["queues"]:
            settings.note_absent_topic(store, topic)
    filtered = topic is not None or queue_id is not None
    return int(filtered and not summary["queues"])
