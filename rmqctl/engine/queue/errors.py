"""Queues to which nothing may be put, for it would leave its queue again at the next start."""

from rmqctl.errors import DamagedStore
from rmqctl.shell import shell_line


class QueueUnsound(DamagedStore):
    """A message put to this queue would have no unit after the next start. Its text names the
    command that makes the queue anew."""

    def __init__(self, *, topic: str, queue_id: int, **values: object) -> None:
        words = ["rmqctl", "rebuild", "queues", "--in-place", "--topic", topic]
        command = shell_line([*words, "--queue-id", str(queue_id)])
        super().__init__(topic=topic, queue_id=queue_id, command=command, **values)


class QueueHasHole(QueueUnsound):
    """A queue with a hole: a start cuts it even after a clean stop (``ConsumeQueue#recover``)."""

    template = (
        "queue {queue_id} of topic {topic!r} has no unit at queue offset {queue_offset}, but units "
        "after it: a start would drop those, and messages put now, too. Nothing was put to it. "
        "`{command}` makes it anew."
    )


class UnitBehindLog(QueueUnsound):
    """A unit is of a place behind the log's end, where a start cuts the queue
    (``ConsumeQueue#truncateDirtyLogicFiles``)."""

    template = (
        "the unit at queue offset {queue_offset} of queue {queue_id} of topic {topic!r} is of a "
        "place behind the log, which ends at {log_end}: a broker would drop it and those behind "
        "it at its start, and the messages put now with them. Nothing was put to it. `{command}` "
        "makes it anew."
    )


class LastUnitTooLong(QueueUnsound):
    """The record of the last unit claims to end behind the log: what is put there counts as
    dispatched, and gets no unit (``ConsumeQueue#putMessagePositionInfo``)."""

    template = (
        "the last unit of queue {queue_id} of topic {topic!r} says that its record ends at "
        "{physical_offset}, behind the log, which ends at {log_end}: a message put now would get "
        "no unit. Nothing was put to it. `{command}` makes it anew."
    )
