"""States x actions x endings: rmqctl acts on a copy of a state, and then the real engine shows
whether the store is still good."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.golden_data import copy_tree
from tests.interop.engine import VERSIONS, Engine, Row
from tests.interop.recovery import surgery
from tests.interop.recovery.actions import (
    ACTIONS,
    ENDINGS,
    EXPIRED,
    Scene,
    Work,
    acknowledged,
)
from tests.interop.recovery.grounds import Control, Ground, Grounds
from tests.interop.recovery.judgement import (
    Case,
    changed_files,
    check,
    differences,
)
from tests.interop.recovery.runner import PARTS, Fault, Outcome, Runner
from tests.interop.recovery.states import STATES
from tests.interop.recovery.visits import Visit, Visited, values_at, visit
from tests.interop.stores import conf_text

#: How many differences are shown of each combination.
SHOWN = 3
#: Exit codes with which a command refuses: it says why, and changes nothing.
REFUSALS = (3, 4, 5, 6)


class Combination(NamedTuple):
    """One cell of the matrix."""

    version: str
    state: str
    action: str
    ending: str

    @property
    def id(self) -> str:
        ending = f"-{self.ending}" if self.ending else ""
        return f"{self.state}-{self.action}{ending}"


def all_combinations() -> list[Combination]:
    return [
        Combination(version, state.name, action, ending)
        for version in VERSIONS
        for state in STATES.values()
        if version in state.versions
        for action in ACTIONS
        for ending in ENDINGS
    ]


@dataclass
class Run:
    """What rmqctl did for a combination, and with which command line."""

    combination: Combination
    root: Path
    values: Row
    work: Work
    outcome: Outcome
    fault: Fault | None
    control: Control
    #: The files that the command changed though it did not do its work.
    changed: list[str] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        code = self.outcome.code
        return code in ACTIONS[self.combination.action].done or (
            code == 1 and self.work.may_decline
        )

    @property
    def acknowledged(self) -> list[tuple[Row, Row]]:
        return acknowledged(self.work, self.outcome.rows)


class Lab:
    """Tries combinations with the engine of one version."""

    def __init__(
        self, version: str, seed: str, directory: Path, start_engine: Callable[[], Engine]
    ) -> None:
        self.version = version
        self.seed = seed
        self._directory = directory
        self._start_engine = start_engine
        self._grounds = Grounds(version, seed, directory, start_engine)
        self._runner = Runner(directory / "runner")

    def close(self) -> None:
        self._runner.close()

    def judge(self, combinations: Sequence[Combination]) -> dict[Combination, str]:
        """What is wrong with each combination, in words; empty when nothing is."""
        verdicts = {}
        for run, visited in self.act(combinations):
            verdicts[run.combination] = self._told(run, self._verdict(run, visited))
            shutil.rmtree(run.root)
        return verdicts

    def act(self, combinations: Sequence[Combination]) -> list[tuple[Run, Visited]]:
        """What rmqctl did for each combination, and what the engine then said of the store."""
        self._grounds.need([one.state for one in combinations])
        runs = [self._run(one) for one in combinations]
        said = visit(self._start_engine(), [self._visit_of(run) for run in runs])
        return list(zip(runs, said, strict=True))

    # --- actions -------------------------------------------------------------------------

    def _run(self, combination: Combination) -> Run:
        ground = self._grounds[combination.state]
        base, chance = ground.base, random.Random(f"{self.seed} {combination.id}")
        root = self._directory / combination.id
        copy_tree(ground.root, root)
        scene = Scene(base, ground.state, ground.control.visited, root, chance)
        work = ACTIONS[combination.action].make(scene)
        fault = self._fault(combination, work, root, base.values, chance)
        outcome = self._runner.run(self._arguments(work, root, base.values), fault)
        # A command that was killed leaves ``abort``, as a killed engine does.
        crashes = (root / "abort").exists() and not (ground.root / "abort").exists()
        control = ground.crashed if crashes else ground.control
        run = Run(combination, root, base.values, work, outcome, fault, control)
        if not run.is_done:
            run.changed = changed_files(root, ground.root)
        return run

    def _arguments(self, work: Work, root: Path, values: Row) -> list[str]:
        conf = root.with_name(root.name + ".broker.conf")
        conf.write_text(conf_text(values_at(root, values)), "utf-8")
        here = ["--store", str(root), "--broker-conf", str(conf), "--format", "ndjson"]
        return [*work.arguments, *here]

    def _fault(
        self, combination: Combination, work: Work, root: Path, values: Row, chance: random.Random
    ) -> Fault | None:
        """A fault at a random place of the run. How many places there are is counted in a run on
        another copy of the store."""
        if not combination.ending:
            return None
        counted = root.with_name(root.name + ".counted")
        # Keeps the times of the files, by which they expire.
        subprocess.run(["cp", "-a", "--sparse=always", str(root), str(counted)], check=True)
        outcome = self._runner.run(self._arguments(work, counted, values), Fault("count"))
        shutil.rmtree(counted)
        if combination.ending == "full":
            return Fault("full", chance.randint(1, max(outcome.asks, 1)))
        return Fault("kill", chance.randint(1, max(outcome.changes, 1)), chance.choice([*PARTS]))

    def _visit_of(self, run: Run) -> Visit:
        """The engine's visit after the run, which asks for all that was there before and all that
        the run has acknowledged."""
        control = run.control.visited
        rows = [row for _, row in run.acknowledged]
        keys = {
            (row["topic"], key)
            for sent, row in run.acknowledged
            for key in (*sent["keys"].split(), sent["properties"]["UNIQ_KEY"])
        }
        return Visit(
            run.root,
            run.values,
            look=control.messages.keys() | {row["wrote_offset"] for row in rows},
            ask=control.hits.keys() | keys,
            pull={(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows},
        )

    # --- the verdict ---------------------------------------------------------------------

    def _verdict(self, run: Run, visited: Visited) -> list[str]:
        ground = self._grounds[run.combination.state]
        code, error = run.outcome.code, run.outcome.stderr.strip()
        if code in (2, 70) or (code < 0 and code != -signal.SIGKILL) or "Traceback" in error:
            return [f"exit code {code}: {error}"]
        if not run.combination.ending and not run.is_done:
            return self._refusal(run)
        rebuilds = run.combination.action == "rebuild" and run.is_done
        if run.control.is_refused and visited.why and not run.acknowledged and not rebuilds:
            return []
        case = Case(
            run.control.checked,
            ground.control.checked,
            check(run.root, values_at(run.root, run.values), visited),
            run.acknowledged,
            stores=run.work.stores if run.is_done else None,
            rebuilt=("queue", "index") if rebuilds else (),
            allowed_codes=self._engines_own(run),
            allowed_starts=self._starts(run, ground),
        )
        return differences(case)

    def _engines_own(self, run: Run) -> list[str]:
        """Codes of findings about what the engine itself leaves when it starts after a kill: the
        bytes of the append that was cut off; and, with 4.9.3, units of delayed messages without
        their time of delivery, for it loads its delay levels only after the recovery
        (``DefaultMessageStore#load``)."""
        if not run.combination.ending:
            return []
        if self.version == "4.9.3" and run.combination.state.startswith("light"):
            # Light queues have those units, too.
            return ["torn-tail", "unit-delivery-time-mismatch", "unit-mismatch"]
        return ["torn-tail", *["unit-delivery-time-mismatch"] * (self.version == "4.9.3")]

    def _refusal(self, run: Run) -> list[str]:
        """What is wrong about the refusal of a command."""
        code, found = run.outcome.code, []
        if run.changed:
            found.append(f"refused with exit code {code}, and changed {', '.join(run.changed[:5])}")
        # rmqctl may refuse a store on which the engine does not start either.
        if code not in REFUSALS or not run.control.is_refused:
            found.append(
                f"refused where the engine goes on: exit code {code}: {run.outcome.stderr.strip()}"
            )
        return found

    def _starts(self, run: Run, ground: Ground) -> tuple[int, ...]:
        """The physical offsets at which the log may begin after the run."""
        start = run.control.visited.log_range.start
        if run.combination.action != "clean":
            return (start,)
        names = [int(path.name) for path in surgery.log_files(ground.root)][: EXPIRED + 1]
        return (names[EXPIRED],) if run.is_done and not run.combination.ending else tuple(names)

    def _told(self, run: Run, found: list[str]) -> str:
        """A text with the first differences; empty when there are none."""
        if not found:
            return ""
        one = run.combination
        more = f"\n… and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        how = f", {run.fault}" if run.fault is not None else ""
        return (
            f"state {one.state}, action {one.action}, engine {one.version}, seed {self.seed}: "
            f"exit code {run.outcome.code}{how}\n- " + "\n- ".join(found[:SHOWN]) + more
        )
