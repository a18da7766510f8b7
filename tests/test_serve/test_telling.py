"""What a server tells its operator, and how often."""

from __future__ import annotations

from pathlib import Path

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.serve.telling import Seldom, without_places


def test_a_cause_that_goes_on_is_told_once() -> None:
    told: list[str] = []
    now = 0
    seldom = Seldom(told.append, lambda: now)
    for now in (0, 59_999, 119_998, 179_998, 200_000):
        seldom.met("disk", f"full at {now}")
    seldom.met("another", "of another cause")
    # A minute without it is one in which it did not go on.
    assert told == ["full at 0", "full at 179998", "of another cause"]


def test_only_so_many_causes_are_remembered() -> None:
    told: list[str] = []
    seldom = Seldom(told.append, lambda: 0)
    for number in range(1001):
        seldom.met(str(number), str(number))
    for number in (1000, 0):
        seldom.met(str(number), "again")
    assert told[1001:] == ["again"]


def test_what_is_over_is_told_again() -> None:
    told: list[str] = []
    seldom = Seldom(told.append, lambda: 0)
    for text in ("a", "a", "b"):
        seldom.going_on("file", text)
    seldom.over("file")
    seldom.going_on("file", "b")
    seldom.over()
    seldom.going_on("file", "b")
    assert told == ["a", "b", "b", "b"]


def test_clients_do_not_learn_where_a_store_and_its_log_are(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "disk 2/log"
    log.mkdir(parents=True)
    config = MessageStoreConfig(store_path_commit_log=f"{log},{root / 'commitlog'}")
    MessageStore(root, config, writable=True, create=True).close()
    said = f"cannot write {{}}: No space left on device. Nothing else of {root} was changed."
    with MessageStore(root, config) as store:
        for place, name in ((root / "consumequeue/T/0", "consumequeue/T/0"),
            (root / "commitlog/000", "commitlog/000"), (log / "000", "commitlog/000"),
            (log, "commitlog"),
        ):  # fmt: skip
            told = without_places(said.format(place), store)
            assert told == (
                f"cannot write {name}: No space left on device. Nothing else of the store was "
                "changed."
            )
