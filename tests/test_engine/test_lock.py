"""The store's lock: between processes as Java's FileChannel takes it, and within one."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rmqctl import kernel
from rmqctl.engine import files
from rmqctl.engine.files.lock import StoreLock, is_locked
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.errors import CannotWrite, StoreInUse
from tests.descriptors import open_descriptors
from tests.golden_data import state
from tests.interrupts import interrupted_at
from tests.test_kernel.alike import files_of

_SMALL = "mappedFileSizeCommitLog=65536\nmaxHashSlotNum=100\nmaxIndexNum=500"

# What DefaultMessageStore#start does, in another process.
_BROKER = """
import fcntl, sys
file = open(sys.argv[1], "r+b" if len(sys.argv) > 2 else "w+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
file.write(b"lock"); file.flush()
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def broker_holding(root: Path) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", _BROKER, str(root / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.communicate()


def try_lock(root: Path) -> subprocess.CompletedProcess[str]:
    """Another process of rmqctl's tries to take the lock."""
    code = (
        "import sys; from pathlib import Path; from rmqctl.engine.files.lock import StoreLock\n"
        "from rmqctl.errors import CannotWrite, StoreInUse\n"
        "try: StoreLock(Path(sys.argv[1])).release()\n"
        "except StoreInUse as e: sys.exit(e.exit_code)"
    )
    where = Path(__file__).parents[2]
    return subprocess.run([sys.executable, "-c", code, str(root)], text=True, cwd=where)


def test_a_broker_keeps_writers_out_and_nothing_is_touched(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore(root, writable=True, create=True) as store:
        store.put_message(MessageExtBrokerInner("T", b"x"))
    with broker_holding(root):
        assert is_locked(root)
        before = state(root)
        with pytest.raises(StoreInUse) as caught:
            MessageStore(root, writable=True)
        assert caught.value.exit_code == 4
        assert state(root) == before
        with MessageStore(root) as reading:
            assert reading.max_offset > 0
    assert not is_locked(root)
    MessageStore(root, writable=True).close()


def test_rmqctl_keeps_others_out(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path)
    # Reading the file here would drop the lock when it is closed again.
    assert (tmp_path / "lock").stat().st_size == len(b"lock")
    assert try_lock(tmp_path).returncode == 4
    assert not is_locked(tmp_path)  # held, but by this process
    with pytest.raises(StoreInUse):
        StoreLock(tmp_path)
    # The refusal in the same process must not have dropped the lock: closing any descriptor of
    # the file would have.
    assert try_lock(tmp_path).returncode == 4
    lock.release()
    lock.release()
    assert (tmp_path / "lock").read_bytes() == b"lock"
    assert try_lock(tmp_path).returncode == 0
    StoreLock(tmp_path).release()


def test_the_lock_is_byte_0_as_javas(tmp_path: Path) -> None:
    with broker_holding(tmp_path), (tmp_path / "lock").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1)  # the byte behind is free
        with pytest.raises(OSError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def test_a_lock_file_left_behind_blocks_nobody(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"lock")
    assert not is_locked(tmp_path)
    StoreLock(tmp_path).release()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def in_child(work: Callable[[], bool]) -> bool:
    """What a forked child says, which ends without a word of its own."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def is_free(root: Path) -> bool:
    try:
        StoreLock(root).release()
    except StoreInUse:
        return False
    return True


@pytest.mark.parametrize("replaces", [False, True], ids=["same file", "replaced file"])
def test_of_many_threads_one_holds_it(tmp_path: Path, replaces: bool) -> None:
    threads, rounds = 4, 400
    held: list[list[StoreLock]] = []

    def next_round() -> None:
        for lock in held[-1] if held else []:
            lock.release()
        if replaces:
            (tmp_path / "lock").unlink(missing_ok=True)
        held.append([])

    begin, end = threading.Barrier(threads, next_round), threading.Barrier(threads)

    def take() -> None:
        for _ in range(rounds):
            begin.wait()
            try:
                held[-1].append(StoreLock(tmp_path))
            except StoreInUse:
                pass
            end.wait()

    before, interval = open_descriptors(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        takers = [threading.Thread(target=take) for _ in range(threads)]
        for taker in takers:
            taker.start()
        for taker in takers:
            taker.join()
    finally:
        sys.setswitchinterval(interval)
    held[-1][0].release()
    assert [len(holders) for holders in held] == [1] * rounds
    assert descriptors() == before
    assert is_free(tmp_path)


def test_a_refused_opening_leaves_no_descriptor(tmp_path: Path) -> None:
    before = open_descriptors()
    lock = StoreLock(tmp_path)
    holding = descriptors()
    for _ in range(20):
        with pytest.raises(StoreInUse, match="this process"):
            StoreLock(tmp_path)
    assert descriptors() == holding
    lock.release()
    assert descriptors() == before


def test_the_lock_file_is_known_by_every_name(tmp_path: Path) -> None:
    """Another root with the same file, and this root without it: neither is another store."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    lock = StoreLock(tmp_path / "one")
    os.link(tmp_path / "one" / "lock", tmp_path / "two" / "lock")
    assert not is_free(tmp_path / "two")
    (tmp_path / "one" / "lock").unlink()
    assert not is_free(tmp_path / "one")
    assert not (tmp_path / "one" / "lock").exists()
    assert try_lock(tmp_path / "two").returncode == 4, "a refusal has dropped the lock"
    lock.release()
    assert is_free(tmp_path / "one") and is_free(tmp_path / "two")


def test_a_directory_that_cannot_be_forced_to_disk_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of some file systems in user space; a server may try for days."""

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = open_descriptors()
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(CannotWrite, match="Input/output error"):
        StoreLock(tmp_path)
    assert descriptors() == before
    assert is_free(tmp_path)


def test_a_file_that_becomes_the_held_one_while_it_is_opened_closes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    before = open_descriptors()
    lock = StoreLock(tmp_path / "one")
    os.link(tmp_path / "one" / "lock", tmp_path / "two" / "lock")
    with monkeypatch.context() as patched:
        patched.setattr("rmqctl.engine.files.lock._identity", lambda path: None)
        assert not is_free(tmp_path / "two")
    assert try_lock(tmp_path / "one").returncode == 4, "the refusal has dropped the lock"
    lock.release()
    assert descriptors() == before


def test_a_forked_child_holds_nothing_and_drops_nothing(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path)

    def tries() -> bool:
        refused = not is_free(tmp_path) and is_locked(tmp_path)
        lock.release()
        return refused and not is_free(tmp_path)

    assert in_child(tries)
    assert try_lock(tmp_path).returncode == 4, "the child has dropped the lock"
    assert not is_locked(tmp_path)
    lock.release()
    assert try_lock(tmp_path).returncode == 0


def test_a_child_takes_the_lock_when_its_parent_has_released_it(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path)
    read, write = os.pipe()

    def takes() -> bool:
        os.read(read, 1)
        own = StoreLock(tmp_path)
        lock.release()  # The copy of the parent's: the child's own must stay.
        is_held = try_lock(tmp_path).returncode == 4
        own.release()
        return is_held

    child = os.fork()
    if child == 0:
        os._exit(0 if takes() else 1)
    lock.release()
    os.write(write, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(read)
    os.close(write)
    assert is_free(tmp_path)


def test_a_forked_childs_copy_of_a_store_changes_nothing(tmp_path: Path) -> None:
    """As a child of a pool that leaves the parent's ``with`` by an exit."""
    root = tmp_path / "store"
    with MessageStore(root, writable=True, create=True) as store:
        store.put_message(MessageExtBrokerInner("T", b"x"))
        before = state(root)

        def leaves() -> bool:
            result = store.put_message(MessageExtBrokerInner("T", b"of the child"))
            store.close()
            return not result.is_ok and state(root) == before

        assert in_child(leaves)
        assert (root / "abort").exists()
        assert store.put_message(MessageExtBrokerInner("T", b"y")).is_ok
        child = os.fork()
        if child == 0:
            store.abandon()
            os._exit(0)
        os.waitpid(child, 0)
        assert try_lock(root).returncode == 4
    assert not (root / "abort").exists()

    def opens() -> bool:
        with MessageStore(root, writable=True) as own:
            return own.put_message(MessageExtBrokerInner("T", b"z")).is_ok

    assert in_child(opens)
    with MessageStore(root) as reading:
        queue = reading.consume_queue("T", 0)
        assert queue is not None and queue.max_offset == 3


def test_a_forked_child_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    """One that was putting when the process forked is not there to end it."""
    with MessageStore(tmp_path / "store", writable=True, create=True) as store:
        message = MessageExtBrokerInner("T", b"x")
        for _ in range(20):
            store.put_message(message, flush=False)
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with store._put_lock:
                held.set()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()

        def is_refused() -> bool:
            signal.alarm(20)
            return not any(store.put_message(message, flush=False).is_ok for _ in range(20))

        try:
            assert in_child(is_refused)
        finally:
            done.set()
            thread.join()


@pytest.mark.parametrize("ends", ["raises", "returns"])
@pytest.mark.parametrize("choice", ["pure", "compiled"])
def test_a_child_that_was_forked_amid_a_stream_changes_nothing(
    choice: str, ends: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It leaves the stream when its parent has stored more than the child knows of."""
    if choice == "compiled" and kernel.module() is None:
        pytest.skip("there is no kernel here")
    monkeypatch.setenv(kernel.VARIABLE, choice)
    root, config = tmp_path / "store", parse_broker_conf(_SMALL)
    parent, (read, write), children = os.getpid(), os.pipe(), list[int]()

    def given() -> Iterator[MessageExtBrokerInner]:
        for number in range(40):
            if number == 20:
                child = os.fork()
                if child == 0:
                    signal.alarm(20)
                    os.read(read, 1)
                    if ends == "raises":
                        raise SystemExit
                    return
                children.append(child)
            yield MessageExtBrokerInner("T", b"%d" % number, properties={"KEYS": "k"})

    with MessageStore(root, config, writable=True, create=True) as store:
        try:
            list(store.put_stream(given(), flush=False))
        finally:
            if os.getpid() != parent:
                os._exit(0)
        before = files_of(root)
        os.write(write, b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
        assert files_of(root) == before
        found = [store.get_message("T", 0, number).records for number in range(40)]
        assert all(found) and store.dispatch_behind_bytes == 0
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("choice", ["pure", "compiled"])
def test_a_child_that_was_forked_amid_a_stream_cannot_go_on_in_it(
    choice: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Of so many bytes another thread of the kernel stores records. The child does not have it."""
    if choice == "compiled" and kernel.module() is None:
        pytest.skip("there is no kernel here")
    monkeypatch.setenv(kernel.VARIABLE, choice)
    root, parent, children = tmp_path / "store", os.getpid(), list[int]()
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 24)
    count, body = (2000, b"x" * 3000) if choice == "compiled" else (40, b"x")

    def given() -> Iterator[MessageExtBrokerInner]:
        for number in range(count):
            if number == count // 2:
                child = os.fork()
                if child == 0:
                    signal.alarm(20)
                else:
                    children.append(child)
            yield MessageExtBrokerInner("T", body, properties={"KEYS": f"k{number}"})

    with MessageStore(root, config, writable=True, create=True) as store:
        try:
            results = [one for bulk in store.put_stream(given(), flush=False) for one in bulk]
            if os.getpid() != parent:
                os._exit(results[-1].is_ok)
        finally:
            if os.getpid() != parent:
                os._exit(2)
        ended = os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1])
        assert ended == (-signal.SIGABRT if choice == "compiled" else 0)
        said = "error: this process was forked while a stream of messages was stored"
        assert (said in capfd.readouterr().err) == (choice == "compiled")
        assert [one.is_ok for one in results] == [True] * count
        found = [store.get_message("T", 0, number, 1).records for number in range(count)]
        assert all(found) and store.dispatch_behind_bytes == 0


def test_an_interrupt_at_any_step_of_taking_the_lock_leaves_it_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for step in range(1, 1000):
        store = None
        with suppress(KeyboardInterrupt), interrupted_at(step, {files.lock}, {"_take"}) as reached:
            store = MessageStore(tmp_path, writable=True)
        if store is not None:
            store.close()
        StoreLock(tmp_path).release()
        if not reached:
            break
    assert 100 < step < 999


def test_an_interrupt_right_behind_the_lock_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store knows how to give it back before it has it."""
    (tmp_path / "commitlog").mkdir()
    kept = "_lock"

    def interrupted(store: MessageStore, name: str, value: object) -> None:
        object.__setattr__(store, name, value)
        if name == kept and value is not None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(WritableStore, "__setattr__", interrupted)
        MessageStore(tmp_path, writable=True)
    StoreLock(tmp_path).release()


def test_an_interrupt_as_a_close_begins_gives_the_lock_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(store: MessageStore, name: str, value: object) -> None:
        object.__setattr__(store, name, value)
        patch.undo()
        raise KeyboardInterrupt

    store = MessageStore(tmp_path / "new", writable=True, create=True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(WritableStore, "__setattr__", interrupted)
        store.close()
    store.close()
    StoreLock(tmp_path / "new").release()
