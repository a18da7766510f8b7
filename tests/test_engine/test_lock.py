"""The store's lock: between processes as Java's FileChannel takes it, and within one."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqctl.engine.lock import StoreLock, is_locked
from rmqctl.engine.message import MessageExtBrokerInner
from rmqctl.engine.messagestore import MessageStore
from rmqctl.errors import StoreInUse
from tests.golden_data import state

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
        "import sys; from pathlib import Path; from rmqctl.engine.lock import StoreLock\n"
        "from rmqctl.errors import StoreInUse\n"
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
