"""A whole file of the log under a name that is not its own: what its first records say is asked,
and nobody calls its messages lost, or moves it away."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from formats import layouts
from rmqctl.cli.advice import command_of
from rmqctl.engine.log.misnamed import misnamed_files
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.errors import DamagedStore
from rmqctl.operations.doctor.lint import Summary, lint
from rmqctl.operations.doctor.simulatestart import simulate_start
from rmqctl.operations.doctor.startrows import next_words
from rmqctl.operations.mend.salvage import Salvage, plan_salvage
from rmqctl.operations.repair.plan import make_plan
from rmqctl.operations.verify import Finding, verify
from rmqctl.operations.verify.findings import MISPLACED, NAMED_OTHERWISE
from tests.golden_data import tree_content
from tests.test_safety.support import fill_files, small_config

SIZE = 4096
CONFIG = small_config(log=SIZE)
#: Number of the file, and the name that somebody gives it.
RENAMED = {
    "digits are missing": (3, str(3 * SIZE)),
    "a word behind": (1, f"{SIZE:020d}.old"),
    "a wrong digit": (1, f"{SIZE + 1:020d}"),
    "of the middle, at the end": (1, f"{9 * SIZE:020d}"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    fill_files(root, CONFIG, 4, more=3)
    return root


def renamed(root: Path, case: str) -> tuple[Path, Path]:
    number, name = RENAMED[case]
    own = root / "commitlog" / f"{number * SIZE:020d}"
    return own, own.rename(own.with_name(name))


def found_by(root: Path) -> list[list[Finding]]:
    """What verify, and lint, find in the log's directory."""
    everything = ([*verify(root, CONFIG)], [*lint(root, CONFIG, Summary())])
    rows = [[row for row in one if isinstance(row, Finding)] for one in everything]
    return [[row for row in one if row.structure in ("commitlog", "directory")] for one in rows]


@pytest.mark.parametrize("case", RENAMED)
def test_it_is_found_by_its_first_record(root: Path, case: str) -> None:
    own, path = renamed(root, case)
    assert misnamed_files([root / "commitlog"], SIZE) == {int(own.name): path}
    path.rename(own)
    assert misnamed_files([root / "commitlog"], SIZE) == {}


@pytest.mark.parametrize("case", [case for case in RENAMED if not case.startswith("of the")])
def test_verify_and_lint_say_its_name_and_advise_no_command(root: Path, case: str) -> None:
    own, path = renamed(root, case)
    for rows in found_by(root):
        foreign = next(row for row in rows if row.code == "foreign-file")
        assert (foreign.path, foreign.expected) == (f"commitlog/{path.name}", own.name)
        assert foreign.advice == MISPLACED
        assert {row.advice for row in rows} <= {MISPLACED, NAMED_OTHERWISE}
        assert [command_of(row) for row in rows] == [None] * len(rows)


@pytest.mark.parametrize("case", RENAMED)
def test_no_plan_moves_it_and_salvage_names_it(root: Path, case: str) -> None:
    own, path = renamed(root, case)
    before = tree_content(root)
    plan = make_plan(root, CONFIG)
    assert plan.steps == ()
    with closing(plan_salvage(Salvage(root, CONFIG, root.with_name("new")))) as salvage:
        assert salvage.misnamed == {int(own.name): path}
    assert tree_content(root) == before


@pytest.mark.parametrize("number", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["{:020d}.bak", "{}"])
@pytest.mark.parametrize("abort", [False, True])
def test_nothing_is_put_behind_it(root: Path, number: int, name: str, abort: bool) -> None:
    own = root / "commitlog" / f"{number * SIZE:020d}"
    path = own.rename(own.with_name(name.format(number * SIZE)))
    if abort:
        (root / "abort").touch()
    before = tree_content(root) | {"lock": b""}
    with pytest.raises(DamagedStore, match=rf"file {path.name} .*{number * SIZE}"):
        MessageStore(root, CONFIG, writable=True)
    assert tree_content(root) | {"lock": b""} == before
    done = simulate_start(root, CONFIG)
    assert next_words(done) == ("verify",)
    named = [step.where for step in done.steps if step.what == "misplaced-file"]
    assert named == [f"commitlog/{path.name}"] * done.starts
    path.rename(own)
    with MessageStore(root, CONFIG, writable=True) as store:
        assert store.put_message(MessageExtBrokerInner("T", b"x")).is_ok


def test_a_copy_is_nothing_to_refuse_for(root: Path) -> None:
    own = root / "commitlog" / f"{SIZE:020d}"
    own.with_name(f"{own.name}.bak").write_bytes(own.read_bytes())
    with MessageStore(root, CONFIG, writable=True) as store:
        assert store.put_message(MessageExtBrokerInner("T", b"x")).is_ok


@pytest.mark.parametrize("bit", [14, 40])
def test_a_flipped_bit_in_the_first_records_place_is_damage(root: Path, bit: int) -> None:
    """Who gave the file the name that one record says would lose the others."""
    with (root / "commitlog" / f"{SIZE:020d}").open("r+b") as file:
        file.seek(layouts.RECORD_PHYSICAL_OFFSET.offset)
        file.write((SIZE ^ 1 << bit).to_bytes(8, "big"))
    for rows in found_by(root):
        assert not {MISPLACED, NAMED_OTHERWISE} & {row.advice for row in rows}
    with closing(plan_salvage(Salvage(root, CONFIG, root.with_name("new")))) as salvage:
        assert [one.restored_bytes > 0 for one in salvage.gaps] == [True]
        assert salvage.misnamed == {}


def test_a_copy_beside_its_original_is_a_stranger(root: Path) -> None:
    own = root / "commitlog" / f"{SIZE:020d}"
    copy = own.with_name(f"{own.name}.bak")
    copy.write_bytes(own.read_bytes())
    for rows in found_by(root):
        assert [(row.code, row.expected) for row in rows] == [("foreign-file", None)]
    (step,) = make_plan(root, CONFIG).steps
    assert (step.action, step.path) == ("quarantine", f"commitlog/{copy.name}")
