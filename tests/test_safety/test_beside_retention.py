"""Commands while a broker's retention deletes the oldest files: at each moment in turn."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.backup import create as creating
from rmqctl.operations.backup.create import Wanted, create
from rmqctl.operations.backup.restore import plan_restore, restore
from tests.retention import Retention, each_moment, told
from tests.test_cli.conftest import Cli, cli
from tests.test_safety.support import Clock, assert_clean, broker_conf, message, small_config

__all__ = ["cli"]  # A fixture of another directory.

pytestmark = pytest.mark.slow

CONFIG = small_config(log=4096, queue=200, slots=20, items=60)
EXTENDED = replace(CONFIG, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=400)
#: Log files that go, of 17.
GOING = 8


def put(root: Path, config: MessageStoreConfig) -> Path:
    with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
        store.put_messages([message(number) for number in range(300)], flush=False)
    return root


def some_moments(chance: random.Random, is_deep: bool, step: int) -> Iterator[int]:
    return count(1) if is_deep else count(chance.randrange(1, step + 1), step)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("config", [CONFIG, EXTENDED], ids=["plain", "extended"])
def test_a_backup_is_a_store_that_a_broker_could_have(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chance: random.Random,
    is_deep: bool,
    config: MessageStoreConfig,
    at_once: bool,
) -> None:
    """Each of its messages has its units and keys. The next backup on this one, too."""
    store = put(tmp_path / "store", config)
    monkeypatch.setattr(creating, "is_locked", lambda root: True)
    moments = some_moments(chance, is_deep, 15)
    begins = set()
    for root, beside in each_moment(
        store, config, GOING, tmp_path / "copy", moments, at_once=at_once
    ):
        first, second, new = (tmp_path / f"{name}-{beside.moment}" for name in ("a", "b", "new"))
        with beside:
            made = create(Wanted(root, config, str(first)))
        head = made.manifest.head
        begins.add(head.min_physical_offset)
        beside.go_on(None)
        create(Wanted(root, config, str(second), str(first)))
        for number, backups in enumerate(((first,), (first, second))):
            output = new / str(number)
            restore(plan_restore([str(one) for one in backups], output))
            assert_clean(output, config)
            WritableStore(output, config).close()
            with MessageStore(output, config) as opened:
                assert opened.max_offset == head.physical_offset
                assert number or opened.min_offset == head.min_physical_offset
            assert_clean(output, config)
    assert len(begins) > 1


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("config", [CONFIG, EXTENDED], ids=["plain", "extended"])
def test_verify_tells_no_error(
    tmp_path: Path,
    chance: random.Random,
    is_deep: bool,
    config: MessageStoreConfig,
    at_once: bool,
) -> None:
    store = put(tmp_path / "store", config)
    moments = some_moments(chance, is_deep, 4)
    for root, beside in each_moment(
        store, config, GOING, tmp_path / "copy", moments, at_once=at_once
    ):
        with beside:
            assert_clean(root, config)


#: What must be the same as of the store before, or of what is left of it. The rest goes on: what it
#: prints may have begun with files that then went.
_ONE_TIME = {
    "topics": ("topics",),
    "groups": ("groups",),
    "find": ("find", "k3-0"),
    "export": ("export", "--format", "store", "--output", "OUT"),
    "rebuild": ("rebuild", "all", "--output", "OUT"),
    "salvage": ("salvage", "--output", "OUT"),
    "clean": ("clean", "--dry-run", "--now", "2035-01-01T04:30", "--disk-ratio", "10"),
}
_GOING_ON = {
    "walk": ("walk", "commitlog"),
    "walk-since": ("walk", "commitlog", "--since", "2020-01-01"),
    "stats": ("stats",),
    "du": ("du",),
    "simulate-start": ("simulate-start",),
    "find-scan": ("find", "x", "--scan"),
    "index": ("index", "query", "--topic", "topic0", "--key", "k3-0"),
    "pull": ("pull", "--topic", "topic0", "--queue-id", "0", "--offset", "0", "--limit", "100"),
    "queues": ("queues",),
    "diff": ("diff", "OTHER"),
    "export-rows": ("export", "--format", "ndjson", "--output", "OUT"),
}


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("name", [*_ONE_TIME, *_GOING_ON])
def test_a_command_that_reads_ends_well(
    tmp_path: Path, cli: Cli, chance: random.Random, is_deep: bool, name: str, at_once: bool
) -> None:
    store = put(tmp_path / "store", CONFIG)
    conf, out = tmp_path / "broker.conf", tmp_path / "out"
    conf.write_text(broker_conf(CONFIG))
    places = {"OUT": str(out), "OTHER": str(store)}

    def run(root: Path) -> tuple[int, str]:
        shutil.rmtree(out, ignore_errors=True)
        line = [places.get(word, word) for word in (_ONE_TIME | _GOING_ON)[name]]
        ways = ["--broker-conf", conf] + ["--format", "ndjson"] * ("--format" not in line)
        done = cli(*line, *ways, "--store", root)
        assert done.code < 2 and "error" not in done.err, done.err
        assert not out.with_name("out.rmqctl-new").exists()
        if name in ("export", "salvage"):
            assert_clean(out, CONFIG)
        return done.code, done.out

    right = set()
    if name in _ONE_TIME:
        left = tmp_path / "copy"
        shutil.copytree(store, left)
        right.add(run(left))
        Retention(left, CONFIG, GOING, 1, at_once=True).go_on(None)
        right.add(run(left))
    moments = some_moments(chance, is_deep, 7)
    for root, beside in each_moment(
        store, CONFIG, GOING, tmp_path / "copy", moments, at_once=at_once
    ):
        with beside:
            found = run(root)
        assert not right or found in right


def test_what_goes_before_it_is_read_is_told(tmp_path: Path, cli: Cli) -> None:
    store = put(tmp_path / "store", CONFIG)
    conf = tmp_path / "broker.conf"
    conf.write_text(broker_conf(CONFIG))
    options = ("--store", store, "--broker-conf", conf, "--format", "ndjson")
    first = store / "commitlog" / f"{0:020d}"
    with _gone_before_it_is_opened(first):
        done = cli("walk", "commitlog", *options)
    assert (done.code, done.rows[0]["physical_offset"]) == (0, 4096)
    told = "what lay before 4096 was deleted before it was read (retention). Going on there."
    assert done.err == f"note: {told}\n"
    with _gone_before_it_is_opened(store / "consumequeue/topic0/0" / f"{0:020d}"):
        done = cli("topics", *options)
    again = "consumequeue/topic0/0/00000000000000000000 was deleted before it was read (retention)."
    assert done.code == 0 and f"note: {store}/{again} Begun anew.\n" in done.err
    gone = store / "commitlog" / f"{8192:020d}"
    with _gone_before_it_is_opened(gone):  # In the middle: that is no retention, but damage.
        done = cli("walk", "commitlog", *options)
    assert done.code == 1 and f"{gone} was deleted before it was read" in done.err
    damages = [row for row in done.rows if row["type"] == "damage"]
    assert [(row["reason"], row["physical_offset"]) for row in damages] == [
        ("commitlog-file-missing", 8192)
    ]


def test_input_that_is_read_once_is_not_read_again(tmp_path: Path, cli: Cli) -> None:
    store = put(tmp_path / "store", CONFIG)
    conf, keys = tmp_path / "broker.conf", tmp_path / "keys"
    conf.write_text(broker_conf(CONFIG))
    os.mkfifo(keys)
    oldest = min((store / "index").iterdir())
    writer = threading.Thread(target=keys.write_text, args=("k3-0\n",))
    writer.start()
    with _gone_before_it_is_opened(oldest):
        line = ("index", "query", "--topic", "topic0", "--keys-from", keys, "--store", store)
        done = cli(*line, "--broker-conf", conf, "--format", "ndjson")
    writer.join()
    assert done.code == 5 and "Run the command again." in done.err


@contextmanager
def _gone_before_it_is_opened(path: Path) -> Iterator[None]:
    def look(opened: str) -> None:
        if opened == str(path) and path.exists():
            path.unlink()

    with told(look):
        yield
