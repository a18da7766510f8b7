"""A copy that keeps less than all of its log."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click
import pytest

from rmqctl.cli.commands.replicate import KeepType
from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations.verify import Finding, verify
from rmqctl.replicate import sockets
from rmqctl.replicate.copy import Copy
from rmqctl.replicate.events import Shortened
from rmqctl.replicate.keeping import Keep
from tests import processes
from tests.test_engine.test_pieces import log_bytes
from tests.test_replicate.live import CONFIG, FILE_SIZE, live
from tests.test_replicate.test_following import LOCAL, Following, following, wait_for


def is_clean(copy: Path) -> bool:
    """But for what is said of every log that begins late."""
    found = [one for one in verify(copy, CONFIG) if isinstance(one, Finding)]
    return {one.code for one in found} <= {"log-starts-late"}


def files(copy: Path) -> list[int]:
    return sorted(int(path.name) for path in (copy / "commitlog").iterdir())


def test_it_goes_on_with_what_it_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_SHORTEN_SECONDS", 0.0)
    root, copy = tmp_path / "master", tmp_path / "copy"
    with live(root) as master:
        master.put(100, size=300)
        follower = Following(copy, master.ha_port, master.port, Keep(size=2 * FILE_SIZE))
        try:
            for _ in range(3):
                master.put(50, size=300)
                follower.await_end(master.store.max_offset)
            end = master.store.max_offset
            newest = end - end % FILE_SIZE
            wait_for(
                lambda: any(
                    isinstance(one, Shortened) and one.min_offset >= newest - FILE_SIZE
                    for one in follower.told
                )
            )
        finally:
            assert follower.stop() is None
        # And another time, from where it ends.
        with following(copy, master) as again:
            master.put(5)
            end = master.store.max_offset
            again.await_end(end)
    first = files(copy)[0]
    assert first >= newest - FILE_SIZE
    assert log_bytes(copy, first, end) == log_bytes(root, first, end)
    assert is_clean(copy)
    with MessageStore(copy, CONFIG) as store:
        assert store.min_offset == first
        queue = store.consume_queue("orders", 0)
        assert queue is not None and queue.min_offset > 0


def test_what_is_kept(tmp_path: Path) -> None:
    root = tmp_path / "copy"
    with live(tmp_path / "master") as master:
        master.put(120, size=300)
        with following(root, master) as follower:
            follower.await_end(master.store.max_offset)
    starts = files(root)
    assert len(starts) > 6
    now = int(time.time() * 1000)
    copy = Copy(root, CONFIG, clock=lambda: now)
    try:
        assert copy.shorten(Keep(millis=3_600_000), starts[-1]) is None
        for start in starts[:2]:
            path = root / "commitlog" / f"{start:020d}"
            os.utime(path, ns=(0, (now - 3_600_001) * 1_000_000))
        done = copy.shorten(Keep(millis=3_600_000), 0)
        assert done is not None and done.min_offset == starts[2] == copy.store.min_offset
        # What the master has of its third file is all there.
        assert copy.shorten(Keep(as_master=True), starts[3] - 1) is None
        done = copy.shorten(Keep(as_master=True), starts[4])
        assert done is not None and done.min_offset == starts[4]
        end = copy.end
        # One file stays, however little is to be kept, and what it ends with.
        done = copy.shorten(Keep(size=1), 0)
        assert done is not None and copy.end == end
        assert files(root)[-1] == done.min_offset == starts[-1]
    finally:
        copy.close()
    assert is_clean(root)


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("72h", Keep(millis=72 * 3_600_000)),
        ("30d", Keep(millis=720 * 3_600_000)),
        ("2w", Keep(millis=336 * 3_600_000)),
        ("500g", Keep(size=500 << 30)),
        ("64KiB", Keep(size=64 << 10)),
        ("1TB", Keep(size=1 << 40)),
        ("Master", Keep(as_master=True)),
    ],
)
def test_how_it_is_said(text: str, keep: Keep) -> None:
    assert KeepType().convert(text, None, None) == keep


@pytest.mark.parametrize("text", ["", "72", "0h", "-1h", "h", "1x", "12345678901h", "1.5g"])
def test_what_says_nothing(text: str) -> None:
    with pytest.raises(click.BadParameter, match="none of 72h"):
        KeepType().convert(text, None, None)


def test_the_command_says_what_is_gone(tmp_path: Path) -> None:
    with live(tmp_path / "master") as master:
        master.put(100, size=300)
        line = [f"{LOCAL}:{master.ha_port}", "--broker", f"{LOCAL}:{master.port}"]
        line += ["--to", str(tmp_path / "copy"), "--until-caught-up", "--verify", "--keep", "4k"]
        done = processes.run("rmqctl", "replicate", *line)
    assert done.returncode == 0, done.stderr
    assert "not kept any more; the log begins at" in done.stderr
