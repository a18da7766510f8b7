"""The full disk: a status, and a store that stays valid. Really full on a small tmpfs where one can
be mounted, and simulated at every allocation."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import CannotWrite
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place, rebuild_to
from tests.test_safety.support import (
    Clock,
    assert_clean,
    assert_rebuild_is_identical,
    derived_files,
    message,
    small_config,
    tree,
)

FULL = {PutMessageStatus.SERVICE_NOT_AVAILABLE, PutMessageStatus.CREATE_MAPEDFILE_FAILED}
CONFIG = small_config(log=1 << 16, queue=200, slots=20, items=60)


def mounted(path: Path, options: str) -> bool:
    path.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(path)], capture_output=True
    )
    return done.returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB and 300 files."""
    disk = tmp_path / "disk"
    if os.geteuid() != 0 or not mounted(disk, "size=1m,nr_inodes=300"):
        pytest.skip("no right to mount a tmpfs here (needs root)")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """Takes all but ``leave`` bytes of the disk."""
    filler = disk / "filler"
    descriptor = os.open(filler, os.O_RDWR | os.O_CREAT)
    status = os.statvfs(disk)
    size = max(status.f_bavail * status.f_frsize - leave, 0)
    while size:
        try:
            os.posix_fallocate(descriptor, 0, size)
            break
        except OSError:
            # Some file systems take blocks for what was written a while ago, and for the file.
            size = max(size - status.f_frsize, 0)
    os.close(descriptor)
    return filler


def take_all_names(disk: Path) -> list[Path]:
    """Takes every inode: no file can be made any more."""
    taken: list[Path] = []
    while True:
        path = disk / f"name{len(taken)}"
        try:
            path.touch()
        except OSError:
            return taken
        taken.append(path)


def put(store: MessageStore, numbers: range, **more: Any) -> list[Any]:
    return [store.put_message(message(number, **more), flush=False) for number in numbers]


def assert_only_full(results: Sequence[Any]) -> list[Any]:
    """The refused ones say so; the acknowledged ones."""
    assert {r.status for r in results} <= FULL | {PutMessageStatus.PUT_OK}
    assert all(r.reason for r in results if not r.is_ok)
    return [r for r in results if r.is_ok]


def assert_readable(root: Path, config: MessageStoreConfig, acknowledged: list[Any]) -> None:
    with MessageStore(root, config) as store:
        for result in acknowledged:
            record = store.look_message_by_offset(result.append.wrote_offset)
            got = store.get_message(result.topic, result.queue_id, result.append.queue_offset, 1)
            assert [r.physical_offset for r in got.records] == [record.physical_offset]
            for key in record.properties.get("KEYS", "").split():
                hits = store.query_message(result.topic, key)
                assert record.physical_offset in [h.hit.item.physical_offset for h in hits]


# --- a disk that is really full ----------------------------------------------------------


@pytest.mark.parametrize("leave", [0, 4096, 8192, 20480, 65536, 200_000])
def test_a_full_disk_costs_only_what_did_not_fit(small_disk: Path, leave: int) -> None:
    """Whatever is left, the puts stop with a status at some place: log, roll, queue or index."""
    root = small_disk / "store"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        acknowledged = assert_only_full(put(store, range(10)))
        assert len(acknowledged) == 10
        filler = fill(small_disk, leave)
        tried = put(store, range(10, 400), body=b"x" * 900, keys=2)
        acknowledged += assert_only_full(tried)
        assert not tried[-1].is_ok
        filler.unlink()
        after = put(store, range(400, 430))
        assert all(r.is_ok for r in after)
    assert_clean(root, CONFIG)
    assert_readable(root, CONFIG, acknowledged + after)
    shutil.copytree(root, small_disk.parent / "copy")
    assert_rebuild_is_identical(small_disk.parent / "copy", CONFIG, small_disk.parent / "rebuilt")


@pytest.mark.parametrize("leave", [0, 20480, 200_000])
def test_a_stream_on_a_full_disk_ends_with_a_status(small_disk: Path, leave: int) -> None:
    root = small_disk / "store"
    acknowledged: list[Any] = []
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        acknowledged += assert_only_full(put(store, range(10)))
        filler = fill(small_disk, leave)
        messages = (message(number, body=b"x" * 300) for number in range(10, 5000))
        refused = None
        for results in store.put_stream(messages):
            acknowledged += assert_only_full(results)
            refused = next((r for r in results if not r.is_ok), None)
            if refused is not None:
                break
        assert refused is not None
        filler.unlink()
        acknowledged += [r for r in put(store, range(5000, 5010)) if r.is_ok]
    assert_clean(root, CONFIG)
    assert_readable(root, CONFIG, acknowledged)


def test_no_file_can_be_made(small_disk: Path) -> None:
    """Out of inodes: the log cannot roll, queues and index files cannot be made."""
    root = small_disk / "store"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        acknowledged = assert_only_full(put(store, range(10)))
        names = take_all_names(small_disk)
        fresh = store.put_message(message(0, "new-topic"))
        assert fresh.status is PutMessageStatus.CREATE_MAPEDFILE_FAILED
        tried = put(store, range(10, 150), body=b"x" * 900)
        acknowledged += assert_only_full(tried)
        assert tried[-1].status is PutMessageStatus.CREATE_MAPEDFILE_FAILED
        for path in names:
            path.unlink()
        after = put(store, range(150, 160))
        assert all(r.is_ok for r in after)
        assert store.put_message(message(0, "new-topic")).is_ok
    assert_clean(root, CONFIG)
    assert_readable(root, CONFIG, acknowledged + after)


def test_the_first_put_on_a_full_disk(small_disk: Path) -> None:
    filler = fill(small_disk)
    root = small_disk / "store"
    with (
        contextlib.suppress(CannotWrite),
        MessageStore(root, CONFIG, writable=True, create=True) as store,
    ):
        assert store.put_message(message(0)).status in FULL
    filler.unlink()
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        assert store.put_message(message(0)).is_ok
    assert_clean(root, CONFIG)


def test_the_checkpoint_does_not_fit(small_disk: Path) -> None:
    """close says so; what was put is there, and the next opening ends the work."""
    root = small_disk / "store"
    store = MessageStore(root, CONFIG, writable=True, create=True, clock=Clock())
    acknowledged = assert_only_full(put(store, range(10)))
    (root / "checkpoint").unlink()
    filler = fill(small_disk)
    with pytest.raises(CannotWrite) as failed:
        store.close()
    assert "checkpoint" in str(failed.value) or "No space" in str(failed.value)
    assert_readable(root, CONFIG, acknowledged)
    filler.unlink()
    with MessageStore(root, CONFIG, writable=True, clock=Clock()) as store:
        assert store.put_message(message(11)).is_ok
    assert_clean(root, CONFIG)


def test_a_rebuild_on_a_full_disk_leaves_the_old_files(small_disk: Path) -> None:
    config = small_config(log=1 << 16, queue=60_000, slots=2000, items=6000)
    root = small_disk / "store"
    with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
        put(store, range(300))
    before = tree(root)
    filler = fill(small_disk, leave=20_000)
    with pytest.raises(CannotWrite):
        rebuild_in_place(plan_rebuild(root, config, "all"))
    assert tree(root) == before, "what was built aside takes room that is needed"
    with pytest.raises(CannotWrite):
        rebuild_to(plan_rebuild(root, config, "all"), small_disk / "output")
    assert tree(root) == before
    filler.unlink()
    assert not (small_disk / "output").exists()
    rebuild_in_place(plan_rebuild(root, config, "queues"))
    assert_clean(root, config)


# --- a disk that says so at the n-th question ----------------------------------------------


ASKS = ("posix_fallocate", "ftruncate", "link", "mkdir", "pwrite")


class Disk:
    """Refuses allocations from the ``at``-th question on until :attr:`at` is reset; ``asks`` are
    the calls that need room."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, at: int, code: int, asks: tuple[str, ...] = ASKS
    ) -> None:
        self.at = at
        self.asked = 0
        self.refused: list[str] = []
        for name in asks:
            monkeypatch.setattr(os, name, self._guarded(name, getattr(os, name), code))

    def _guarded(self, name: str, call: Any, code: int) -> Any:
        def guarded(*arguments: Any, **named: Any) -> Any:
            self.asked += 1
            if self.asked >= self.at:
                self.refused.append(name)
                raise OSError(code, os.strerror(code))
            return call(*arguments, **named)

        return guarded


def test_every_allocation_may_fail(fast_path: Path) -> None:
    """Allocations fail from any one on, for a while; then puts go on in the same process. A disk
    that the system lets be read only, as after an error of its own, answers as a full one does."""
    config = small_config(log=4096, queue=60, slots=5, items=8)
    codes = errno.EDQUOT, errno.ENOSPC, errno.EROFS, errno.EIO
    for at in range(1, 200):
        root = fast_path / f"{at}"
        acknowledged: list[Any] = []
        with pytest.MonkeyPatch.context() as patched:
            disk = Disk(patched, 1 << 30, codes[at % len(codes)])
            with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
                disk.asked, disk.at = 0, at
                for number in range(12):
                    one = message(number, f"t{number % 2}", 0, body=b"x" * 400, keys=3)
                    acknowledged += assert_only_full([store.put_message(one, flush=False)])
                reached = disk.asked >= at
                disk.at = 1 << 30
                after = put(store, range(20, 24), keys=2)
                assert all(r.is_ok for r in after), at
                acknowledged += after
        assert_clean(root, config)
        assert_readable(root, config, acknowledged)
        assert_rebuild_is_identical(root, config, fast_path / f"{at}-rebuilt")
        if not reached:
            break
    else:
        raise AssertionError("the run never ends")


def test_every_allocation_of_a_stream_may_fail(fast_path: Path) -> None:
    config = small_config(log=1 << 14, queue=400, slots=13, items=50)
    for at in range(1, 400, 7):
        root = fast_path / f"{at}"
        acknowledged: list[Any] = []
        with pytest.MonkeyPatch.context() as patched:
            disk = Disk(patched, 1 << 30, errno.ENOSPC)
            with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
                disk.asked, disk.at = 0, at
                messages = (message(number, body=b"y" * 40) for number in range(200))
                for results in store.put_stream(messages, flush=False):
                    acknowledged += assert_only_full(results)
                reached = disk.asked >= at
                disk.at = 1 << 30
                for results in store.put_stream((message(n) for n in range(300, 400)), flush=False):
                    assert all(r.is_ok for r in results)
                    acknowledged += results
        assert_clean(root, config)
        assert_readable(root, config, acknowledged)
        assert_rebuild_is_identical(root, config, fast_path / f"{at}-rebuilt")
        if not reached:
            break
    else:
        raise AssertionError("the run never ends")


def test_space_that_comes_back_only_with_the_next_opening(fast_path: Path) -> None:
    config = small_config(log=4096, queue=60, slots=5, items=8)
    for at in range(1, 60, 2):
        root = fast_path / f"{at}"
        acknowledged: list[Any] = []
        with pytest.MonkeyPatch.context() as patched:
            disk = Disk(patched, 1 << 30, errno.ENOSPC)
            store = MessageStore(root, config, writable=True, create=True, clock=Clock())
            disk.asked, disk.at = 0, at
            for number in range(12):
                one = message(number, f"t{number % 2}", 0, body=b"x" * 400, keys=3)
                acknowledged += assert_only_full([store.put_message(one, flush=False)])
            try:
                store.close()
            except CannotWrite:
                assert (root / "abort").exists()
        with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
            acknowledged += assert_only_full(put(store, range(20, 22)))
        assert_clean(root, config)
        assert_readable(root, config, acknowledged)
        assert_rebuild_is_identical(root, config, fast_path / f"{at}-rebuilt")


def test_a_rebuild_in_place_may_fail_anywhere(fast_path: Path) -> None:
    config = small_config(log=1 << 14, queue=400, slots=13, items=50)
    root = fast_path / "store"
    with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
        put(store, range(100))
    before, derived = tree(root), derived_files(root)
    for at in range(1, 400, 5):
        with pytest.MonkeyPatch.context() as patched:
            Disk(patched, at, errno.ENOSPC)
            try:
                rebuild_in_place(plan_rebuild(root, config, "all"))
            except CannotWrite:
                assert tree(root) == before
            else:
                # An existing directory asks, and needs no room.
                break
    assert derived_files(root) == derived
    assert_clean(root, config)


def put_of_a_kind(store: MessageStore, kind: str, first: int) -> list[Any]:
    """Four messages to one queue as one batch; or one to a queue and two light queues."""
    if kind == "batch":
        batch = [message(n, "t", 0, body=b"x" * 300, keys=0) for n in range(first, first + 4)]
        return store.put_messages(batch, batch=True, flush=False)
    one = message(first, "t", 0, body=b"x" * 300, keys=0)
    one.properties["INNER_MULTI_DISPATCH"] = "%LMQ%a,%LMQ%b"
    return [store.put_message(one, flush=False)]


@pytest.mark.parametrize(("kind", "each"), [("batch", 4), ("light queues", 1)])
def test_what_is_refused_for_its_units_is_not_in_the_log(
    fast_path: Path, kind: str, each: int
) -> None:
    """Room for every unit is made before the first byte of a record: a batch is there whole or not
    at all, a message in all of its queues or in none. Without index, whose room is not reserved;
    and a queue file's name comes with its first unit, into a directory that has room for it."""
    config = replace(
        small_config(log=4096, queue=60),
        message_index_enable=False,
        enable_lmq=True,
        enable_multi_dispatch=True,
    )
    for at in range(1, 200, 1 if kind == "batch" else 2):
        root = fast_path / f"{at}"
        acknowledged: list[Any] = []
        with pytest.MonkeyPatch.context() as patched:
            asks = tuple(name for name in ASKS if name != "link")
            disk = Disk(patched, 1 << 30, errno.ENOSPC, asks)
            with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
                disk.asked, disk.at = 0, at
                for first in range(0, 12, each):
                    results = put_of_a_kind(store, kind, first)
                    acknowledged += assert_only_full(results)
                    walked = [e for e in store.commit_log.walk() if isinstance(e, Record)]
                    assert len(walked) == len(acknowledged), (at, first)
                reached = disk.asked >= at
                disk.at = 1 << 30
                after = put_of_a_kind(store, kind, 20)
                assert len(after) == each and all(r.is_ok for r in after), at
                acknowledged += after
                for name in ["t"] if kind == "batch" else ["t", "%LMQ%a", "%LMQ%b"]:
                    queue = store.consume_queue(name, 0)
                    assert queue is not None and queue.max_offset == len(acknowledged), (at, name)
        assert_clean(root, config)
        assert_readable(root, config, acknowledged)
        if not reached:
            break
    else:
        raise AssertionError("the run never ends")


@pytest.mark.parametrize("kind", ["one", "batch"])
def test_who_tries_again_on_a_full_disk_adds_nothing_to_the_log(fast_path: Path, kind: str) -> None:
    """The index's room is not made beforehand: a message may be in the log and its answer say that
    it appears later. As long as that is so nothing more is taken in, or each retry of a producer
    would be one more message."""
    config = small_config(log=1 << 14, queue=400, slots=5, items=8)
    each = 4 if kind == "batch" else 1
    seen: set[int] = set()
    for at in range(1, 40):
        root = fast_path / f"{at}"
        acknowledged: list[Any] = []
        with pytest.MonkeyPatch.context() as patched:
            disk = Disk(patched, 1 << 30, errno.ENOSPC)
            with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
                disk.asked, disk.at = 0, at
                for first in range(0, 40, each):
                    some = [message(n, "t", 0, keys=3) for n in range(first, first + each)]
                    results = store.put_messages(some, batch=kind == "batch", flush=False)
                    acknowledged += assert_only_full(results)
                walked = [e for e in store.commit_log.walk() if isinstance(e, Record)]
                seen.add(len(walked) - len(acknowledged))
                assert disk.asked >= at
                disk.at = 1 << 30
                assert store.put_message(message(50, "t", 0)).is_ok
        assert_clean(root, config)
    assert seen == {0, each}


@pytest.mark.parametrize(("kind", "each"), [("batch", 4), ("light queues", 1)])
def test_a_directory_without_room_for_a_name(fast_path: Path, kind: str, each: int) -> None:
    """A queue file that was made before gets its name behind the record: the message is in the log
    then, its answer says that it appears later, and whoever tries again adds nothing."""
    config = replace(
        small_config(log=4096, queue=60),
        message_index_enable=False,
        enable_lmq=True,
        enable_multi_dispatch=True,
    )
    seen: set[int] = set()
    for at in range(1, 12):
        root = fast_path / f"{at}"
        acknowledged: list[Any] = []
        with pytest.MonkeyPatch.context() as patched:
            disk = Disk(patched, 1 << 30, errno.ENOSPC, ("link",))
            with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
                disk.asked, disk.at = 0, at
                for first in range(0, 12, each):
                    results = put_of_a_kind(store, kind, first)
                    acknowledged += assert_only_full(results)
                walked = [e for e in store.commit_log.walk() if isinstance(e, Record)]
                seen.add(len(walked) - len(acknowledged))
                disk.at = 1 << 30
                acknowledged += put_of_a_kind(store, kind, 20)
        assert_clean(root, config)
        assert_readable(root, config, acknowledged)
    assert seen == {0, each}
