"""Runs of the simulation, each by its seed; one that fails says how to have it again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import seeds
from tests.simulation.disk import Disk
from tests.simulation.run import Failed, simulate

#: Runs of every test run, in groups; and of the nightly set.
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


@pytest.mark.parametrize("what", ["commitlog", "consumequeue"])
def test_a_disk_that_forgets_what_was_forced_is_noticed(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the runs are good for: where the log is not on disk when it is said to be they fail; and
    where the queues are not on disk when the checkpoint says so, for a start makes them anew from
    there on only."""
    synced = Disk.synced

    def forget(disk: Disk, descriptor: int) -> None:
        if f"/{what}/" not in os.readlink(f"/proc/self/fd/{descriptor}"):
            synced(disk, descriptor)

    monkeypatch.setattr(Disk, "synced", forget)
    assert any("is lost" in failure(seed, tmp_path) for seed in range(40))


def failure(seed: int, base: Path) -> str:
    """Why a run fails; empty: it does not. Another thing may be noticed first."""
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
        # Paths apart, all of it.
        trace = [line.replace(str(tmp_path / name), "") for line in simulation.world.trace]
        traces.append((trace, acked, seen))
    assert traces[0] == traces[1]
