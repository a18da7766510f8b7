"""Single messages that the kernel stores are what the pure engine stores: every byte and answer."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl import kernel
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.write import single, storewriter
from rmqctl.errors import TopicNotAllowed
from tests.seeds import times

pytestmark = pytest.mark.usefixtures("compiled")

SMALL = (
    "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=100\nmaxMessageSize=1500\n"
    "maxHashSlotNum=20\nmaxIndexNum=30\n"
)
CONFIG = parse_broker_conf(SMALL)
OTHERS = [
    parse_broker_conf(SMALL + "enableMultiDispatch=true\nenableLmq=true"),
    parse_broker_conf(SMALL + "enableConsumeQueueExt=true"),
    parse_broker_conf(SMALL + "messageIndexEnable=false"),
]
NOW = 1_700_000_000_000

hosts = st.sampled_from(
    [(b"\x7f\0\0\1", 0), (b"\x0a\1\2\3", 65535), (b"\x0a\1\2\3", 65536), (bytes(16), 9)]
)
texts = st.sampled_from(["", "a", "k1 k2", " k ", "é", "\x01", "\0", "\ud800", "x" * 200])
names = st.sampled_from(
    ["KEYS", "TAGS", "UNIQ_KEY", "DELAY", "INNER_MULTI_DISPATCH", "WAIT", "a", "Aa", "BB", "", "é"]
)
usual_names = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "a", "Aa", "BB", "é"])
usual = st.builds(
    MessageExtBrokerInner,
    st.sampled_from(["a", "b", "é"]),
    st.binary(max_size=30) | st.just(b"x" * 900),
    st.integers(0, 2),
    flag=st.integers(-5, 5),
    properties=st.dictionaries(usual_names, st.sampled_from(["a", "k1 k2", " k ", "é", ""])),
    born_timestamp=st.integers(-1, 1 << 62),
    born_host=hosts.filter(lambda host: len(host[0]) == 4 and host[1] < 65536),
    reconsume_times=st.integers(0, 3),
    prepared_transaction_offset=st.integers(0, 9),
)
odd = st.builds(
    MessageExtBrokerInner,
    st.sampled_from(["a", "..", "", "t" * 128, "SCHEDULE_TOPIC_XXXX"]),
    st.binary(max_size=30) | st.just(b"x" * 1500),
    st.integers(-1, 2),
    sys_flag=st.sampled_from([0, 4, 8, 12, 1]),
    properties=st.dictionaries(names, texts, max_size=4),
    properties_bytes=st.sampled_from([None, None, b"", b"TAGS\x01t", b"\x02\x01"]),
    born_host=hosts,
    store_host=hosts,
)


def answer(store: MessageStore, number: int, message: MessageExtBrokerInner) -> Any:
    try:
        if number % 11 == 10:  # Some go another way.
            (result,) = store.put_messages([message], flush=False)
        elif number % 13 == 12:
            ((result,),) = store.put_stream([message], flush=False)
        else:
            result = store.put_message(message, flush=False)
    except TopicNotAllowed as error:
        return str(error)
    said = asdict(result)
    if result.append is not None:
        said["append"]["page_cache_rt"] = 0
    return said


def run(choice: str, messages: list[MessageExtBrokerInner], config: MessageStoreConfig) -> Any:
    now = NOW
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv(kernel.VARIABLE, choice)
        patch.setattr(storewriter, "_FEW_SINGLES", 1)
        root = Path(directory) / "store"
        store = MessageStore(root, config, writable=True, create=True, clock=lambda: now)
        with store:
            answers: list[Any] = []
            for number, message in enumerate(messages):
                now = NOW + 300 * number
                answers.append(answer(store, number, message))
            answers.append(store.get_message("a", 0, 0).status)
            assert store.dispatch_behind_bytes == 0
            stats = store.writer.stats
            answers.append((stats.put_message_topic_size_total, stats.put_message_failed_times))
        # The index's files have their names from the clock of the machine.
        files = [
            (str(path.relative_to(root)) if path.parent.name != "index" else "", path.read_bytes())
            for path in sorted(root.rglob("*"))
            if path.is_file()
        ]
    return answers, files


def assert_equal(messages: list[MessageExtBrokerInner], config: MessageStoreConfig) -> None:
    answers, files = run("compiled", messages, config)
    expected, stored = run("pure", messages, config)
    assert answers == expected
    assert [name for name, _ in files] == [name for name, _ in stored]
    assert files == stored


@settings(max_examples=times(15), deadline=None)
@given(st.lists(usual, max_size=40))
def test_usual_messages(messages: list[MessageExtBrokerInner]) -> None:
    assert_equal(messages, CONFIG)


@settings(max_examples=times(15), deadline=None)
@given(st.lists(usual | odd, max_size=25), st.sampled_from([CONFIG, *OTHERS]))
def test_any_messages(messages: list[MessageExtBrokerInner], config: MessageStoreConfig) -> None:
    assert_equal([*messages, *messages], config)


def test_the_kernel_stores_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of plain messages, but the first ones of a store and of a queue, and of a file."""
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    done: list[bool] = []
    append = single.QuickPutter.append

    def noted(putter: single.QuickPutter, message: MessageExtBrokerInner) -> Any:
        appended = append(putter, message)
        done.append(appended is not None)
        return appended

    monkeypatch.setattr(single.QuickPutter, "append", noted)
    with MessageStore(tmp_path / "store", writable=True, create=True) as store:
        for number in range(100):
            message = MessageExtBrokerInner(
                "t", b"x", number % 4, properties={"KEYS": f"k{number}"}
            )
            assert store.put_message(message, flush=number % 50 == 0).is_ok
        assert store.writer.stats.flush_times == 2
    assert len(done) == 100 - storewriter._FEW_SINGLES + 1 and all(done)
