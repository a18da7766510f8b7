"""The states of a version on disk, each with its control: what the engine alone makes of it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.golden_data import copy_tree
from tests.interop.engine import Engine
from tests.interop.recovery import surgery
from tests.interop.recovery.bases import Base, Bases
from tests.interop.recovery.judgement import Checked, check
from tests.interop.recovery.states import STATES, State
from tests.interop.recovery.visits import Visit, Visited, values_at, visit


class Control(NamedTuple):
    """What the engine alone makes of a store. When it does not start on it (``is_refused``), this
    is the sound base instead."""

    checked: Checked
    is_refused: bool

    @property
    def visited(self) -> Visited:
        return self.checked.visited


@dataclass
class Ground:
    """A state: its files, and what the engine alone makes of them. ``crashed`` is what it makes of
    them when it is killed after its start, and started again."""

    state: State
    base: Base
    root: Path
    control: Control
    crashed: Control


class Grounds:
    """The states of a version, made when they are first asked for."""

    def __init__(
        self, version: str, seed: str, directory: Path, start_engine: Callable[[], Engine]
    ) -> None:
        self._version = version
        self._seed = seed
        self._start_engine = start_engine
        self._bases = Bases(version, seed, directory / "bases")
        self._directory = directory / "states"
        self._directory.mkdir(parents=True)
        self._made: dict[str, Ground] = {}

    def __getitem__(self, state: str) -> Ground:
        return self._made[state]

    def need(self, names: Sequence[str]) -> None:
        """Makes the states of these names that are not there yet."""
        new = [STATES[name] for name in dict.fromkeys(names) if name not in self._made]
        if not new:
            return
        self._bases.need(self._start_engine(), [state.family for state in new])
        roots = [self._make(state) for state in new]
        self._settle(new, roots)
        alone = [self._alone(state, root) for state, root in zip(new, roots, strict=True)]
        controls = self._controls(alone)
        crashed = self._controls([self._killed(one) for one in alone])
        for state, root, one, other in zip(new, roots, controls, crashed, strict=True):
            if (root / "abort").exists():
                other = one
            base = self._bases[state.family]
            self._made[state.name] = Ground(state, base, root, one, other)
        for visited in alone:
            shutil.rmtree(visited.root)

    def _make(self, state: State) -> Path:
        base = self._bases[state.family]
        root = copy_tree(base.root, self._directory / state.name)
        state.make(root, base, self._chance(state.name))
        return root

    def _settle(self, states: list[State], roots: list[Path]) -> None:
        """Has the engine start and stop once on states that are made from what it then leaves."""
        settling = [(s, root) for s, root in zip(states, roots, strict=True) if s.settles]
        visits = [
            Visit(root, self._bases[state.family].values, expires=state.expires)
            for state, root in settling
        ]
        for one in visit(self._start_engine(), visits) if visits else []:
            assert one.is_sound, (one.why, one.error)
        for state, root in settling:
            if state.then is not None:
                state.then(root, self._bases[state.family], self._chance(state.name, "then"))

    def _chance(self, *names: str) -> random.Random:
        return random.Random(" ".join((self._seed, *names)))

    # --- the engine alone ----------------------------------------------------------------

    def _alone(self, state: State, root: Path) -> Visit:
        base = self._bases[state.family]
        copy = copy_tree(root, self._directory / f"{state.name}.alone")
        look = [row["physicalOffset"] for row in base.records]
        return Visit(copy, base.values, look=look, ask=base.said.hits)

    def _killed(self, one: Visit) -> Visit:
        """A further visit to the store, after the engine's process was killed; all that it had
        written is there."""
        surgery.write_abort(one.root, self._version)
        return one

    def _controls(self, visits: list[Visit]) -> list[Control]:
        controls = []
        for one, said in zip(visits, visit(self._start_engine(), visits), strict=True):
            if said.is_sound:
                checked = check(one.root, values_at(one.root, one.values), said)
                controls.append(Control(checked, False))
            else:
                base = next(base for base in self._bases if base.values is one.values)
                controls.append(Control(Checked(base.said), True))
        return controls
