"""Following a store look by look, with a writer in the same process that goes on in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.constants import MESSAGE_MAGIC_CODE
from rmqctl.engine.filters.tags import TagFilter
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.read.follow import LiveStore, LogFollower, LogGone, Moved, QueueFollower
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Blank, Damage, Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from tests.seeds import times

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1000,
    mapped_file_size_consume_queue=100,
    max_hash_slot_num=10,
    max_index_num=50,
)
Put = Callable[..., list[int]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def writer(root: Path) -> Iterator[MessageStore]:
    clock = iter(range(1_700_000_000_000, 1_700_000_100_000))
    with MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: next(clock)) as store:
        yield store


def put(store: MessageStore, *bodies: str) -> list[int]:
    """Puts messages into queue 0; their physical offsets."""
    results = [
        store.put_message(
            MessageExtBrokerInner("T", body.encode(), 0, properties={"TAGS": body[:1]}), flush=False
        )
        for body in bodies
    ]
    return [result.append.wrote_offset for result in results if result.append is not None]


def bodies(live: LiveStore, found: object) -> list[object]:
    """Bodies of records, everything else as it is."""
    return [
        live.body(one).decode() if isinstance(one, Record) else one
        for one in found  # type: ignore[attr-defined]
        if not isinstance(one, Blank)
    ]


def test_the_newest_record_is_yielded_at_the_second_look(root: Path, writer: MessageStore) -> None:
    with LiveStore(root, CONFIG) as live:
        follower = LogFollower(live, 0)
        assert bodies(live, follower.look()) == []
        put(writer, "a", "b", "c")
        assert bodies(live, follower.look()) == ["a", "b"]
        assert bodies(live, follower.look()) == ["c"]
        assert bodies(live, follower.look()) == []
        put(writer, "d")
        assert bodies(live, follower.look()) == []
        put(writer, "e")
        assert bodies(live, follower.look()) == ["d"]
        assert follower.offset == 4 * 99 == writer.max_offset - 99


def test_rolls_are_survived(root: Path, writer: MessageStore) -> None:
    with LiveStore(root, CONFIG) as live:
        follower, queue = LogFollower(live, 0), QueueFollower(live, "T", 0, None)
        wanted, log_found, queue_found = [], [], []
        for number in range(60):
            wanted.append(f"message {number}")
            put(writer, wanted[-1])
            log_found += bodies(live, follower.look())
            queue_found += bodies(live, queue.look())
        assert len(writer.commit_log.files.entries) > 5
        log_found += bodies(live, follower.look())
        queue_found += bodies(live, queue.look())
        assert log_found == queue_found == wanted
        assert queue.offset == 60


@settings(max_examples=times(60), deadline=None)
@given(st.data())
def test_a_record_that_is_being_written_is_never_yielded_torn(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The broker copies a record from its first byte on: every cut of it is waited for."""
    root = tmp_path_factory.mktemp("torn") / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        put(writer, "first", "second")
        (offset,) = put(writer, "third with some body")
    log = root / "commitlog" / f"{0:020d}"
    whole = log.read_bytes()
    end = len(whole.rstrip(b"\0"))
    cuts = sorted(data.draw(st.lists(st.integers(offset, end - 1), min_size=1, max_size=4)))
    with LiveStore(root, CONFIG) as live:
        follower = LogFollower(live, 0)
        seen = []
        for cut in cuts:
            log.write_bytes(whole[:cut].ljust(len(whole), b"\0"))
            for _ in range(2):
                seen += bodies(live, follower.look())
        assert seen == ["first", "second"]
        log.write_bytes(whole)
        for _ in range(3):
            seen += bodies(live, follower.look())
        assert seen == ["first", "second", "third with some body"]


def test_damage_is_told_once_something_stands_behind_it(root: Path, writer: MessageStore) -> None:
    put(writer, "a")
    (at,) = put(writer, "b")
    mapped, position = writer.commit_log.locate(at)
    mapped.write(position + 4, b"\1")
    with LiveStore(root, CONFIG) as live:
        follower = LogFollower(live, 0)
        found = [one for _ in range(5) for one in bodies(live, follower.look())]
        assert found == ["a"], "the last place may still be written"
        put(writer, "c", "d")
        found = [one for _ in range(20) for one in bodies(live, follower.look())]
        damage = found[0]
        assert isinstance(damage, Damage)
        assert (damage.physical_offset, damage.reason) == (at, "bad-magic")
        assert found[1:] == ["c", "d"]


def test_a_body_without_its_crc_waits_for_a_successor(root: Path, writer: MessageStore) -> None:
    (at,) = put(writer, "a")
    record = writer.look_message_by_offset(at)
    mapped, _ = writer.commit_log.locate(at)
    mapped.write(record.body_position, b"?")
    with LiveStore(root, CONFIG) as live:
        follower = LogFollower(live, 0)
        assert [one for _ in range(4) for one in bodies(live, follower.look())] == []
        put(writer, "b")
        assert bodies(live, follower.look()) == ["?"]


def test_an_end_that_moved_back_is_noticed(root: Path) -> None:
    """A broker that recovers cuts its log and writes over what stood behind."""
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        offsets = put(writer, "a", "b", "c", "d")
    with LiveStore(root, CONFIG) as live:
        log, queue = LogFollower(live, 0), QueueFollower(live, "T", 0, 0)
        seen = [one for _ in range(2) for one in bodies(live, log.look())]
        assert seen == ["a", "b", "c", "d"]
        assert [one for _ in range(2) for one in bodies(live, queue.look())] == seen
        end = log.offset
        cut(root, offsets[2])
        assert bodies(live, log.look()) == [Moved("end-moved-back", end, offsets[2])]
        assert bodies(live, queue.look()) == [Moved("end-moved-back", 4, 2)]
        with MessageStore(root, CONFIG, writable=True) as writer:
            put(writer, "C", "D")
        assert [one for _ in range(2) for one in bodies(live, log.look())] == ["C", "D"]
        assert [one for _ in range(2) for one in bodies(live, queue.look())] == ["C", "D"]
        cut(root, offsets[1])
        with MessageStore(root, CONFIG, writable=True) as writer:
            put(writer, "X")
        assert bodies(live, log.look())[0] == Moved("end-moved-back", end, offsets[1])
        assert bodies(live, log.look()) == ["X"]


def cut(root: Path, offset: int) -> None:
    """Cuts a small store's only log file and the units that point behind."""
    log = root / "commitlog" / f"{0:020d}"
    data = log.read_bytes()
    log.write_bytes(data[:offset].ljust(len(data), b"\0"))
    units = root / "consumequeue" / "T" / "0" / f"{0:020d}"
    data = units.read_bytes()
    kept = [data[at : at + 20] for at in range(0, len(data), 20)]
    kept = [unit for unit in kept if int.from_bytes(unit[:8], "big") < offset and any(unit)]
    units.write_bytes(b"".join(kept).ljust(len(data), b"\0"))


def test_files_that_retention_deletes_are_told(root: Path) -> None:
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        put(writer, *(f"m{number}" for number in range(40)))
        first, second = writer.commit_log.files.entries[:2]
    with LiveStore(root, CONFIG) as live:
        log, queue = LogFollower(live, 0), QueueFollower(live, "T", 0, 0)
        first.path.unlink()
        moved, *rest = [one for _ in range(2) for one in bodies(live, log.look())]
        assert moved == Moved("files-deleted", 0, second.file_from_offset)
        moved, *behind = [one for _ in range(2) for one in bodies(live, queue.look())]
        assert isinstance(moved, Moved)
        assert (moved.reason, moved.from_offset) == ("files-deleted", 0)
        assert moved.to_offset > 5
        assert rest == behind == [f"m{number}" for number in range(moved.to_offset, 40)]


def test_a_missing_file_is_damage(root: Path) -> None:
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        put(writer, *(f"m{number}" for number in range(40)))
    (root / "commitlog" / f"{1000:020d}").unlink()
    with LiveStore(root, CONFIG) as live:
        follower = LogFollower(live, 0)
        found = [one for _ in range(4) for one in bodies(live, follower.look())]
        (damage,) = [one for one in found if isinstance(one, Damage)]
        assert (damage.physical_offset, damage.length) == (1000, 1000)
        assert damage.reason == "commitlog-file-missing"
        assert found[-1] == "m39"


def test_a_file_without_its_length_is_waited_for(root: Path, writer: MessageStore) -> None:
    """A broker makes the next file with length 0 and maps it then."""
    put(writer, *(f"m{number}" for number in range(5)))
    with LiveStore(root, CONFIG) as live:
        log, queue = LogFollower(live, 0), QueueFollower(live, "T", 0, 0)
        empty = [root / "commitlog" / f"{1000:020d}", root / "consumequeue/T/0" / f"{100:020d}"]
        for path in empty:
            path.touch()
        assert [one for _ in range(3) for one in bodies(live, log.look())][-1] == "m4"
        assert [one for _ in range(3) for one in bodies(live, queue.look())] == []
        for path in empty:
            path.unlink()
        put(writer, *(f"m{number}" for number in range(5, 9)))
        wanted = [f"m{number}" for number in range(9)]
        assert [one for _ in range(3) for one in bodies(live, log.look())] == wanted[5:]
        assert [one for _ in range(3) for one in bodies(live, queue.look())] == wanted


def test_a_store_that_stays_between_two_states_is_an_error(
    root: Path, writer: MessageStore
) -> None:
    put(writer, "a")
    (root / "consumequeue/T/0" / f"{100:020d}").touch()
    with LiveStore(root, CONFIG) as live:
        queue = QueueFollower(live, "T", 0, 0)
        with pytest.raises(Exception, match="expected"):
            for _ in range(100):
                assert bodies(live, queue.look()) == []


def test_a_log_that_has_gone_is_waited_for_and_then_an_error(root: Path, tmp_path: Path) -> None:
    """A disk that is no longer mounted leaves an empty directory."""
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        put(writer, "a", "b")
    with LiveStore(root, CONFIG) as live:
        log, queue = LogFollower(live, 0), QueueFollower(live, "T", 0, 0)
        assert [one for _ in range(2) for one in bodies(live, log.look())] == ["a", "b"]
        assert [one for _ in range(2) for one in bodies(live, queue.look())] == ["a", "b"]
        (root / "commitlog").rename(tmp_path / "elsewhere")
        for _ in range(20):
            assert bodies(live, log.look()) == bodies(live, queue.look()) == []
        (tmp_path / "elsewhere").rename(root / "commitlog")
        assert bodies(live, log.look()) == bodies(live, queue.look()) == []
        (root / "commitlog").rename(tmp_path / "elsewhere")
        for follower in (log, queue):
            with pytest.raises(LogGone, match="its log has no file any more"):
                for _ in range(100):
                    assert bodies(live, follower.look()) == []


def test_a_queue_that_comes_later(root: Path, writer: MessageStore) -> None:
    with LiveStore(root, CONFIG) as live:
        queue = QueueFollower(live, "T", 0, None, TagFilter("b"))
        assert bodies(live, queue.look()) == []
        put(writer, "a1", "b1", "a2", "b2", "a3")
        assert bodies(live, queue.look()) == ["b1", "b2"]
        assert (bodies(live, queue.look()), queue.offset) == ([], 5)


def test_units_ahead_of_their_records_wait(root: Path, writer: MessageStore) -> None:
    """What a recovered log has lost, its queue may still point at."""
    offsets = put(writer, "a", "b", "c")
    mapped, position = writer.commit_log.locate(offsets[2])
    mapped.write(position + 4, bytes(4))
    with LiveStore(root, CONFIG) as live:
        queue = QueueFollower(live, "T", 0, 0)
        assert [one for _ in range(3) for one in bodies(live, queue.look())] == ["a", "b"]
        mapped.write(position + 4, MESSAGE_MAGIC_CODE.to_bytes(4, "big"))
        assert bodies(live, queue.look()) == ["c"]


@settings(max_examples=times(30), deadline=None)
@given(st.data())
def test_whatever_the_bytes_a_follower_goes_on(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Damaged bytes before and while they are followed: no error, no loop, nothing made up."""
    root = tmp_path_factory.mktemp("hostile") / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        put(writer, *(f"m{number}" for number in range(25)))
    files = [*(root / "commitlog").iterdir(), *(root / "consumequeue/T/0").iterdir()]
    files.sort()

    def damage() -> None:
        path = data.draw(st.sampled_from(files))
        bytes_ = data.draw(st.binary(min_size=1, max_size=12))
        with path.open("r+b") as file:
            file.seek(data.draw(st.integers(0, path.stat().st_size - len(bytes_))))
            file.write(bytes_)

    with LiveStore(root, CONFIG) as live:
        log, queue = LogFollower(live, 0), QueueFollower(live, "T", 0, 0)
        for _ in range(4):
            damage()
            found = [one for _ in range(2) for one in log.look()]
            assert len(found) < 200
            assert all(
                one.physical_offset % 1000 + 91 <= 1000 for one in found if isinstance(one, Record)
            )
            assert len([one for _ in range(2) for one in queue.look()]) < 200


def test_what_was_read_before_it_was_deleted_is_not_told_again(root: Path) -> None:
    """Retention behind a follower: no jump, and no message twice."""
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        put(writer, *(f"m{number}" for number in range(25)))
        first = writer.commit_log.files.entries[0]
    with LiveStore(root, CONFIG) as live:
        log, queue = LogFollower(live, 0), QueueFollower(live, "T", 0, 0)
        wanted = [f"m{number}" for number in range(25)]
        for follower in (log, queue):
            assert [one for _ in range(2) for one in bodies(live, follower.look())] == wanted
        first.path.unlink()
        sorted((root / "consumequeue/T/0").iterdir())[0].unlink()
        with MessageStore(root, CONFIG, writable=True) as writer:
            put(writer, "x", "y")
        for follower in (log, queue):
            assert [one for _ in range(2) for one in bodies(live, follower.look())] == ["x", "y"]


def test_a_log_that_is_another_is_read_from_a_files_start(root: Path, tmp_path: Path) -> None:
    """Nothing that was read is left: where the old records began the new ones need not begin."""
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        put(writer, "first", "second", "third")
    with MessageStore(tmp_path / "other", CONFIG, writable=True, create=True) as writer:
        put(writer, *(f"other and longer {number}" for number in range(5)))
    with LiveStore(root, CONFIG) as live:
        log = LogFollower(live, 0)
        assert len([one for _ in range(2) for one in bodies(live, log.look())]) == 3
        log = LogFollower(live, bodies_at(root)[1])
        assert len([one for _ in range(2) for one in bodies(live, log.look())]) == 2
        end = log.offset
        name = f"commitlog/{0:020d}"
        (root / name).write_bytes((tmp_path / "other" / name).read_bytes())
        moved, *found = [one for _ in range(2) for one in bodies(live, log.look())]
        assert moved == Moved("end-moved-back", end, 0)
        assert found == [f"other and longer {number}" for number in range(5)]


def bodies_at(root: Path) -> list[int]:
    """Where the records of a store begin."""
    with MessageStore(root, CONFIG) as store:
        return [e.physical_offset for e in store.commit_log.walk() if isinstance(e, Record)]


def test_a_queue_that_was_written_over_is_read_again(root: Path) -> None:
    """As long as before, with other messages at its end: its length tells nothing."""
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        offsets = put(writer, "a", "b", "c", "d")
    with LiveStore(root, CONFIG) as live:
        queue = QueueFollower(live, "T", 0, 0)
        assert len([one for _ in range(2) for one in bodies(live, queue.look())]) == 4
        cut(root, offsets[2])
        with MessageStore(root, CONFIG, writable=True) as writer:
            put(writer, "CC", "DD")
        found = [one for _ in range(2) for one in bodies(live, queue.look())]
        # The unit of the first of the two is what it was: the same place, another size.
        assert found == [Moved("end-moved-back", 4, 2), "CC", "DD"]


def test_a_gap_is_told_when_it_stays(root: Path) -> None:
    """At one look a file may just be on its way."""
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        put(writer, *(f"m{number}" for number in range(40)))
    missing = root / "commitlog" / f"{1000:020d}"
    data = missing.read_bytes()
    missing.unlink()
    with LiveStore(root, CONFIG) as live:
        log = LogFollower(live, 0)
        before = bodies(live, log.look())
        assert log.offset == 1000 and not any(isinstance(one, Damage) for one in before)
        missing.write_bytes(data)
        after = [one for _ in range(2) for one in bodies(live, log.look())]
        assert before + after == [f"m{number}" for number in range(40)]
