"""Runs of the simulation, each with its own seed; one that fails says how to repeat it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import WritableStore
from rmqctl.engine.start import plan
from rmqctl.engine.state.persist import persist
from rmqctl.engine.write.storeflusher import StoreFlusher
from rmqctl.serve.processors.delivery import Delivery
from rmqctl.serve.processors.put import Upkept
from tests import seeds
from tests.simulation import master, ondisk
from tests.simulation.disk import Disk
from tests.simulation.run import Failed, simulate

#: Runs in a group and groups of every run of the tests; runs of the nightly set.
GROUP, GROUPS, NIGHTLY = 30, 10, 10_000


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_was_acknowledged_survives(group: int, tmp_path: Path) -> None:
    run(range(group * GROUP, (group + 1) * GROUP), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("group", range(50))
def test_many_runs(group: int, tmp_path: Path) -> None:
    first = (int(seeds.seed()) % 1_000_000 + 1) * NIGHTLY + group * NIGHTLY // 50
    run(range(first, first + NIGHTLY // 50), tmp_path)


def run(numbers: range, base: Path) -> None:
    for seed in numbers:
        here = base / str(seed)
        here.mkdir()
        simulate(seed, here)


def forget_what_was_forced(what: str, patch: pytest.MonkeyPatch) -> None:
    """The disk loses what was forced to it of a part of the store. The checks of each write would
    find that, too; without them only what is lost may show it."""
    synced = Disk.synced

    def forget(disk: Disk, descriptor: int) -> None:
        if f"/{what}/" not in os.readlink(f"/proc/self/fd/{descriptor}"):
            synced(disk, descriptor)

    patch.setattr(Disk, "synced", forget)
    patch.setattr(ondisk, "check", lambda *what: None)


@pytest.mark.parametrize("what", ["commitlog", "consumequeue"])
def test_a_disk_that_forgets_what_was_forced_is_noticed(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that the runs find such mistakes. They fail when the log is not on disk though a flush
    said so; and when the queues are not, and a start believes the checkpoint, as a broker's does.
    """
    forget_what_was_forced(what, monkeypatch)
    if what == "consumequeue":
        monkeypatch.setattr(plan, "note_firsts", lambda *what: None)
    assert any("is lost" in failure(seed, tmp_path) for seed in range(40))


def test_a_start_makes_queues_whole_that_a_disk_has_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_what_was_forced("consumequeue", monkeypatch)
    assert not any("is lost" in failure(seed, tmp_path) for seed in range(40))


def _forgets_before_offsets(patch: pytest.MonkeyPatch) -> None:
    """Leaves out what ``keep`` does first: to force to disk what the offsets rely on."""
    patch.setattr(master, "keep", lambda store, name, text: persist(store.root, name, text))


def _forgets_before_delay_offsets(patch: pytest.MonkeyPatch) -> None:
    deliver = Delivery.deliver

    def delivers(delivery: Delivery, store: WritableStore) -> Upkept:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(WritableStore, "flush_log", lambda store: None)
            return deliver(delivery, store)

    patch.setattr(Delivery, "deliver", delivers)


def _writes_the_checkpoint_early(patch: pytest.MonkeyPatch) -> None:
    """Writes the checkpoint with the time of the last message stored, not of the last on disk."""
    flush = StoreFlusher._flush_queues

    def flushes(flusher: StoreFlusher, least_pages: int) -> None:
        flusher._advance(physic=flusher._log.store_timestamp)
        flush(flusher, least_pages)

    patch.setattr(StoreFlusher, "_flush_queues", flushes)


@pytest.mark.parametrize(
    ("plant", "noticed"),
    [
        (_forgets_before_offsets, "a group's offset"),
        (_forgets_before_delay_offsets, "the delay offsets are ahead"),
        (_writes_the_checkpoint_early, "is ahead of the log"),
    ],
)
def test_what_is_said_too_early_is_noticed(
    plant: Callable[[pytest.MonkeyPatch], None],
    noticed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that is written too early is noticed also without a loss of power at that moment."""
    plant(monkeypatch)
    assert any(noticed in failure(seed, tmp_path) for seed in range(60))


def failure(seed: int, base: Path) -> str:
    """Why a run fails; empty when it does not. It may be for another reason than the planted one,
    when that is noticed first."""
    try:
        run(range(seed, seed + 1), base)
    except Failed as error:
        return str(error)
    return ""


def test_a_seed_gives_the_same_run_again(tmp_path: Path) -> None:
    traces = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        simulation = simulate(7, tmp_path / name)
        acked = [sorted(producer.acked.items()) for producer in simulation.producers]
        seen = [sorted(consumer.seen.items()) for consumer in simulation.consumers]
        # Everything is the same but the paths.
        trace = [line.replace(str(tmp_path / name), "") for line in simulation.world.trace]
        traces.append((trace, acked, seen))
    assert traces[0] == traces[1]
