"""Answers that the kernel makes of the log's own bytes are those that are made of records."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.constants import INT_MAX
from rmqctl import kernel
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.read.getstored import get_stored
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.status import GetMessageStatus
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.serve.processors import pull
from rmqctl.serve.processors.pull import Pull, Pulled
from rmqctl.serve.state.subscription import CodeFilter
from tests import golden_data
from tests.conftest import Golden

#: Offsets of a queue at which it is asked, at most.
MOST = 12


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel.usable().module is None:
        pytest.skip(f"no compiled kernel: {kernel.usable().problem}")
    monkeypatch.setenv(kernel.VARIABLE, "compiled")


def asked(topic: str, queue_id: int, offset: int, most: int, codes: frozenset[int] | None) -> Pull:
    return Pull(None, "g", topic, queue_id, offset, most, CodeFilter(codes), 0)  # type: ignore[arg-type]


def both(store: MessageStore, one: Pull, patch: pytest.MonkeyPatch) -> tuple[Pulled, bool]:
    """The answer, and whether the kernel has made it."""
    made = pull._stored(store, one)
    found = pull.read(store, one)
    with patch.context() as without:
        without.setattr(pull, "_stored", lambda *_: None)
        assert found == pull.read(store, one)
    return found, made is not None


@pytest.mark.parametrize("name", golden_data.STORES)
def test_every_queue_of_a_store(golden: Golden, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {True: 0, False: 0}
    with MessageStore(golden(name), golden_data.broker_conf(name)) as store:
        store.commit_log._load()
        for where in store.queues.directories():
            queue = store.consume_queue(where.topic, where.queue_id)
            assert queue is not None
            low, high = queue.min_offset, queue.max_offset
            units = queue.units(low, high)
            known = [code for _, unit in units if (code := queue.tags_code(unit)) is not None]
            some = frozenset([*sorted(known)[::3], 1 << 70])
            for offset in sorted({*range(low, high, (high - low) // MOST + 1), high - 1, high}):
                for codes in (None, some, frozenset({7})):
                    for most in (1, 32):
                        one = asked(where.topic, where.queue_id, offset, most, codes)
                        found, is_compiled = both(store, one, monkeypatch)
                        if found.status is GetMessageStatus.FOUND and not found.problem:
                            seen[is_compiled] += 1
    # Of an answer from two files of the log records are made, and these files are small.
    assert seen[True]


def test_only_what_is_on_disk_and_fits_goes_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse_broker_conf("mappedFileSizeCommitLog=4096\nmaxMessageSize=2000")
    with MessageStore(tmp_path / "s", config, writable=True, create=True) as store:
        for number in range(40):
            sent = MessageExtBrokerInner("t", bytes(number), properties={"TAGS": f"t{number % 3}"})
            assert store.put_message(sent, flush=number < 20).is_ok
        store.commit_log._load()
        found = [both(store, asked("t", 0, n, 8, None), monkeypatch) for n in range(41)]
        # What the disk has not got is for nobody, and found out about with records.
        assert [one.messages for one, _ in found] == [*[8] * 13, *range(7, 0, -1), *[0] * 21]
        assert found[0][1] and not found[13][1]
        reader: MessageStore = store
        first = get_stored(reader, "t", 0, 0, 8, None, before=4096, most_bytes=4096)
        assert first is not None and first.messages == 8
        size = len(first.stored)
        assert get_stored(reader, "t", 0, 0, 8, None, before=size, most_bytes=size) == first
        assert get_stored(reader, "t", 0, 0, 8, None, before=size - 1, most_bytes=size) is None
        assert get_stored(reader, "t", 0, 0, 8, None, before=size, most_bytes=size - 1) is None
        none = frozenset({INT_MAX})
        assert get_stored(reader, "t", 0, 0, 8, none, before=size, most_bytes=size) is None
        assert get_stored(reader, "t", 1, 0, 8, None, before=size, most_bytes=size) is None
