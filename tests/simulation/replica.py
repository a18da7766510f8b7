"""The copy as a machine of the simulation."""

from __future__ import annotations

from pathlib import Path

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.errors import CannotWrite
from rmqctl.replicate.copy import Copy
from rmqctl.replicate.follower import Follower
from rmqctl.replicate.questions import run
from rmqctl.serve.ha.frames import BadFrame
from rmqctl.serve.wire.command import RemotingCommand
from tests.simulation.disk import Disk, PowerLoss
from tests.simulation.machine import Machine
from tests.simulation.master import CONFIG, Server
from tests.simulation.world import End, Link, World


class Replica(Machine, End):
    """A machine that keeps a copy of a server's store."""

    copy: Copy

    def __init__(self, world: World, root: Path, disk: Disk, server: Server) -> None:
        super().__init__(world, root, disk, "replica")
        self._server = server
        self._link: Link | None = None
        self._follower: Follower | None = None
        self._life = -1
        #: The highest physical offset up to which it has told the master that it has the log.
        self.told = 0

    def begin(self) -> None:
        self.copy = Copy(self.root, CONFIG, clock=self.world.clock)
        self._link = self._follower = None
        self.after(5, self._connect)

    def end(self) -> None:
        self.copy.abandon()
        if self._link is not None:
            self._link.cut(told=self.world.chance.random() < 0.5)

    def _connect(self) -> None:
        """Connects anew, once it is sure that this is a copy of the master's log."""
        self._life += 1
        server = self._server
        if not server.is_up:
            self.after(300, self._connect)
            return
        master = server.store.min_offset, server.store.max_offset
        try:
            join = run(self.copy.join(master), self._ask)
        except (PowerLoss, CannotWrite, OSError) as error:
            self._failed(error)
            return
        self._follower = Follower(join, self.world.now)
        self._link = server.connect_slave(_Line(self, self._life))
        assert self._link is not None
        self._line = self._link._ends[1]
        self._link.send(self._line, self._follower.first_report())
        self.after(100, self._look)

    def _ask(self, request: RemotingCommand) -> RemotingCommand:
        """The master's answer to a request of a join, which asks for single records only."""
        assert request.code == RequestCode.VIEW_MESSAGE_BY_ID
        store, offset = self._server.store, int(request.ext_fields["offset"])
        record = store.commit_log.find_record(offset)
        if record is None:
            return request.answer(ResponseCode.SYSTEM_ERROR)
        mapped, position = store.commit_log.locate(offset)
        return request.answer(0, body=mapped.read(position, record.total_size))

    def received_in(self, life: int, data: bytes) -> None:
        if not self.is_up or life != self._life:
            return
        follower = self._follower
        assert follower is not None
        try:
            for piece in follower.feed(data, self.world.now):
                self.copy.append(piece)
            if self.copy.stored < self.copy.end:
                self.copy.flush_log()
            if self.world.chance.random() < 0.05:
                self.copy.flush()
        except (PowerLoss, CannotWrite, OSError) as error:
            self._failed(error)
            return
        except BadFrame as error:
            # The master's log was empty when the join asked about it, and had a second file when
            # this reported its place: a slave that has nothing is sent the last file. The command
            # ends with this error, and is run again.
            assert self.copy.is_empty, error
            self.world.tell(f"replica: {error}")
            self.crash(power=False)
            return
        self._report()

    def _failed(self, error: BaseException) -> None:
        """The power was lost, or the disk failed: the machine loses power, and starts again with a
        disk that works."""
        self.world.tell(f"replica: {type(error).__name__} {error}")
        self.crash(power=True)

    def _report(self) -> None:
        assert self._follower is not None and self._link is not None
        report = self._follower.report(self.copy.stored, self.world.now)
        if report:
            self.told = max(self.told, self.copy.stored)
            self._link.send(self._line, report)

    def _look(self) -> None:
        """Every 100 ms: ends the connection when the master is silent, else reports to it."""
        if self._follower is None:
            return
        if self._follower.is_silent(self.world.now):
            assert self._link is not None
            self._link.cut()
            self.closed_in(self._life)
            return
        self._report()
        self.after(100, self._look)

    def closed_in(self, life: int) -> None:
        if self.is_up and life == self._life:
            self._follower = None
            self.after(self.world.chance.choice((50, 1000)), self._connect)
            self._life += 1


class _Line(End):
    """The replica's end of one connection."""

    def __init__(self, replica: Replica, life: int) -> None:
        self._replica, self._life = replica, life

    def received(self, data: bytes) -> None:
        self._replica.received_in(self._life, data)

    def closed(self) -> None:
        self._replica.closed_in(self._life)
