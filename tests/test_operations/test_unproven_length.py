"""A log of one file whose length nothing confirms: it may have been cut, and then the queues alone
know what is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import FileLengthUnproven
from rmqctl.operations.doctor.lint import Limits, Summary, lint
from rmqctl.operations.doctor.simulatestart import simulate_start
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place, rebuild_to
from tests.golden_data import tree_content

CONFIG = MessageStoreConfig()
SAID = replace(CONFIG, explicit=frozenset(("mapped_file_size_commit_log",)))


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """Some of its messages are lost."""
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        for _ in range(40):
            assert store.put_message(MessageExtBrokerInner("T", b"x" * 100)).is_ok
    (log,) = (root / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.truncate(5000)
    return root


@pytest.mark.parametrize(
    "work",
    [
        lambda root: simulate_start(root, CONFIG),
        lambda root: rebuild_in_place(plan_rebuild(root, CONFIG, "all")),
    ],
)
def test_nobody_says_that_it_is_whole(cut: Path, work: Callable[[Path], object]) -> None:
    before = tree_content(cut)
    with pytest.raises(FileLengthUnproven, match="may have been cut"):
        work(cut)
    assert tree_content(cut) | {"lock": b""} == before | {"lock": b""}


def test_lint_names_it(cut: Path) -> None:
    found = list(lint(cut, CONFIG, Summary(), Limits(None, None)))
    assert "file-length-unproven" in {one.code for one in found}


def test_with_the_configuration_it_is_known(cut: Path) -> None:
    codes = {one.code for one in lint(cut, SAID, Summary(), Limits(None, None))}
    assert "file-length-unproven" not in codes and codes
    assert not simulate_start(cut, SAID).outcome.starts


def test_aside_it_is_rebuilt(cut: Path, tmp_path: Path) -> None:
    assert rebuild_to(plan_rebuild(cut, CONFIG, "all"), tmp_path / "new").records > 0
