"""What one record more costs a walk: calls of Python, which no busy machine changes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations.look.walk import Selection, walk_commit_log
from tests.test_safety.support import Clock, message, small_config

#: Of a record without filters and body; a walk of 300,000 of them takes 3.5 s with so many.
CALLS = 27


def test_a_record_costs_few_calls(tmp_path: Path) -> None:
    config = small_config(log=1 << 20)
    with MessageStore(tmp_path / "s", config, writable=True, create=True, clock=Clock()) as store:
        store.put_messages([message(number) for number in range(300)])
        places = [
            row["physical_offset"]
            for row in walk_commit_log(store, Selection())
            if row["type"] == "message"
        ]

        def calls(records: int) -> int:
            count = 0

            def counted(_frame: FrameType, event: str, _argument: object) -> None:
                nonlocal count
                count += event == "call"

            rows = walk_commit_log(store, Selection(end=places[records]))
            sys.setprofile(counted)
            try:
                found = sum(row["type"] == "message" for row in rows)
            finally:
                sys.setprofile(None)
            assert found == records
            return count

        assert calls(250) - calls(50) <= CALLS * 200
