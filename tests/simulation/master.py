"""The server as a machine of the simulation: a store, its broker, and its side of replication."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from formats.constants import RMQ_SYS_SCHEDULE_TOPIC
from rmqctl.engine.messagestore import WritableStore
from rmqctl.engine.services.schedule import queue_id_of
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import CannotWrite, RmqctlError
from rmqctl.operations.change.schedule import Delivery as Deliver
from rmqctl.operations.change.schedule import DeliveryRun, Skip
from rmqctl.serve.broker import Append, Broker, Close, Event, Job, Persist, Send, Trouble
from rmqctl.serve.events import Upkeep, Upkept
from rmqctl.serve.ha.holding import Held, Holding
from rmqctl.serve.ha.master import Master
from rmqctl.serve.hasockets import has_unsent, read_frame, sendable
from rmqctl.serve.processors.delivery import Delivery
from rmqctl.serve.processors.put import append_all, keep
from rmqctl.serve.processors.request import Served
from rmqctl.serve.writer import keep_up
from tests.simulation import ondisk
from tests.simulation.disk import Disk, PowerLoss
from tests.simulation.machine import Machine, opened
from tests.simulation.world import End, Link, World

#: All files are small, so that there are several of each: a start after a kill goes back to one
#: file of the log and one of the index, and dispatches nothing that lies before.
CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=2048,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=7,
    max_index_num=4,
    max_message_size=1024,
)


_STANDING = re.compile("level ([0-9]+) stands still at queue offset ([0-9]+).* --skip")


class _Peer(End):
    """The server's end of a connection."""

    def __init__(self, server: Server, number: int, *, is_slave: bool) -> None:
        self._server = server
        self.number = number
        self._is_slave = is_slave
        self.generation = server.generation
        self.link: Link | None = None

    def received(self, data: bytes) -> None:
        server = self._server
        if self.generation != server.generation:
            return
        if not self._is_slave:
            server.do(server.broker.received(self.number, data, server.world.now))
        elif server.master.received(self.number, data, server.world.now):
            self.close()
        else:
            server.do(server.broker.replicated(server.world.now))

    def close(self) -> None:
        assert self.link is not None
        self.link.cut()

    def closed(self) -> None:
        server = self._server
        if self.generation != server.generation:
            return
        server.peers.pop((self._is_slave, self.number), None)
        if self._is_slave:
            server.master.lost(self.number)
        else:
            server.do(server.broker.lost(self.number))


class Server(Machine):
    """A machine that serves its store. With ``is_sync`` a put is answered only when a slave has the
    message; with ``answers_first`` it is answered before the message is on disk (ASYNC_FLUSH)."""

    store: WritableStore
    broker: Broker
    master: Master[Held[Append]]

    def __init__(
        self, world: World, root: Path, disk: Disk, *, is_sync: bool, answers_first: bool
    ) -> None:
        super().__init__(world, root, disk, "server")
        self.answers_first = answers_first
        #: Physical offset up to which the log was on disk when the server last ended.
        self.safe_to = 0
        self.config = replace(CONFIG, broker_role="SYNC_MASTER" if is_sync else "ASYNC_MASTER")
        self.peers: dict[tuple[bool, int], _Peer] = {}
        self._works: list[Append | Persist | Upkeep] = []
        self._slaves = 0
        disk.on_synced.append(self._synced)
        #: Called after each start, when the store is open.
        self.on_start: list[Callable[[], None]] = []
        #: Called with the physical offset of each delayed message at which delivery stands still.
        self.on_standing: list[Callable[[int], None]] = []
        self._standing: list[Skip] = []

    def begin(self) -> None:
        self.store = opened(self, self.config, partial(WritableStore, create=True))
        try:
            self._pass_over()
            served = Served.of(
                self.store,
                broker_name="b",
                cluster_name="c",
                answers_first=self.answers_first,
            )
        except BaseException:
            self.store.abandon()
            raise
        self.broker = Broker(served, Delivery(self.store))
        self.master = Master(
            lambda: sendable(self.store), self.store.commit_log.file_size, self.config
        )
        self.broker.holding = Holding(self.master)
        self._works, self.peers = [], {}
        for tell in self.on_start:
            tell()
        self.after(500, self._tick)
        self.after(50, self._save)
        if self.answers_first:
            self.after(100, self._flush_log)

    def _stands(self, level: int, queue_offset: int) -> None:
        """Delivery has met a record that it cannot deliver: the operator stops the server, and has
        that message passed over before the next start."""
        queue = self.store.consume_queue(RMQ_SYS_SCHEDULE_TOPIC, queue_id_of(level))
        unit = None if queue is None else queue.unit(queue_offset)
        assert unit is not None
        for tell in self.on_standing:
            tell(unit.physical_offset)
        self._standing.append(Skip(level, queue_offset, queue_offset))
        self.after(0, lambda: self.crash(power=False))

    def _pass_over(self) -> None:
        """Does what ``rmqctl schedule deliver --skip`` does, for each level that stands still."""
        now = self.store.clock()
        for skip in self._standing:
            wanted = Deliver(now, now, levels=frozenset({skip.level}), skip=(skip,))
            for _ in DeliveryRun(self.store, wanted).rows():
                pass
        self._standing = []

    def _synced(self, path: Path) -> None:
        ondisk.check(self.disk, path, self.config.mapped_file_size_consume_queue)

    def end(self) -> None:
        self.safe_to = self.store.commit_log.flushed_where
        self.store.abandon()
        for peer in self.peers.values():
            assert peer.link is not None
            # A killed process's connections are closed for it; a machine without power closes none.
            peer.link.cut(told=self.world.chance.random() < 0.5)

    # --- connections ---------------------------------------------------------------------

    def connect(self, other: End) -> Link | None:
        """A client's connection; None: the server is not running."""
        if not self.is_up:
            return None
        number = self.broker.connected("10.0.0.9:1", "10.0.0.7:10911", self.world.now)
        return self._link(_Peer(self, number, is_slave=False), other)

    def connect_slave(self, other: End) -> Link | None:
        if not self.is_up:
            return None
        self._slaves += 1
        peer = _Peer(self, self._slaves, is_slave=True)
        assert not self.master.connected(self._slaves, "10.0.0.8", self.world.now)
        self.after(1, lambda: self._feed(peer))
        return self._link(peer, other)

    def _link(self, peer: _Peer, other: End) -> Link:
        peer.link = Link(self.world, peer, other)
        self.peers[peer._is_slave, peer.number] = peer
        return peer.link

    def _feed(self, peer: _Peer) -> None:
        """Sends a slave its next frame, and looks later whether there is another."""
        if (True, peer.number) not in self.peers:
            return
        frame = self.master.next_frame(peer.number, self.world.now)
        if frame is None and has_unsent(self.store):
            if not self._flushes(self.store.flush_log):
                return
            frame = self.master.next_frame(peer.number, self.world.now)
        if frame is not None:
            assert peer.link is not None
            peer.link.send(peer, read_frame(self.store, frame))
        self.after(1 if frame else 50, lambda: self._feed(peer))

    # --- what the broker wants -----------------------------------------------------------

    def _tick(self) -> None:
        self.do(self.broker.tick(self.world.now))
        queues = self.store.writer.flusher.flush_consume_queue
        if self.world.chance.random() < 0.3 and not self._flushes(queues.finish):
            return
        for number in self.master.silent(self.world.now):
            self.peers[True, number].close()
        self.after(500, self._tick)

    def _save(self) -> None:
        """Has offsets saved, and more often than each five seconds as a server does: a run has only
        six seconds with faults."""
        self.do(self.broker.unsaved())
        self.after(self.world.chance.choice((50, 200, 1000)), self._save)

    def _flush_log(self) -> None:
        """Flushes the log from time to time, as the thread for ASYNC_FLUSH does."""
        if self._flushes(self.store.writer.flusher.flush_real_time.finish):
            self.after(self.world.chance.choice((50, 500, 2000)), self._flush_log)

    def _flushes(self, flush: Callable[[], None]) -> bool:
        """Flushes, as threads beside the writer's do; False: the machine has lost power at it."""
        try:
            flush()
        except PowerLoss:
            self.world.tell("server: the power fails in a flush beside the writer's")
            self.crash(power=True)
            return False
        except (CannotWrite, OSError) as error:
            self.world.tell(f"server: not flushed: {error}")
            self.had_error = True
        return True

    def do(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Send | Close):
                peer = self.peers.get((False, event.channel))
                if peer is not None and isinstance(event, Send):
                    assert peer.link is not None
                    peer.link.send(peer, event.data)
                elif peer is not None:
                    peer.close()
            elif isinstance(event, Job):
                self.after(self.world.chance.choice((0, 1, 3)), lambda job=event: self._look(job))  # type: ignore[misc]
            elif isinstance(event, Append | Persist | Upkeep):
                if not self._works:
                    self.after(self.world.chance.choice((0, 2, 9)), self._write)
                self._works.append(event)
            elif isinstance(event, Trouble):
                self.world.tell(f"server: {event.text}")
                if standing := _STANDING.search(event.text):
                    self._stands(*map(int, standing.groups()))

    def _look(self, job: Job) -> None:
        answer: Any
        try:
            answer = job.work()
        except (RmqctlError, OSError) as error:
            answer = error
        self.do(self.broker.finished(job, answer, self.world.now))

    def _write(self) -> None:
        """Does what the writer's thread does: stores all puts that wait, with one flush."""
        works, self._works = self._works, []
        answers: dict[int, Any] = {}
        kept: list[tuple[Upkeep, Upkept | Exception]] = []
        try:
            for work in works:
                if isinstance(work, Persist):
                    self._persist(work)
                elif isinstance(work, Upkeep):
                    kept.append((work, keep_up(self.store, work)))
            puts = [work for work in works if isinstance(work, Append)]
            stored = append_all(self.store, [work.put for work in puts])
            answers = {id(work): answer for work, answer in zip(puts, stored, strict=True)}
        except PowerLoss:
            self.world.tell("server: the power fails in a flush")
            self.crash(power=True)
            return
        told = [*answers.values(), *(result for _, result in kept)]
        if errors := [one for one in told if isinstance(one, Exception)]:
            self.world.tell(f"server: {errors}")
            self.had_error = True

        def answered() -> None:
            for upkeep, result in kept:
                self.do(self.broker.upkept(upkeep, result, self.world.now))
            for work in puts:
                self.do(self.broker.finished(work, answers[id(work)], self.world.now))

        self.after(self.world.chance.choice((0, 1, 8)), answered)

    def _persist(self, work: Persist) -> None:
        try:
            keep(self.store, work.name, work.text)
        except (RmqctlError, OSError):
            self.broker.not_persisted(work.name)
