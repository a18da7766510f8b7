"""A machine: a process with a disk, which crashes and is started again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import CannotWrite, DamagedStore
from tests.simulation.disk import Disk, PowerLoss
from tests.simulation.world import World

S = TypeVar("S")


class Machine:
    """A process and its disk. ``generation`` grows with each start and each crash: what was planned
    before does not happen any more."""

    def __init__(self, world: World, root: Path, disk: Disk, name: str) -> None:
        self.world, self.root, self.disk, self.name = world, root, disk, name
        self.generation = 0
        self.is_up = False
        #: Whether the disk has failed or was full: its operator then starts the process again.
        self.had_error = False
        #: How often its operator had to cut the log for a start.
        self.cuts = 0
        #: Called when the disk has lost what was not forced to it.
        self.on_power_loss: list[Callable[[], None]] = []

    def begin(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def after(self, delay: int, what: Callable[[], None]) -> None:
        generation = self.generation

        def if_alive() -> None:
            if self.generation == generation and self.is_up:
                what()

        self.world.after(delay, if_alive)

    def start(self) -> None:
        if self.is_up:
            return
        self.generation += 1
        self.had_error = False
        try:
            self.begin()
        except PowerLoss:
            self._lose_power()
            self.world.tell(f"{self.name}: the power fails in a start")
            self.world.after(300, self.start)
            return
        except (CannotWrite, OSError) as error:
            self.world.tell(f"{self.name}: does not start: {error}")
            self.world.after(300, self.start)
            return
        self.is_up = True
        self.world.tell(f"{self.name}: is up")

    def crash(self, *, power: bool) -> None:
        """Kills the process, or takes the power from the machine; it starts again later."""
        if not self.is_up:
            return
        self.world.tell(f"{self.name}: {'loses power' if power else 'is killed'}")
        self.is_up = False
        self.generation += 1
        self.end()
        if power:
            self._lose_power()
        self.world.after(self.world.chance.choice((50, 400, 3000)), self.start)

    def _lose_power(self) -> None:
        self.disk.lose_power(self.world.chance)
        for tell in self.on_power_loss:
            tell()


def opened(machine: Machine, config: MessageStoreConfig, make: Callable[..., S]) -> S:
    """The machine's store, or copy, opened. A loss of power may have left a hole in the log, and
    newer records behind it. None of this was forced to disk, so it may go: an operator cuts the log
    off at the hole, as a broker's start would."""
    while True:
        try:
            return make(machine.root, config, clock=machine.world.clock)
        except DamagedStore as error:
            machine.cuts += 1
            assert machine.cuts < 50
            offset = error.values["physical_offset"]
            assert isinstance(offset, int)
            machine.world.tell(f"{machine.name}: cut at {offset}: {error}")
            cut_log(machine.root, offset, config.mapped_file_size_commit_log)


def cut_log(root: Path, offset: int, file_size: int) -> None:
    for path in (root / "commitlog").iterdir():
        start = int(path.name)
        if start > offset:
            path.unlink()
        elif start + file_size > offset:
            with path.open("r+b") as file:
                file.seek(offset - start)
                file.write(bytes(start + file_size - offset))


def plain(config: MessageStoreConfig) -> MessageStoreConfig:
    """The configuration for a check of the store, which is not a synchronous master."""
    return replace(config, broker_role="ASYNC_MASTER")
