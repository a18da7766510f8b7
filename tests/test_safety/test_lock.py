"""The store's lock: as a broker holds it, as we hold it, and what must not drop it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqctl.engine.files.lock import StoreLock, is_locked
from rmqctl.engine.files.unfinished import JOURNAL, REPAIR, RepairUnfinished
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.state.checkpoint import Checkpoint
from rmqctl.errors import CannotWrite, StoreInUse, SymbolicLinkRefused
from rmqctl.operations.change.clean import Rule, clean
from rmqctl.operations.doctor.checkpoint import store_checkpoint
from rmqctl.operations.look.info import info
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place, rebuild_to
from tests import processes
from tests.test_safety.support import (
    assert_clean,
    broker_conf,
    message,
    small_config,
    times,
    tree,
)

CONFIG = small_config()

# What Java's FileChannel.tryLock(0, 1, false) does; a broker keeps it while it runs.
BROKER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store(fast_path: Path) -> Path:
    root = fast_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as opened:
        opened.put_messages([message(number) for number in range(30)])
    (fast_path / "broker.conf").write_text(broker_conf(CONFIG))
    return root


@contextmanager
def broker(root: Path) -> Iterator[None]:
    """A process that holds the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", BROKER, str(root / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"locked\n"
    try:
        yield
    finally:
        process.communicate()


def can_lock(root: Path) -> bool:
    """Whether a broker could take the lock now."""
    try:
        result = subprocess.run(
            [sys.executable, "-c", BROKER, str(root / "lock")], input=b"", capture_output=True
        )
    except OSError:
        return False
    return result.returncode == 0


def command(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    conf = str(root.parent / "broker.conf")
    return processes.run("rmqctl", *arguments, "--store", str(root), "--broker-conf", conf)


def test_a_broker_keeps_every_writing_operation_out(store: Path) -> None:
    with broker(store):
        before, content = times(store), tree(store)
        assert is_locked(store)
        with pytest.raises(StoreInUse) as refused:
            MessageStore(store, CONFIG, writable=True)
        assert refused.value.exit_code == 4
        with pytest.raises(StoreInUse):
            MessageStore(store, CONFIG, writable=True, create=True)
        with pytest.raises(StoreInUse):
            rebuild_in_place(plan_rebuild(store, CONFIG, "all"))
        with pytest.raises(StoreInUse):
            StoreLock(store)
        assert times(store) == before
        assert tree(store) == content
    assert not is_locked(store)


@pytest.mark.parametrize(
    "arguments",
    [
        ("put", "--topic", "topic0", "--body", "x"),
        ("put", "--topic", "new", "--body", "x", "--create"),
        ("put", "--from", "-"),
        ("flush",),
        ("clean", "--yes"),
        ("group", "set-offset", "g", "--topic", "topic0", "--to", "end", "--new", "--yes"),
        ("rebuild", "queues", "--in-place", "--yes"),
        ("rebuild", "index", "--in-place", "--yes"),
        ("rebuild", "all", "--in-place", "--yes"),
        ("rebuild", "queues", "--topic", "topic0", "--in-place", "--yes"),
    ],
    ids=" ".join,
)
def test_every_writing_command_exits_4_beside_a_broker(
    store: Path, arguments: tuple[str, ...]
) -> None:
    with broker(store):
        before, content = times(store), tree(store)
        done = command(store, *arguments)
        assert done.returncode == 4, done.stderr
        assert "in use" in done.stderr
        assert done.stdout == ""
        assert times(store) == before
        assert tree(store) == content


@pytest.mark.parametrize(
    "arguments",
    [
        ("put", "--topic", "topic0", "--body", "x"),
        ("put", "--from", "-"),
        ("flush",),
        ("schedule", "deliver"),
        ("rebuild", "all", "--missing"),
        ("group", "set-offset", "g", "--topic", "topic0", "--to", "end", "--new"),
    ],
    ids=" ".join,
)
def test_a_dry_run_is_refused_beside_a_broker_as_the_run_would_be(
    store: Path, arguments: tuple[str, ...]
) -> None:
    """It took what a broker is just writing for damage, or for what a start has to mend."""
    with broker(store):
        done = command(store, *arguments, "--dry-run")
        assert done.returncode == 4, done.stderr
        assert "in use" in done.stderr
        assert done.stdout == ""
    assert command(store, *arguments, "--dry-run").returncode == 0


def test_a_dry_run_of_clean_plans_no_start_beside_a_broker(store: Path) -> None:
    (store / "abort").touch()
    with broker(store):
        done = command(store, "clean", "--dry-run")
        assert done.returncode == 0, done.stderr
        assert "recovery" not in done.stdout
    assert "recovery" in command(store, "clean", "--dry-run").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("info",),
        ("queues",),
        ("verify",),
        ("walk", "commitlog"),
        ("pull", "--topic", "topic0", "--queue-id", "0", "--offset", "0"),
        ("index", "query", "--topic", "topic0", "--key", "k3-0"),
        ("message", "0"),
        ("du",),
        ("stats",),
        ("clean", "--dry-run"),
        ("config", "check"),
        ("find", "k3-0"),
        ("find", "k3-0", "--scan"),
        ("topics",),
        ("groups",),
    ],
    ids=" ".join,
)
def test_reading_commands_work_beside_a_broker(store: Path, arguments: tuple[str, ...]) -> None:
    with broker(store):
        before = times(store)
        done = command(store, *arguments)
        assert done.returncode == 0, done.stderr
        assert times(store) == before


def test_diff_says_that_a_broker_writes_meanwhile(store: Path) -> None:
    other = shutil.copytree(store, store.with_name("other"))
    conf = str(store.parent / "broker.conf")
    with broker(store):
        done = processes.run("rmqctl", "diff", str(store), str(other), "--broker-conf", conf)
    assert done.returncode == 0
    assert done.stderr == (
        f"note: another process holds the lock of {store}: what it stores meanwhile may count as "
        "a difference.\n"
    )


def test_our_writer_keeps_a_broker_out(store: Path) -> None:
    with MessageStore(store, CONFIG, writable=True) as opened:
        assert not can_lock(store)
        with pytest.raises(StoreInUse):
            MessageStore(store, CONFIG, writable=True)
        assert not can_lock(store), "the refused second opening has dropped the lock"
        assert opened.put_message(message(31)).is_ok
    assert can_lock(store)


def test_reading_while_we_write_does_not_drop_the_lock(store: Path, fast_path: Path) -> None:
    """The kernel drops a POSIX lock when any descriptor of the file is closed."""
    with MessageStore(store, CONFIG, writable=True) as opened:
        assert not is_locked(store), "our own is no other process's"
        assert_clean(store, CONFIG)
        with MessageStore(store, CONFIG) as reader:
            assert info(reader)["locked"] is False
        rebuild_to(plan_rebuild(store, CONFIG, "all"), fast_path / "rebuilt")
        assert not can_lock(store)
        assert opened.put_message(message(31)).is_ok


def test_a_failed_opening_releases_the_lock(store: Path) -> None:
    log = store / "commitlog" / f"{65536:020d}"
    log.write_bytes(b"short")
    for _ in range(2):
        with pytest.raises(Exception, match="bytes"):
            MessageStore(store, CONFIG, writable=True)
        assert can_lock(store)


def test_a_close_that_fails_releases_the_lock(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = time.time_ns() // 10**6 + 1000
    opened = MessageStore(store, CONFIG, writable=True, clock=lambda: later)
    assert opened.put_message(message(31)).is_ok, "the checkpoint has news"

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("rmqctl.engine.write.storeflusher.write_checkpoint", fail)
        with pytest.raises(CannotWrite):
            opened.close()
    assert can_lock(store)
    MessageStore(store, CONFIG, writable=True).close()
    assert_clean(store, CONFIG)


def test_a_stale_lock_file_does_not_block(store: Path) -> None:
    assert (store / "lock").read_bytes() == b"lock"
    with MessageStore(store, CONFIG, writable=True) as opened:
        assert opened.put_message(message(31)).is_ok


def test_a_read_lock_of_another_process_blocks_too(store: Path) -> None:
    shared = BROKER.replace("LOCK_EX", "LOCK_SH")
    process = subprocess.Popen(
        [sys.executable, "-c", shared, str(store / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline()
    with pytest.raises(StoreInUse):
        MessageStore(store, CONFIG, writable=True)
    process.communicate()


def test_a_lock_that_is_no_file_is_an_error(store: Path) -> None:
    import os

    (store / "lock").unlink()
    os.mkfifo(store / "lock")
    with pytest.raises(CannotWrite):
        MessageStore(store, CONFIG, writable=True)
    (store / "lock").unlink()
    (store / "lock").symlink_to(store.parent / "elsewhere")
    with pytest.raises(SymbolicLinkRefused):
        MessageStore(store, CONFIG, writable=True)
    assert not (store.parent / "elsewhere").exists()


#: Commands that change a store under its lock.
CHANGES: dict[str, Callable[[Path], object]] = {
    "open": lambda root: MessageStore(root, CONFIG, writable=True),
    "rebuild": lambda root: rebuild_in_place(plan_rebuild(root, CONFIG, "all")),
    "clean": lambda root: clean(root, CONFIG, Rule(manual=True), lambda one: None),
    "checkpoint": lambda root: store_checkpoint(root, CONFIG, Checkpoint(1, 1, 1)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_repair_that_was_cut_off_just_before_the_lock_is_seen(
    store: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    """All ask before they take the lock; a repair may begin then, and be killed."""
    take = StoreLock._take

    def repaired_meanwhile(self: StoreLock, root: Path) -> None:
        (root / REPAIR).mkdir()
        (root / REPAIR / JOURNAL).write_text("{}")
        take(self, root)

    before = tree(store)
    monkeypatch.setattr(StoreLock, "_take", repaired_meanwhile)
    with pytest.raises(RepairUnfinished):
        change(store)
    after = {name: data for name, data in tree(store).items() if not name.startswith(REPAIR)}
    assert after == before and not is_locked(store)
    (store / REPAIR / JOURNAL).unlink()
    (store / REPAIR).rmdir()
    monkeypatch.undo()
    MessageStore(store, CONFIG, writable=True).close()  # The lock was given back.
