"""A commit log in several directories: the same bytes as in one, only elsewhere."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rmqctl.cli.main import run
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.read.follow import LiveStore, LogFollower
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.logdirectories import log_directories
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import AmbiguousLog, BrokerConfError, DamagedStore
from rmqctl.operations.look.walk import Selection, walk_commit_log
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_to
from rmqctl.operations.verify import Finding, Summary, verify
from rmqctl.operations.verify.findings import MISPLACED
from rmqctl.rows import Row

ONE = MessageStoreConfig(
    mapped_file_size_commit_log=1000,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=10,
    max_index_num=500,
)
COUNT = 60


def several(tmp_path: Path, read_only: str = "") -> MessageStoreConfig:
    """Three directories, listed in another order than they are used in."""
    names = ",".join(str(tmp_path / name) for name in ("disk-b", "disk-c", "disk-a"))
    return replace(ONE, store_path_commit_log=names, read_only_commit_log_store_paths=read_only)


def write(root: Path, config: MessageStoreConfig, first: int = 0, last: int = COUNT) -> None:
    clock = iter(range(1_700_000_000_000 + first, 1_700_000_100_000))
    with MessageStore(root, config, writable=True, create=True, clock=lambda: next(clock)) as store:
        for n in range(first, last):
            store.put_message(
                MessageExtBrokerInner(
                    "T", b"body %d" % n, n % 2, properties={"KEYS": f"k{n}"}, born_timestamp=n
                ),
                flush=False,
            )


def contents(*directories: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for d in directories for path in sorted(d.glob("0*"))}


def disks(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("disk-a", "disk-b", "disk-c")]


def findings(root: Path, config: MessageStoreConfig) -> list[Finding]:
    *found, summary = verify(root, config)
    assert isinstance(summary, Summary) and summary.records == COUNT
    return [one for one in found if isinstance(one, Finding)]


@pytest.mark.parametrize("pool", [False, True])
def test_the_files_are_those_of_one_directory(tmp_path: Path, pool: bool) -> None:
    config = replace(
        several(tmp_path), transient_store_pool_enable=pool, transient_store_pool_size=2
    )
    write(tmp_path / "one", ONE)
    write(tmp_path / "store", config)
    assert contents(*disks(tmp_path)) == contents(tmp_path / "one/commitlog")
    # The n-th file lies in the n-th directory by name, in turn (``tryCreateMappedFile``).
    for number, directory in enumerate(disks(tmp_path)):
        numbers = [int(path.name) // 1000 for path in directory.glob("0*")]
        assert len(numbers) > 1
        assert {n % 3 for n in numbers} == {number}
    for name in ("consumequeue", "index"):
        one, other = (
            [
                path.read_bytes()
                for path in sorted((tmp_path / root / name).rglob("*"))
                if path.is_file()
            ]
            for root in ("one", "store")
        )
        assert one == other


def test_reading_sees_one_log(tmp_path: Path) -> None:
    config = several(tmp_path)
    write(tmp_path / "one", ONE)
    write(tmp_path / "store", config)
    with (
        MessageStore(tmp_path / "one", ONE) as one,
        MessageStore(tmp_path / "store", config) as store,
    ):
        assert store.max_offset == one.max_offset
        assert list(walk_commit_log(store, Selection(), "utf8")) == list(
            walk_commit_log(one, Selection(), "utf8")
        )
        assert store.get_message("T", 1, 3) == one.get_message("T", 1, 3)
    assert findings(tmp_path / "store", config) == findings(tmp_path / "one", ONE)
    rebuild_to(plan_rebuild(tmp_path / "store", config, "queues"), tmp_path / "new")
    for path in (tmp_path / "store/consumequeue").rglob("0*"):
        rebuilt = tmp_path / "new" / path.relative_to(tmp_path / "store")
        assert not path.is_file() or rebuilt.read_bytes() == path.read_bytes()


def test_read_only_directories_get_no_files(tmp_path: Path) -> None:
    write(tmp_path / "store", several(tmp_path), 0, 30)
    config = several(tmp_path, str(tmp_path / "disk-a") + "," + str(tmp_path / "old"))
    (tmp_path / "old").mkdir()
    moved = sorted((tmp_path / "disk-b").glob("0*"))[0]
    shutil.move(moved, tmp_path / "old" / moved.name)
    before = contents(tmp_path / "disk-a", tmp_path / "old").keys()
    write(tmp_path / "store", config, 30)
    assert contents(tmp_path / "disk-a", tmp_path / "old").keys() == before
    with MessageStore(tmp_path / "store", config) as store:
        assert sum(isinstance(entry, Record) for entry in store.commit_log.walk()) == COUNT
    everything = replace(config, read_only_commit_log_store_paths=config.store_path_commit_log)
    with pytest.raises(BrokerConfError):
        log_directories(tmp_path / "store", everything)


def test_a_missing_directory_is_damage_and_no_end(tmp_path: Path) -> None:
    config = several(tmp_path)
    write(tmp_path / "store", config)
    shutil.rmtree(tmp_path / "disk-b")
    with MessageStore(tmp_path / "store", config) as store:
        walked: list[Row] = list(walk_commit_log(store, Selection()))
    *rows, summary = walked
    assert summary["damages"] > 1
    assert {row["reason"] for row in rows if row["type"] == "damage"} == {"commitlog-file-missing"}


def test_a_copy_with_the_brokers_configuration_is_refused(tmp_path: Path) -> None:
    """Else a put into the copy would go into the log of the broker."""
    config = several(tmp_path)
    write(tmp_path / "store", config)
    write(tmp_path / "copy", ONE)
    before = contents(*disks(tmp_path))
    for writable in (False, True):
        with pytest.raises(AmbiguousLog, match="storePathCommitLog"):
            MessageStore(tmp_path / "copy", config, writable=writable)
    assert contents(*disks(tmp_path)) == before
    listed = f"{tmp_path / 'copy' / 'commitlog'},{tmp_path / 'more'}"
    with MessageStore(tmp_path / "copy", replace(ONE, store_path_commit_log=listed)) as store:
        assert store.max_offset > 5000


def test_a_file_that_lies_in_two_directories_is_refused(tmp_path: Path) -> None:
    config = several(tmp_path)
    write(tmp_path / "store", config)
    shutil.copy(tmp_path / "disk-a" / f"{0:020d}", tmp_path / "disk-b")
    with pytest.raises(AmbiguousLog, match="no file twice"):
        MessageStore(tmp_path / "store", config)


@pytest.mark.parametrize("disk", ["disk-a", "disk-b", "disk-c"])
def test_a_renamed_file_alone_in_its_directory_is_found(tmp_path: Path, disk: str) -> None:
    root, config = tmp_path / "store", several(tmp_path)
    write(root, config, last=20)
    files = [path for where in disks(tmp_path) for path in where.glob("0*")]
    assert len(files) == len({path.parent for path in files}) == 3
    (renamed,) = (tmp_path / disk).iterdir()
    renamed.rename(renamed.with_suffix(".old"))
    with pytest.raises(DamagedStore, match=f"somebody has renamed it.*{renamed.name}"):
        MessageStore(root, config, writable=True)
    (found,) = (one for one in verify(root, config) if getattr(one, "advice", "") == MISPLACED)
    assert isinstance(found, Finding) and found.expected == renamed.name


def test_following_goes_from_directory_to_directory(tmp_path: Path) -> None:
    config = several(tmp_path)
    write(tmp_path / "store", config, 0, 1)
    found = []
    with LiveStore(tmp_path / "store", config) as live:
        follower = LogFollower(live, 0)
        for number in range(1, COUNT):
            write(tmp_path / "store", config, number, number + 1)
            found += [one for one in follower.look() if isinstance(one, Record)]
        found += [one for one in follower.look() if isinstance(one, Record)]
    assert [record.born_timestamp for record in found] == list(range(COUNT))


def test_from_a_broker_conf(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = several(tmp_path)
    write(tmp_path / "store", config)
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"storePathCommitLog={config.store_path_commit_log}\nmaxHashSlotNum=10\nmaxIndexNum=500\n"
    )
    line = ["--store", str(tmp_path / "store"), "--broker-conf", str(conf)]
    assert run(["verify", *line]) == 0
    assert run(["walk", "commitlog", *line, "--format", "ndjson"]) == 0
    assert capsys.readouterr().out.count('"type":"message"') == COUNT
    assert run(["info", *line, "--format", "ndjson"]) == 0
    assert f'"commitlog_files":{len(contents(*disks(tmp_path)))}' in capsys.readouterr().out


def test_directories_are_made_with_all_above_them(tmp_path: Path) -> None:
    """As ``MappedFile#ensureDirOK`` does; an empty ``commitlog/`` of the store is no second log."""
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    names = [tmp_path / "mount" / name / "log" for name in ("one", "two")]
    config = replace(ONE, store_path_commit_log=f" {names[0]} , {names[1]},")
    assert log_directories(root, config).all == tuple(names)
    write(root, config)
    assert contents(*names).keys() == {f"{n * 1000:020d}" for n in range(len(contents(*names)))}
    assert all(contents(name) for name in names)
    assert findings(root, config) == []
