"""Random runs of a store against a simple model: puts of all kinds, flushes, rolls, closes, kills,
expired files, reopenings.

The model is what the README promises: lists of messages. Whatever was done, the store has exactly
the model's messages, each under its queue offset and keys, and verify has nothing to say.
"""

from __future__ import annotations

import inspect
import os
import shutil
import tempfile
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from formats import constants
from rmqctl.engine.files.durable import MayLose, sync_files
from rmqctl.engine.files.filequeue import FileEntry
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner, PutMessageResult
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.services.retention import EXPIRED, remove
from rmqctl.engine.write.put import MessagePutter
from rmqctl.engine.write.storewriter import StoreWriter
from rmqctl.operations.change.clean import Rule, plan_clean
from tests.test_safety.support import Clock, assert_clean, small_config

FILE = 1 << 13
CONFIG = replace(
    small_config(log=FILE, queue=400, slots=7, items=40),
    enable_lmq=True,
    enable_multi_dispatch=True,
    max_message_size=4096,
)
MODES: list[dict[str, Any]] = [
    {},
    {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 200},
    {"transient_store_pool_enable": True, "transient_store_pool_size": 2},
    {"flush_disk_type": "SYNC_FLUSH", "warm_maped_file_enable": True},
]
TOPICS = st.sampled_from(("a", "b"))
QUEUE_IDS = st.integers(0, 1)
BODIES = st.binary(max_size=1200)


@dataclass
class Stored:
    """One message that was acknowledged: where it must be found."""

    offset: int
    body: bytes
    key: str
    topic: str
    queue_id: int
    queue_offset: int
    has_unit: bool


class StoreModel(RuleBasedStateMachine):
    """A store, and beside it the list of what was put."""

    @initialize(mode=st.sampled_from(MODES), services=st.booleans())
    def begin(self, mode: dict[str, Any], services: bool) -> None:
        # In memory where tests/conftest.py has found room.
        base = os.environ.get("PYTEST_DEBUG_TEMPROOT")
        self.directory = Path(tempfile.mkdtemp(prefix="rmqctl-model-", dir=base))
        self.root = self.directory / "store"
        self.config = replace(CONFIG, **mode)
        self.services = services
        self.clock = Clock()
        self.stored: list[Stored] = []
        self.ends: dict[tuple[str, int], int] = {}
        self.number = 0
        self.on_disk: dict[Path, bytes] = {}
        self.patch = patch("rmqctl.engine.log.logwriter.sync_files", self.sync_files)
        self.patch.start()
        self.open()

    def open(self) -> None:
        self.store = MessageStore(
            self.root, self.config, writable=True, create=True, clock=self.clock
        )
        self.found = self.store.writer._log.write_offset
        if self.services:
            self.store.start()

    # --- what is done ----------------------------------------------------------------

    def message(self, topic: str, queue_id: int, body: bytes, **more: Any) -> MessageExtBrokerInner:
        self.number += 1
        properties = {"KEYS": f"k{self.number}", "TAGS": f"t{self.number % 3}"}
        properties |= more.pop("properties", {})
        return MessageExtBrokerInner(topic, body, queue_id, properties=properties, **more)

    def acknowledge(
        self, message: MessageExtBrokerInner, result: PutMessageResult, *, has_unit: bool = True
    ) -> None:
        assert result.is_ok, result
        append = result.append
        assert append is not None
        place = result.topic, result.queue_id
        expected = self.ends.get(place, 0) if has_unit else 0
        assert append.queue_offset == expected
        if has_unit:
            self.ends[place] = expected + 1
        self.stored.append(
            Stored(
                append.wrote_offset,
                message.body,
                message.properties["KEYS"],
                *place,
                append.queue_offset,
                has_unit,
            )
        )

    @rule(topic=TOPICS, queue_id=QUEUE_IDS, body=BODIES, flush=st.booleans())
    def put(self, topic: str, queue_id: int, body: bytes, flush: bool) -> None:
        message = self.message(topic, queue_id, body)
        self.acknowledge(message, self.store.put_message(message, flush=flush))
        assert not flush or self.store.writer._log.flushed_where > self.stored[-1].offset

    @rule(topic=TOPICS, queue_id=QUEUE_IDS, bodies=st.lists(BODIES, min_size=1, max_size=3))
    def put_batch(self, topic: str, queue_id: int, bodies: list[bytes]) -> None:
        messages = [self.message(topic, queue_id, body) for body in bodies]
        results = self.store.put_messages(messages, batch=True)
        first, last = results[0].append, results[-1].append
        assert first is not None and last is not None
        assert first.wrote_offset // FILE == last.wrote_offset // FILE
        for message, result in zip(messages, results, strict=True):
            self.acknowledge(message, result)

    @rule(bodies=st.lists(st.tuples(TOPICS, QUEUE_IDS, BODIES), max_size=12))
    def put_stream(self, bodies: list[tuple[str, int, bytes]]) -> None:
        messages = [self.message(*one) for one in bodies]
        results = [r for bulk in self.store.put_stream(messages, flush=False) for r in bulk]
        for message, result in zip(messages, results, strict=True):
            self.acknowledge(message, result)

    @rule(topic=TOPICS, level=st.integers(1, 20), body=BODIES)
    def put_delayed(self, topic: str, level: int, body: bytes) -> None:
        message = self.message(topic, 0, body, properties={"DELAY": str(level)})
        result = self.store.put_message(message)
        assert (result.topic, result.queue_id) == ("SCHEDULE_TOPIC_XXXX", min(level, 18) - 1)
        self.acknowledge(message, result)

    @rule(
        topic=TOPICS,
        body=BODIES,
        kind=st.sampled_from(
            (
                constants.TRANSACTION_PREPARED_TYPE,
                constants.TRANSACTION_COMMIT_TYPE,
                constants.TRANSACTION_ROLLBACK_TYPE,
            )
        ),
    )
    def put_transaction(self, topic: str, body: bytes, kind: int) -> None:
        message = self.message(topic, 0, body, sys_flag=kind)
        result = self.store.put_message(message)
        self.acknowledge(message, result, has_unit=kind == constants.TRANSACTION_COMMIT_TYPE)
        if kind == constants.TRANSACTION_ROLLBACK_TYPE:
            self.stored[-1].key = ""

    @rule(topic=TOPICS, names=st.lists(st.sampled_from(("x", "y")), min_size=1, unique=True))
    def put_light(self, topic: str, names: list[str]) -> None:
        queues = [f"%LMQ%{name}" for name in names]
        properties = {"INNER_MULTI_DISPATCH": ",".join(queues)}
        message = self.message(topic, 1, b"light", properties=properties)
        self.acknowledge(message, self.store.put_message(message))
        for name in queues:
            self.ends[name, 0] = self.ends.get((name, 0), 0) + 1

    @rule(topic=TOPICS)
    def put_what_is_refused(self, topic: str) -> None:
        before = self.store.writer._log.write_offset
        result = self.store.put_message(self.message(topic, 0, bytes(4096)))
        assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
        assert self.store.writer._log.write_offset == before

    @rule()
    def roll(self) -> None:
        """Fills the log file nearly up, so that the next message may not fit."""
        left = FILE - self.store.writer._log.write_offset % FILE
        while left > 3500:
            self.put("a", 0, bytes(3000), False)
            left = FILE - self.store.writer._log.write_offset % FILE
        if left > 400:
            self.put("b", 1, bytes(left - 300), False)

    @rule(structures=st.sampled_from((("commitlog",), ("queues",), ("index", "commitlog"))))
    def flush(self, structures: tuple[str, ...]) -> None:
        for done in self.store.flush_structures(structures):
            assert done.from_offset <= done.to_offset == self.store.max_offset
        if "commitlog" in structures:
            assert self.store.writer._log.flushed_where == self.store.max_offset

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()

    @rule()
    def kill(self) -> None:
        """What was acknowledged with services may still be in a buffer: a kill loses that, as a
        broker's does. Without them all is in the files."""
        committed = self.store.writer._log.committed_where
        self.store.abandon()
        lost = [one for one in self.stored if one.offset >= committed]
        assert not lost or self.config.transient_store_pool_enable
        self.open()
        if lost:
            self.stored = [one for one in self.stored if one.offset < committed]
            self.ends = {}
            for where in self.store.queues.directories():
                queue = self.store.consume_queue(where.topic, where.queue_id)
                assert queue is not None
                self.ends[where.topic, where.queue_id] = queue.max_offset

    @precondition(lambda self: len(self.store.commit_log.files.entries) > 2)
    @rule(files=st.integers(1, 3), killed=st.booleans())
    def clean(self, files: int, killed: bool) -> None:
        """The oldest log files expire while the store is closed; the queues, their extension and
        the index follow, unless a kill comes before that."""
        self.store.close()
        oldest = sorted((self.root / "commitlog").iterdir())[: min(files, len(self.log_files) - 2)]
        for path in oldest:
            os.utime(path, (0, 0))
        plan = plan_clean(self.root, self.config, Rule(percent=50, manual=True))
        removals = plan.retention.removals
        assert [one.path for one in removals if one.reason == EXPIRED] == oldest
        remove(removals[: len(oldest)] if killed else removals, lambda _: None)
        self.stored = [one for one in self.stored if one.offset >= plan.retention.new_min_offset]
        self.open()
        assert self.store.min_offset == plan.retention.new_min_offset

    # --- what must hold ----------------------------------------------------------------

    @property
    def log_files(self) -> list[FileEntry]:
        return self.store.commit_log.files.entries

    def sync_files(self, paths: Iterable[Path], loser: MayLose) -> None:
        """Does it, and remembers what the disk has of each file then."""
        listed = list(paths)
        content = {path: path.read_bytes() for path in listed}
        sync_files(listed, loser=loser)
        self.on_disk |= content

    @invariant()
    def what_counts_as_flushed_was_synced(self) -> None:
        """Since the store was opened: a power failure would keep it."""
        if not hasattr(self, "store"):
            return
        flushed = self.store.writer._log.flushed_where
        for entry in self.log_files:
            low, high = (
                max(entry.file_from_offset, self.found),
                min(entry.file_from_offset + FILE, flushed),
            )
            if low < high:
                part = slice(low - entry.file_from_offset, high - entry.file_from_offset)
                assert self.on_disk.get(entry.path, b"")[part] == entry.path.read_bytes()[part]

    @invariant()
    def everything_is_there(self) -> None:
        if not hasattr(self, "store"):
            return
        if self.services:
            # What runs in the background has run; without it a put has done all by itself.
            with self.store._put_lock:
                self.store.writer._log.commit_all()
                self.store.writer._tail.complete()
        for one in self.stored[-6:]:
            self.check(one)

    def check(self, one: Stored) -> None:
        store = self.store
        record = store.look_message_by_offset(one.offset)
        assert (record.topic, record.queue_id) == (one.topic, one.queue_id)
        assert record.queue_offset == one.queue_offset
        assert store.body(record) == one.body
        if one.has_unit:
            found = store.get_message(one.topic, one.queue_id, one.queue_offset, 1)
            assert [r.physical_offset for r in found.records] == [one.offset]
        if one.key:
            hits = store.query_message(one.topic, one.key)
            assert one.offset in [hit.hit.item.physical_offset for hit in hits if hit.matches]

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.stop()
        if not hasattr(self, "store"):
            return
        try:
            for one in self.stored:
                self.check(one)
            for (topic, queue_id), end in self.ends.items():
                queue = self.store.consume_queue(topic, queue_id)
                assert queue is not None and queue.max_offset == end
            self.store.close()
            if self.stored:
                assert_clean(self.root, self.config)
        finally:
            self.store.abandon()
            shutil.rmtree(self.directory)


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(
    max_examples=settings().max_examples // 2,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


MUTANTS = {
    "dispatch before the buffers are committed": (
        StoreWriter,
        "_dispatch",
        "self._log.commit_all()",
        "pass",
    ),
    "a batch counts as one message": (
        MessagePutter,
        "append_batch",
        "[key] = first + len(encoded)",
        "[key] = first + 1",
    ),
    "a file that is full is not synced": (
        CommitLogWriter,
        "flush",
        "sync_files([entry.path], loser=self)",
        "if end < entry.file_from_offset + entry.size: sync_files([entry.path], loser=self)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_model_sees_what_would_be_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these lines changed in the engine is found."""
    owner, method, old, new = MUTANTS[name]
    original = getattr(owner, method)
    source = textwrap.dedent(inspect.getsource(original))
    assert source.count(old) == 1
    found: dict[str, Any] = {}
    exec(source.replace(old, new), original.__globals__, found)
    monkeypatch.setattr(owner, method, found[method])
    with pytest.raises(Exception):  # noqa: B017  # Whatever the model, or the store, says first.
        run_state_machine_as_test(
            StoreModel,
            settings=settings(
                TestStoreModel.settings,
                max_examples=1000,
                phases=[Phase.generate],
                database=None,
                report_multiple_bugs=False,
            ),
        )
