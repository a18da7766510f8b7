"""The append of a stream where its short way would differ from a single put."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats import constants
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import parse_broker_conf

CONF = parse_broker_conf("mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=1000")


@pytest.mark.parametrize(
    "kind", [constants.TRANSACTION_PREPARED_TYPE, constants.TRANSACTION_ROLLBACK_TYPE]
)
def test_what_has_no_unit_may_be_the_first_of_its_queue(tmp_path: Path, kind: int) -> None:
    """More plain messages follow than a file of the queue has units."""
    first = MessageExtBrokerInner("t", b"x", sys_flag=kind)
    plain = [MessageExtBrokerInner("t", b"%d" % number) for number in range(120)]
    with MessageStore(tmp_path / "store", CONF, writable=True, create=True) as store:
        for bulk in store.append_stream([first, *plain]):
            assert bulk.refused is None
        queue = store.consume_queue("t", 0)
        assert queue is not None
        for offset, unit in queue.units(0, 120):
            record = store.commit_log.record_at(unit.physical_offset)
            assert (record.queue_offset, store.commit_log.body(record)) == (offset, b"%d" % offset)
        assert queue.max_offset == 120
