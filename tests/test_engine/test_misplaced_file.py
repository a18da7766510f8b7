"""A file of the log under the name of another one: an operator's slip, and no crash. Nothing is
written to such a store, whose messages are all there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.errors import DamagedStore
from rmqctl.operations.doctor.simulatestart import simulate_start
from rmqctl.operations.doctor.startrows import next_words, verdict
from rmqctl.operations.verify import Finding, verify
from rmqctl.operations.verify.findings import MISPLACED
from tests.golden_data import tree_content
from tests.test_safety.support import Clock, fill_files, message, small_config

CONFIG = small_config(log=4096)
FILES = 4
#: Files that have each other's names, and which of them stands where the log goes on.
SWAPS = {"the last two": (2, 3), "last and first": (3, 0)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    fill_files(root, CONFIG, FILES, more=3)
    assert len(log_files(root)) == FILES
    return root


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def content(root: Path) -> object:
    return {name: data for name, data in tree_content(root).items() if name != "lock"}


def refuses(root: Path, named: int) -> None:
    refuses_saying(root, f"is the one of offset {named},")


def refuses_saying(root: Path, words: str) -> None:
    before = content(root)
    with pytest.raises(DamagedStore, match=words):
        MessageStore(root, CONFIG, writable=True)
    assert content(root) == before


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("swapped", SWAPS.values(), ids=SWAPS)
def test_files_with_each_others_names(
    root: Path, swapped: tuple[int, int], is_killed: bool
) -> None:
    files = log_files(root)
    one, other = (files[number] for number in swapped)
    if is_killed:
        (root / "abort").touch()
    sound = content(root)
    with MessageStore(root, CONFIG) as store:
        written = [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]
    swap(one, other)
    refuses(root, int(other.name))
    swap(one, other)
    assert content(root) == sound
    with MessageStore(root, CONFIG, writable=True, clock=Clock()) as store:
        assert store.put_message(message(len(written))).is_ok
        records = [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]
    assert len(records) == len(written) + 1


def test_a_log_whose_only_file_has_the_name_of_another(root: Path) -> None:
    first, *others = log_files(root)
    for path in others[:-1]:
        path.unlink()
    others[-1].rename(first)
    refuses(root, int(others[-1].name))


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("name", ["{0}", "{0:020d}.bak"])
def test_a_last_file_that_has_no_name_of_one(root: Path, name: str, is_killed: bool) -> None:
    """Its messages would lose their units, and their places to what is put next."""
    last = log_files(root)[-1]
    renamed = last.rename(last.with_name(name.format(int(last.name))))
    if is_killed:
        (root / "abort").touch()
    words = f"the file {renamed.name} .* give it its name, {last.name}"
    refuses_saying(root, words)
    last.write_bytes(bytes(renamed.stat().st_size))
    refuses_saying(root, words)  # A broker has the next file ready.
    last.unlink()
    if name == "{0}":  # Of which a broker makes the same number; the other one is none.
        assert next_words(simulate_start(root, CONFIG)) == ("verify",)


@pytest.mark.parametrize(
    ("swapped", "is_cut"),
    # A start reads files as they follow each other, and asks no record for its place.
    [*((swapped, True) for swapped in SWAPS.values()), ((1, 2), False)],
    ids=[*SWAPS, "two in the middle"],
)
def test_verify_and_simulate_start_name_the_files(
    root: Path, swapped: tuple[int, int], is_cut: bool
) -> None:
    """Nothing is lost, and nobody says so."""
    one, other = (log_files(root)[number] for number in swapped)
    swap(one, other)
    found = [row for row in verify(root, CONFIG) if isinstance(row, Finding)]
    told = {row.path: (row.expected, row.found) for row in found if row.advice == MISPLACED}
    assert told.keys() == {f"commitlog/{path.name}" for path in (one, other)}
    for path, another in ((one, other), (other, one)):
        expected, named = told[f"commitlog/{path.name}"]
        assert expected == str(int(path.name))
        assert (named or "").split()[0] == str(int(another.name))
    codes = {row.code for row in found if row.structure == "commitlog"}
    assert codes == {"physical-offset-mismatch"}
    done = simulate_start(root, CONFIG)
    assert next_words(done) == ("verify",) and (done.is_harmless or is_cut)
    misplaced = {step.where: step.why for step in done.steps if step.what == "misplaced-file"}
    assert misplaced.keys() == told.keys()
    for place, why in misplaced.items():
        assert f"of offset {(told[place][1] or '').split()[0]}," in why
    assert "have wrong names" in verdict(done) or not done.starts
    swap(one, other)
    assert not [row for row in verify(root, CONFIG) if isinstance(row, Finding)]
    done = simulate_start(root, CONFIG)
    assert next_words(done) is None and "names" not in verdict(done)
