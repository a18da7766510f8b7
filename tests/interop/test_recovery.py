"""The recovery matrix: in whatever state a store is, nothing that the engine alone would have kept
is lost when rmqctl has worked on it.

Every combination of a state, an action and an ending (by itself, SIGKILL, a full disk) is a test:
``-k 4.9.3-abort-old-checkpoint-put`` runs one. A usual run takes some of them, with a fixed seed.
``-m nightly`` takes many others, with the seed in RMQCTL_TEST_SEED; RMQCTL_NIGHTLY says how many,
and with ``-k`` it takes all that match.
"""

from __future__ import annotations

import os
import random
import traceback
from collections.abc import Iterator

import pytest

from tests import seeds
from tests.interop.engine import VERSIONS, Engine
from tests.interop.recovery.actions import ACTIONS, ENDINGS
from tests.interop.recovery.matrix import Combination, Lab, all_combinations
from tests.interop.recovery.states import STATES

COUNT = 160
NIGHTLY_COUNT = int(os.environ.get("RMQCTL_NIGHTLY", "900"))
#: How many stores the engine visits at once.
CHUNK = 12
#: After how many visits an engine gets a new process, for each store leaves some threads in it.
OFTEN = 100


def chosen() -> list[Combination]:
    """The combinations of a usual run: each state in each version, with every action and ending in
    turn; half of the actions end by themselves."""
    chance = random.Random(seeds.FIXED_SEED)
    found = []
    for version in VERSIONS:
        deeds = [(action, ending) for action in ACTIONS for ending in ("", *ENDINGS)]
        chance.shuffle(deeds)
        names = [state.name for state in STATES.values() if version in state.versions]
        chance.shuffle(names)
        for number in range(COUNT // len(VERSIONS)):
            action, ending = deeds[number % len(deeds)]
            found.append(Combination(version, names[number % len(names)], action, ending))
    return sorted(set(found))


def of_the_night(config: pytest.Config) -> list[Combination]:
    others = sorted(set(all_combinations()) - set(chosen()))
    if config.option.keyword or len(others) <= NIGHTLY_COUNT:
        return others
    return sorted(random.Random(seeds.seed()).sample(others, NIGHTLY_COUNT))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "combination" not in metafunc.fixturenames:
        return
    marked: list[tuple[Combination, list[pytest.MarkDecorator]]] = [(one, []) for one in chosen()]
    if seeds.asks_for_nightly(metafunc.config.option.markexpr):
        # These are thousands, which would slow the collection of all other runs.
        marked += [(one, [pytest.mark.nightly]) for one in of_the_night(metafunc.config)]
    params = [
        pytest.param(
            one,
            id=f"{one.version}-{one.id}",
            marks=[pytest.mark.xdist_group(f"interop-{one.version}"), *marks],
        )
        for one, marks in marked
    ]
    metafunc.parametrize("combination", params)


class Judge:
    """Says what is wrong with a combination. It tries the next combinations at the same time, for
    the engine visits many stores in the time of one."""

    def __init__(self, items: list[pytest.Item], directories: pytest.TempPathFactory) -> None:
        self._directories = directories
        self._known: dict[Combination, str] = {}
        self._labs: dict[tuple[str, str], Lab] = {}
        self._engines: dict[str, Engine] = {}
        self._asked = 0
        #: The combinations by version and seed, in the order of the run.
        self._waiting: dict[tuple[str, str], list[Combination]] = {}
        for item in items:
            callspec = getattr(item, "callspec", None)
            combination = callspec and callspec.params.get("combination")
            if combination:
                seed = seeds.seed() if item.get_closest_marker("nightly") else seeds.FIXED_SEED
                self._waiting.setdefault((combination.version, seed), []).append(combination)

    def verdict(self, combination: Combination) -> str:
        if combination not in self._known:
            ((key, alike),) = [i for i in self._waiting.items() if combination in i[1]]
            first = alike.index(combination)
            chunk = alike[first : first + CHUNK]
            try:
                self._known |= self._lab(*key).judge(chunk)
            except Exception:
                # The failure counts for all of them: each would fail alike, after the same time.
                self._known |= dict.fromkeys(chunk, traceback.format_exc())
        return self._known[combination]

    def _lab(self, version: str, seed: str) -> Lab:
        def engine() -> Engine:
            running = self._engines.get(version)
            self._asked += 1
            if running is not None and self._asked % OFTEN == 0:
                running.close()
            if running is None or not running.is_alive:
                log = self._directories.mktemp(f"recovery-engine-{version}") / "log"
                self._engines[version] = Engine(version, log)
            return self._engines[version]

        if (version, seed) not in self._labs:
            directory = self._directories.mktemp(f"recovery-{version}")
            self._labs[version, seed] = Lab(version, seed, directory, engine)
        return self._labs[version, seed]

    def close(self) -> None:
        for lab in self._labs.values():
            lab.close()
        for engine in self._engines.values():
            engine.close()


@pytest.fixture(scope="session")
def judge(
    request: pytest.FixtureRequest, built: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Judge]:
    made = Judge(request.session.items, tmp_path_factory)
    yield made
    made.close()


def test_nothing_is_lost_that_the_engine_keeps(
    combination: Combination, judge: Judge, request: pytest.FixtureRequest
) -> None:
    wrong = judge.verdict(combination)
    if wrong:
        at_night = request.node.get_closest_marker("nightly") is not None
        again = f"-k {combination.version}-{combination.id}"
        if at_night:
            again = f"-m nightly {again}, with RMQCTL_TEST_SEED={seeds.seed()}"
        path = request.node.nodeid.partition("::")[0]
        pytest.fail(f"{wrong}\nAgain: pytest -n 0 {path} {again}", pytrace=False)
