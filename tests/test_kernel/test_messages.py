"""The kernel stores what the pure engine stores of a stream of messages: every byte and answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl import kernel
from rmqctl.engine.derive.catchup import CatchUp
from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.write import compiled
from rmqctl.engine.write import messages as engine_messages
from rmqctl.engine.write.bulk import Message, PropertyEncoder, plain
from rmqctl.errors import TopicNotAllowed
from tests.seeds import times
from tests.test_kernel.alike import assert_alike, files_of
from tests.test_kernel.test_single import CONFIG, NOW, OTHERS, odd, usual

pytestmark = pytest.mark.usefixtures("compiled")

ROOMY = parse_broker_conf("mappedFileSizeCommitLog=8388608\nmaxHashSlotNum=100\nmaxIndexNum=50000")
encode = PropertyEncoder()


def as_plain(message: MessageExtBrokerInner) -> Message:
    """The same message as ``put --from`` has it."""
    return plain(message, encode) or message


class Broken(Exception):
    """What a source of messages raises."""


def source(given: list[Any]) -> Iterator[Any]:
    for one in given:
        if one is Broken:
            raise Broken("it ends here")
        yield one


def run(choice: str, given: list[Any], config: MessageStoreConfig) -> Any:
    ticks = iter(range(NOW, NOW + 1_000_000, 7))
    answers: list[Any] = []
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv(kernel.VARIABLE, choice)
        root = Path(directory) / "store"
        now = NOW

        def clock() -> int:
            return now

        with MessageStore(root, config, writable=True, create=True, clock=clock) as store:
            for part in range(0, len(given), 20):
                now = next(ticks) + 900 * part
                try:
                    for bulk in store.put_stream(source(given[part : part + 20]), flush=False):
                        assert len(bulk) == len([*bulk])
                        assert [asdict(bulk[at]) for at in range(len(bulk))] == [
                            asdict(result) for result in bulk
                        ]
                        answers += [asdict(result) for result in bulk]
                        store.put_message(MessageExtBrokerInner("between", b""), flush=False)
                except (TopicNotAllowed, Broken) as error:
                    answers.append(str(error))
            for answer in answers:
                if not isinstance(answer, str) and answer["append"] is not None:
                    answer["append"]["page_cache_rt"] = 0
            assert store.dispatch_behind_bytes == 0
            stats = store.writer.stats
            answers.append((stats.put_message_topic_size_total, stats.put_message_failed_times))
        files = files_of(root)
    return answers, files


def assert_equal(given: list[Any], config: MessageStoreConfig) -> None:
    assert_alike(lambda choice: run(choice, given, config))


either = usual | usual.map(as_plain)
#: None: there is no more for now.
any_one = st.one_of(either, either, odd, odd.map(as_plain), st.none(), st.just(Broken))


@settings(max_examples=times(20), deadline=None)
@given(st.lists(either, max_size=60))
def test_usual_messages(messages: list[Any]) -> None:
    assert_equal(messages, CONFIG)


@settings(max_examples=times(25), deadline=None)
@given(st.lists(any_one, max_size=25), st.sampled_from([CONFIG, *OTHERS]))
def test_any_messages(messages: list[Any], config: MessageStoreConfig) -> None:
    assert_equal([*messages, *messages], config)


def test_more_than_a_bulk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernel takes all but the first of each queue and of each file of the log, and what it
    has dispatched is not read back."""
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    singly: list[Any] = []
    read_back: list[int] = []
    put_special, dispatch = engine_messages.MessageAppender._put_special, CatchUp._dispatch

    def noted(appender: Any, message: Any, stored: Any) -> Any:
        singly.append(message)
        return put_special(appender, message, stored)

    def noted_dispatch(tail: Any, start: int, end: int, *, restoring: bool) -> None:
        read_back.append(end - start)
        dispatch(tail, start, end, restoring=restoring)

    monkeypatch.setattr(engine_messages.MessageAppender, "_put_special", noted)
    monkeypatch.setattr(CatchUp, "_dispatch", noted_dispatch)
    sent = [
        MessageExtBrokerInner(
            f"t{n % 7}",
            b"x" * (n % 900),
            n % 5,
            properties={"KEYS": f"k{n}", "TAGS": f"g{n % 3}"},
            store_host=(bytes((10, 0, 0, n // 10_000)), 10911),
        )
        for n in range(40_000)
    ]
    with MessageStore(tmp_path / "store", ROOMY, writable=True, create=True) as store:
        begin = system_clock()
        bulks = list(store.put_stream(sent, flush=False))
        end = system_clock()
        results = [result for bulk in bulks for result in bulk]
        assert len(results) == 40_000 and len(bulks) > 1
        assert bulks[0][0] == results[0] and bulks[-1][-1] == results[-1]
        assert bulks[0][3:5] == results[3:5]
        assert len(singly) < 50 and sum(read_back) < 50_000
        for number in (0, 9_999, 10_000, 39_999):
            result = results[number].stored
            assert result is not None and begin <= result.store_timestamp <= end
            record = store.commit_log.record_at(result.wrote_offset)
            assert record.store_timestamp == result.store_timestamp
            assert record.store_host == f"10.0.0.{number // 10_000}:10911"
            found = store.query_message(f"t{number % 7}", f"k{number}")
            assert [one.hit.item.physical_offset for one in found] == [result.wrote_offset]


def in_one_go(count: int) -> Iterator[MessageExtBrokerInner]:
    """So many messages, of which some are odd, and then an error."""
    for n in range(count):
        properties = {"KEYS": f"k{n} k{n % 9}", "TAGS": f"g{n % 3}", "UNIQ_KEY": f"u{n}"}
        if n % 977 == 500:
            properties["DELAY"] = "1"
        yield MessageExtBrokerInner(
            f"t{n % 7}", b"x" * (n * 37 % 1900), n % 5, properties=properties, born_timestamp=n
        )
    raise Broken("it ends here")


def test_what_one_thread_makes_and_another_one_stores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A long stream is stored as a single thread does it, to the last message before an error; so
    are the items of its keys."""

    def run_one(choice: str) -> Any:
        monkeypatch.setenv(kernel.VARIABLE, choice)
        answers: list[Any] = []
        root = tmp_path / choice
        with MessageStore(root, ROOMY, writable=True, create=True, clock=lambda: NOW) as store:
            with pytest.raises(Broken):
                for bulk in store.put_stream(in_one_go(4_000), flush=False):
                    answers += [asdict(result) for result in bulk]
            assert len(answers) == 4_000 and store.dispatch_behind_bytes == 0
            for answer in answers:
                answer["append"]["page_cache_rt"] = 0
        return answers, files_of(root)

    assert_alike(run_one)


def test_a_bulk_that_ends_with_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its limit lies in what the next message does not fit into, which goes to the next file."""
    monkeypatch.setattr(compiled, "_BULK_BYTES", 4050)
    logs: list[bytes] = []
    for choice in ("compiled", "pure"):
        monkeypatch.setenv(kernel.VARIABLE, choice)
        root = tmp_path / choice
        with MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: NOW) as store:
            sent = [MessageExtBrokerInner("t", b"x" * 700) for _ in range(20)]
            results = [result for bulk in store.put_stream(sent) for result in bulk]
            assert [result.is_ok for result in results] == [True] * 20
        logs.append(b"".join(path.read_bytes() for path in sorted(root.glob("commitlog/*"))))
    assert logs[0] == logs[1]


@pytest.mark.parametrize("choice", ["compiled", "pure"])
def test_what_gives_messages_puts_none_itself(
    choice: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would store where the messages stand that it has given before."""
    monkeypatch.setenv(kernel.VARIABLE, choice)
    with MessageStore(tmp_path / "store", ROOMY, writable=True, create=True) as store:
        for _ in range(20):
            store.put_message(MessageExtBrokerInner("t", b"before"), flush=False)
        sent = [MessageExtBrokerInner("t", b"%d" % number) for number in range(6)]
        inner = MessageExtBrokerInner("t", b"inner")
        ways: list[Callable[[], object]] = [
            lambda: store.put_message(inner),
            lambda: store.put_messages([inner]),
            lambda: store.put_batch([inner]),
            lambda: list(store.put_stream([inner])),
        ]

        def given() -> Iterator[MessageExtBrokerInner]:
            yield from sent[:2]
            for one, put in zip(sent[2:], ways, strict=True):
                with pytest.raises(RuntimeError, match="put it when the stream has ended"):
                    put()
                store.flush()
                yield one

        assert [len(bulk) for bulk in store.put_stream(given())] == [6]
        assert store.put_message(inner).is_ok
        records = store.get_message("t", 0, 20).records
        bodies = [store.body(record) for record in records]
    assert bodies == [b"0", b"1", b"2", b"3", b"4", b"5", b"inner"]


def test_a_short_stream_starts_no_thread(tmp_path: Path) -> None:
    """The start of one costs more than it stores; a long stream has one, where there are two
    processors."""
    module = kernel.module()
    assert module is not None
    names: set[str] = set()

    def given(count: int) -> Iterator[MessageExtBrokerInner]:
        for _ in range(count):
            for task in Path("/proc/self/task").iterdir():
                with suppress(OSError):  # It may be over.
                    names.add((task / "comm").read_text().strip())
            yield MessageExtBrokerInner("t", bytes(1000))

    with MessageStore(tmp_path / "store", ROOMY, writable=True, create=True) as store:
        list(store.put_stream(given(400), flush=False))
        assert names and "store" not in names
        # Who makes these waits for who stores them at times: it is seen.
        list(store.put_stream(given(3000), flush=False))
        assert ("store" in names) == module.stores_behind()
