"""lint: what names, lengths and rights tell, and that nothing more is looked at."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.advice import command_line
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.doctor.lint import Limits, Summary, lint
from rmqctl.operations.doctor.simulatestart import simulate_start
from rmqctl.operations.doctor.startrows import next_words, verdict
from rmqctl.operations.verify import Finding
from tests import golden_data
from tests.conftest import Golden
from tests.golden_data import DLEDGER_STORES, STORES, broker_conf, copy_tree, state

CONFIG = broker_conf("basic")
ENOUGH = Limits(1 << 20, 1 << 20)
LOG, QUEUE = "commitlog", "consumequeue/TopicA/0"
FIRST = "00000000000000000000"


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    return copy_tree(golden("basic"), tmp_path / "store")


def found(root: Path, limits: Limits = ENOUGH) -> list[Finding]:
    before = state(root)
    findings = list(lint(root, CONFIG, Summary(), limits))
    assert state(root) == before
    return findings


@pytest.mark.parametrize("name", sorted({*STORES, *DLEDGER_STORES} - {"defaults"}))
def test_a_store_of_the_engine_is_in_order(golden: Golden, name: str) -> None:
    summary = Summary()
    findings = list(lint(golden(name), broker_conf(name), summary, ENOUGH))
    assert summary.is_clean, findings
    assert summary.log_files and summary.queues
    assert ("unclean-shutdown" in {one.code for one in findings}) == (name == "crash")


def test_databases_of_queues_are_no_strangers(golden_directory: Path) -> None:
    summary = Summary()
    root = golden_data.unpacked("rocksdb", golden_directory, golden_data.LATER)
    findings = list(lint(root, MessageStoreConfig(), summary, ENOUGH))
    assert summary.is_clean and {one.code for one in findings} == {"not-understood"}


Damage = Callable[[Path], object]


def write_config(root: Path, name: str) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_text("{")


CASES: dict[str, tuple[Damage, str, str | None]] = {
    "a stranger in the log": (
        lambda root: (root / LOG / "notes.txt").touch(),
        *("foreign-file", f"{LOG}/notes.txt"),
    ),
    "a file between those of the log": (
        lambda root: (root / LOG / f"{123:020d}").write_bytes(b"a stranger"),
        *("foreign-file", f"{LOG}/{123:020d}"),
    ),
    "an empty file": (
        lambda root: (root / LOG / f"{7 * 65536:020d}").touch(),
        *("file-length-mismatch", f"{LOG}/{7 * 65536:020d}"),
    ),
    "a short queue file": (
        lambda root: os.truncate(root / QUEUE / FIRST, 990),
        *("file-length-mismatch", f"{QUEUE}/{FIRST}"),
    ),
    "a stranger beside the topics": (
        lambda root: (root / "consumequeue/x").touch(),
        *("foreign-file", "consumequeue/x"),
    ),
    "a queue that is none": (
        lambda root: (root / "consumequeue/TopicA/x").mkdir(),
        *("foreign-file", "consumequeue/TopicA/x"),
    ),
    "a gap in the log": (
        lambda root: (root / LOG / f"{2 * 65536:020d}").unlink(),
        *("commitlog-file-missing", None),
    ),
    "a gap in a queue": (
        lambda root: (root / QUEUE / f"{2000:020d}").write_bytes(bytes(1000)),
        *("queue-file-missing", f"{QUEUE}/{1000:020d}"),
    ),
    "an index file that is none": (
        lambda root: (root / "index/old").touch(),
        *("foreign-file", "index/old"),
    ),
    "a link": (
        lambda root: (root / QUEUE / f"{1000:020d}").symlink_to(root / QUEUE / FIRST),
        *("symbolic-link", f"{QUEUE}/{1000:020d}"),
    ),
    "no checkpoint": (
        lambda root: (root / "checkpoint").unlink(),
        "checkpoint-missing",
        "checkpoint",
    ),
    "a short checkpoint": (
        lambda root: os.truncate(root / "checkpoint", 8),
        *("checkpoint-unreadable", "checkpoint"),
    ),
    "a group's log": (
        lambda root: (root / "dledger-n0").mkdir(),
        *("dledger-log", "dledger-n0"),
    ),
    "no right to write": (
        lambda root: (root / QUEUE / FIRST).chmod(0o444),
        *("not-writable", f"{QUEUE}/{FIRST}"),
    ),
    "no right to write the lock": (
        lambda root: (root / "lock").chmod(0o444),
        *("not-writable", "lock"),
    ),
    "no right to write the checkpoint": (
        lambda root: (root / "checkpoint").chmod(0),
        *("not-writable", "checkpoint"),
    ),
    "no right to write the directory of topics": (
        lambda root: (root / "consumequeue").chmod(0o555),
        *("not-writable", "consumequeue"),
    ),
    "no right to write the store": (lambda root: root.chmod(0o555), "not-writable", "."),
    "an unclean stop": (lambda root: (root / "abort").touch(), "unclean-shutdown", "abort"),
    "an end while an offset was set": (
        lambda root: write_config(root, "consumerOffset.json.tmp"),
        *("config-temporary-left", "config/consumerOffset.json.tmp"),
    ),
    "an end while the copy was made": (
        lambda root: write_config(root, "consumerOffset.json.bak.tmp"),
        *("config-temporary-left", "config/consumerOffset.json.bak.tmp"),
    ),
    "a file in place of the index": (
        lambda root: (root / "index").rename(root / "old").with_name("index").touch(),
        *("not-a-directory", "index"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_thing_has_its_finding(store: Path, case: str) -> None:
    damage, code, path = CASES[case]
    damage(store)
    assert (code, path) in [(one.code, one.path) for one in found(store)]


def test_sizes_against_the_configuration(store: Path) -> None:
    other = replace(
        CONFIG,
        mapped_file_size_commit_log=1 << 17,
        explicit=frozenset(["mapped_file_size_commit_log"]),
    )
    summary = Summary()
    (one,) = lint(store, other, summary, ENOUGH)
    assert (one.code, one.found) == ("sizes-contradicted", "65536")
    assert "131072" in str(one.expected)


def test_limits_count_every_file(store: Path) -> None:
    low = [one.code for one in found(store, Limits(1000, 1000))]
    assert low == ["file-limit-too-low", "map-limit-too-low"]
    assert found(store, Limits(None, None)) == []
    assert Limits.of_system().maps is None or Limits.of_system().maps


def test_other_owners(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.lstat

    def lstat(path: str | Path) -> os.stat_result:
        status = real(path)
        if str(path).endswith(f"{QUEUE}/{FIRST}"):
            return os.stat_result((*status[:4], status.st_uid + 1, *status[5:10]))
        return status

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", lstat)
        findings = list(lint(store, CONFIG, Summary(), ENOUGH))
    (one,) = findings
    assert (one.code, one.path) == ("mixed-owners", f"{QUEUE}/{FIRST}")


@pytest.mark.parametrize("part", [LOG, QUEUE, "index"])
def test_files_that_only_another_owner_may_read(
    store: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their mode tells their owner's right alone."""
    path = min((store / part).iterdir())
    path.chmod(0o600)
    refused = {str(path)}
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: str(path) not in refused and real(path, mode)
    )
    (one,) = found(store)
    assert (one.code, one.path) == ("unreadable-file", str(path.relative_to(store)))


def test_the_owner_is_whoever_has_most(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has made the directory, or one in it, anew, and the files are the broker's."""
    real, others = os.lstat, os.getuid() + 1

    def lstat(path: str | Path) -> os.stat_result:
        status = real(path)
        owner = os.getuid() if str(path).endswith("/commitlog") else others
        return os.stat_result((*status[:4], owner, *status[5:10]))

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", lstat)
        (one,) = lint(store, CONFIG, Summary(), ENOUGH)
    assert one.code == "mixed-owners" and one.expected == f"user {others}"
    assert one.found is not None and one.found.startswith("2 of user")
    line = command_line(one, str(store), None)
    assert line == f"chown -R {others} {store}"


@pytest.mark.parametrize("named", [["."], ["commitlog", "index"], []], ids=str)
def test_a_mount_that_nobody_may_write(
    store: Path, monkeypatch: pytest.MonkeyPatch, named: list[str]
) -> None:
    """What is below it counts to it."""
    statvfs, read_only = os.statvfs, [store / name for name in named]

    def mounted(path: Any) -> os.statvfs_result:
        told = statvfs(path)
        is_shut = any(Path(path).is_relative_to(one) for one in read_only)
        return os.statvfs_result((*told[:8], told.f_flag | is_shut * os.ST_RDONLY, told[9]))

    monkeypatch.setattr(os, "statvfs", mounted)
    told = [(one.code, one.path) for one in found(store)]
    assert told == [("read-only-mount", name) for name in named]
    if named == ["."]:
        (one,) = found(store)
        assert command_line(one, str(store), None) == f"findmnt -T {store}"
        assert verdict(simulate_start(store, CONFIG, percent=10, at=0)) == (
            "A broker of 4.9.3 does not start: the store: its file system is mounted read-only. "
            "If it could, it would lose no message."
        )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a directory over itself")
def test_a_store_that_is_mounted_read_only(store: Path) -> None:
    """Only a part of it, here: the verdict of a start is that of what may be written."""
    part = str(store / "consumequeue")
    bound = subprocess.run(["mount", "--bind", part, part], capture_output=True)
    if bound.returncode:
        pytest.skip("no right to mount here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", part], check=True)
        (one,) = found(store)
        done = simulate_start(store, CONFIG, percent=10, at=0)
    finally:
        subprocess.run(["umount", "-l", part], check=True)
    assert (one.code, one.path) == ("read-only-mount", "consumequeue")
    assert not done.is_harmless and next_words(done) == ("lint",)
    assert verdict(done) == (
        "A broker of 4.9.3 does not start: consumequeue: its file system is mounted read-only. "
        "If it could, it would lose no message."
    )


def test_a_lock_that_is_held(store: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from rmqctl.engine.files.lock import StoreLock\n"
        "lock = StoreLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        comm = Path(f"/proc/{holder.pid}/comm").read_text().strip()
        told = [(one.code, one.found) for one in found(store)]
        holder.stdin.close()
    assert told == [("lock-held", f"process {holder.pid} ({comm})")]


@pytest.mark.parametrize("call", ["lstat", "pread"])
def test_a_disk_that_fails_ends_no_lint(
    store: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It may not tell of a file, or not read the one that lint opens: a stranger in the log."""
    called, stranger = getattr(os, call), store / LOG / "stranger"
    stranger.touch()
    os.truncate(stranger, (store / LOG / FIRST).stat().st_size)

    def failing(what: Any, *given: Any, **named: Any) -> Any:
        if call == "pread" or os.fspath(what) == str(stranger):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return called(what, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        findings = list(lint(store, CONFIG, Summary(), ENOUGH))
    code = "unreadable-file" if call == "lstat" else "foreign-file"
    assert (code, f"{LOG}/stranger") in [(one.code, one.path) for one in findings]
