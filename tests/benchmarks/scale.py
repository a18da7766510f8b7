"""Simulates how long verify and rebuild of a fleet take on Spark, when hosts and drivers fail.

``python tests/benchmarks/scale.py`` takes some minutes, and prints the table of
``docs/explanation/scale.md``. The constants were measured, and all else follows from them; the same
seed gives the same table.

Each store is one job: its scan tasks, then (rebuild) its index files, then its queue files. Each
stage is complete before the next begins. Jobs get free cores in the order of the stores. When a
host fails, the tasks that run on it are lost and, in a job that is not done yet, what its finished
scan tasks have left there for the next stage. When a driver fails, its job starts anew.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections import deque
from dataclasses import dataclass, field, replace

HOUR = 3600.0
GIB = 1 << 30
PART_BYTES = 256 << 20
UNITS_IN_FILE = 300_000
ITEMS_IN_FILE = 20_000_000


@dataclass(frozen=True)
class Constants:
    """What was measured; rates are those of one core, in bytes or messages a second."""

    verify_rate: float = 0.4e6
    rebuild_rate: float = 0.5e6
    units_rate: float = 10e6
    index_file_seconds: float = 10.0
    task_overhead: float = 0.05
    session_seconds: float = 7.0
    host_mtbf: float = 30 * 24 * HOUR
    driver_mtbf: float = 90 * 24 * HOUR
    repair_seconds: float = 600.0
    straggling: float = 0.25  # sigma of a log-normal factor


@dataclass(frozen=True)
class Fleet:
    """A fleet and its cluster; ``disk_rate`` is the bytes a second that one store gives to all its
    readers together."""

    name: str
    stores: int
    store_bytes: float
    hosts: int
    cores_a_host: int
    jobs_at_once: int
    disk_rate: float
    record_bytes: int = 1024
    keys: int = 2
    grain: int = 1  # how many tasks are simulated as one; more than 1 where there are millions


@dataclass
class Outcome:
    seconds: float = 0.0
    tasks: int = 0
    repeated: int = 0
    host_failures: int = 0
    driver_failures: int = 0


@dataclass
class Job:
    """The job of one store. ``done_on`` counts its finished scans by host; ``waiting`` counts the
    tasks of the present stage that wait for a core, and ``again`` the scans that must be repeated
    because their results were lost after the scan stage had ended."""

    stage: int = 0
    waiting: int = 0
    again: int = 0
    running: int = 0
    life: int = 0  # grows when the driver fails: tasks of an earlier life no longer count
    done_on: dict[int, int] = field(default_factory=dict)

    @property
    def has_work(self) -> bool:
        return self.waiting + self.again > 0


def stages_of(fleet: Fleet, constants: Constants, verb: str) -> list[tuple[int, float]]:
    messages = fleet.store_bytes / fleet.record_bytes
    scans = max(1, round(fleet.store_bytes / PART_BYTES / fleet.grain))
    rate = constants.verify_rate if verb == "verify" else constants.rebuild_rate
    width = fleet.hosts * fleet.cores_a_host / fleet.jobs_at_once
    from_disk = PART_BYTES / (fleet.disk_rate / width)
    on_core = messages / (fleet.store_bytes / PART_BYTES) / rate
    scan = (max(from_disk, on_core) + constants.task_overhead) * fleet.grain
    queues = max(1, round(messages / UNITS_IN_FILE / fleet.grain))
    units = (UNITS_IN_FILE / constants.units_rate + constants.task_overhead) * fleet.grain
    items = messages * fleet.keys
    index = max(1, round(items / ITEMS_IN_FILE / fleet.grain))
    if verb == "verify":
        # Units are compared by the scan tasks; of a sound queue the next stage gets only places.
        compared = scan + messages / constants.units_rate / scans
        file = (ITEMS_IN_FILE / constants.units_rate + constants.task_overhead) * fleet.grain
        return [
            (scans, compared),
            (max(1, round(2 * width)), constants.task_overhead),
            (index, file),
        ]
    return [(scans, scan), (index, constants.index_file_seconds * fleet.grain), (queues, units)]


class Simulation:
    """Takes the events in order of time: a task ends, a host fails or is back, a driver fails."""

    def __init__(self, fleet: Fleet, constants: Constants, verb: str, seed: int) -> None:
        self.fleet, self.constants = fleet, constants
        self.random = random.Random(seed)
        self.stages = stages_of(fleet, constants, verb)
        self.outcome = Outcome()
        self.now = 0.0
        self.events: list[tuple[float, int, str, int, int, int, int]] = []
        self.count = 0
        self.hosts = dict.fromkeys(range(fleet.hosts), 0)  # how often each came up; -1: down
        self.free = deque(h for h in self.hosts for _ in range(fleet.cores_a_host))
        self.jobs: dict[int, Job] = {}
        self.turn: deque[int] = deque()
        self.ended = 0

    def run(self) -> Outcome:
        for number in range(min(self.fleet.jobs_at_once, self.fleet.stores)):
            self.start(number)
        for host in self.hosts:
            self.fail_later("host", self.constants.host_mtbf, host)
        while self.ended < self.fleet.stores:
            self.assign()
            self.now, _, kind, subject, host, life, stage = heapq.heappop(self.events)
            getattr(self, f"on_{kind}")(subject, host, life, stage)
        self.outcome.seconds = self.now + self.constants.session_seconds
        self.outcome.tasks *= self.fleet.grain
        self.outcome.repeated *= self.fleet.grain
        return self.outcome

    def at(self, delay: float, kind: str, subject: int, host: int, life: int, stage: int) -> None:
        self.count += 1
        heapq.heappush(
            self.events, (self.now + delay, self.count, kind, subject, host, life, stage)
        )

    def fail_later(self, kind: str, mtbf: float, subject: int, life: int = 0) -> None:
        if mtbf:
            self.at(self.random.expovariate(1 / mtbf), kind, subject, subject, life, 0)

    def start(self, number: int) -> None:
        self.jobs[number] = Job()
        self.wait(number, 0, self.stages[0][0])
        self.fail_later("driver", self.constants.driver_mtbf, number)

    def assign(self) -> None:
        """Gives free cores to the jobs that have waiting tasks, one core to each in turn."""
        while self.free and self.jobs:
            for _ in range(len(self.turn)):
                number = self.turn[0]
                if number in self.jobs and self.jobs[number].has_work:
                    break
                # Left out until it has tasks again.
                self.turn.popleft()
            if not self.turn:
                return
            self.turn.rotate(-1)
            host, job = self.free.popleft(), self.jobs[number]
            stage = 0 if job.again else job.stage
            if job.again:
                job.again -= 1
            else:
                job.waiting -= 1
            job.running += 1
            seconds = self.stages[stage][1]
            seconds *= self.random.lognormvariate(0, self.constants.straggling)
            subject = number * self.fleet.hosts + host
            self.at(seconds, "task", subject, self.hosts[host], job.life, stage)

    def wait(self, number: int, stage: int, tasks: int) -> None:
        """Notes that so many more tasks of a job wait for a core."""
        job = self.jobs[number]
        if not job.has_work:
            self.turn.append(number)
        if stage == job.stage:
            job.waiting += tasks
        else:
            job.again += tasks

    def on_task(self, subject: int, host_life: int, life: int, stage: int) -> None:
        number, host = divmod(subject, self.fleet.hosts)
        job = self.jobs.get(number)
        is_there = self.hosts[host] == host_life
        if is_there:
            self.free.append(host)
        if job is None or job.life != life:
            return
        self.outcome.tasks += 1
        job.running -= 1
        if not is_there:
            self.outcome.repeated += 1
            self.wait(number, stage, 1)
        elif stage == 0:
            job.done_on[host] = job.done_on.get(host, 0) + 1
        if not job.has_work and not job.running:
            job.stage += 1
            if job.stage < len(self.stages):
                self.wait(number, job.stage, self.stages[job.stage][0])
                return
            del self.jobs[number]
            self.ended += 1
            following = self.ended + len(self.jobs)
            if following < self.fleet.stores:
                self.start(following)

    def on_host(self, host: int, _life: int, _none: int, _stage: int) -> None:
        self.outcome.host_failures += 1
        came_up = self.hosts[host]
        self.hosts[host] = -1
        self.free = deque(h for h in self.free if h != host)
        for number, job in self.jobs.items():
            # Scans whose results were on the host are repeated before the stage that needs them.
            lost = job.done_on.pop(host, 0)
            if lost:
                self.wait(number, 0, lost)
            self.outcome.repeated += lost
        self.at(self.constants.repair_seconds, "back", host, host, came_up + 1, 0)

    def on_back(self, host: int, _host: int, life: int, _stage: int) -> None:
        self.hosts[host] = life
        self.free.extend([host] * self.fleet.cores_a_host)
        self.fail_later("host", self.constants.host_mtbf, host)

    def on_driver(self, number: int, _host: int, _life: int, _stage: int) -> None:
        job = self.jobs.get(number)
        if job is None:
            return
        self.outcome.driver_failures += 1
        done = sum(count for count, _ in self.stages[1 : job.stage]) + sum(job.done_on.values())
        self.outcome.repeated += done
        self.jobs[number] = Job(life=job.life + 1)
        self.wait(number, 0, self.stages[0][0])
        self.fail_later("driver", self.constants.driver_mtbf, number)


FLEETS = [
    Fleet("1 TB, one broker", 1, 1e12, 2, 8, 1, 1e9),
    Fleet("100 TB, 100 brokers", 100, 1e12, 50, 8, 20, 1e9),
    Fleet("10 PB, 1,000 brokers", 1000, 1e13, 500, 8, 250, 1e9, grain=16),
]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--record-bytes", type=int, default=1024)
    arguments.add_argument("--verify-rate", type=float, default=Constants.verify_rate)
    arguments.add_argument("--rebuild-rate", type=float, default=Constants.rebuild_rate)
    options = arguments.parse_args()
    rates = {"verify_rate": options.verify_rate, "rebuild_rate": options.rebuild_rate}
    cases = [
        Constants(**rates, host_mtbf=0, driver_mtbf=0),
        Constants(**rates),
        Constants(**rates, host_mtbf=12 * HOUR, driver_mtbf=10 * 24 * HOUR),
    ]
    print("| fleet | verb | tasks | nothing fails | usual failures | hosts that live 12 h |")
    print("|---|---|---|---|---|---|")
    for fleet in FLEETS:
        fleet = replace(fleet, record_bytes=options.record_bytes)
        for verb in ("verify", "rebuild"):
            outcomes = [Simulation(fleet, case, verb, options.seed).run() for case in cases]
            told = " | ".join(tell(outcome) for outcome in outcomes)
            print(f"| {fleet.name} | {verb} | {outcomes[0].tasks:,} | {told} |", flush=True)


def tell(outcome: Outcome) -> str:
    time = duration(outcome.seconds)
    lost = outcome.host_failures + outcome.driver_failures
    if not lost:
        return time
    share = outcome.repeated / outcome.tasks
    return f"{time} ({lost} lost, {share:.1%} run again)"


def duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


if __name__ == "__main__":
    main()
