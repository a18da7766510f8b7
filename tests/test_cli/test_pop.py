"""pop ls: what it says of stores that brokers of 5.3.3 have left, and of anybody's bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.services.pop import Place, parsed
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.engine.state.brokerjson import consumer_offsets
from rmqctl.operations.look.pop import Chosen, normal_topic, pops
from rmqctl.operations.verify import Finding, verify
from tests import golden_data
from tests.seeds import times
from tests.test_cli.conftest import CONFIG, NASTY, Cli

TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
PLACE = Place(TOPIC, 0, 0, 0)
Rows = list[dict[str, Any]]


class Left(NamedTuple):
    """A golden store, and what its broker said: when it was left, and what came back."""

    root: Path
    conf: str
    now: int
    given_back: set[tuple[str, str]]


@pytest.fixture(scope="module", params=["pop", "pop-killed"])
def left(request: pytest.FixtureRequest, golden_directory: Path) -> Iterator[Left]:
    root = golden_data.unpacked(request.param, golden_directory, golden_data.LATER)
    said = json.loads((golden_data.LATER / f"{request.param}.json").read_text("utf-8"))
    conf = "".join(f"{name}={value}\n" for name, value in said["config"].items())
    before = golden_data.state(root)
    yield Left(root, conf, said["now"], {(one[0], one[1]) for one in said["givenBack"]})
    assert golden_data.state(root) == before


def rows_of(left: Left, at: int | None = None, chosen: Chosen | None = None) -> Rows:
    with MessageStore(left.root, parse_broker_conf(left.conf)) as store:
        now = left.now if at is None else at
        return [dict(row) for row in pops(store, now, chosen or Chosen())]


def test_what_waits_is_what_the_broker_gave_back(left: Left) -> None:
    """Every message, and none beside them, into the retry topic that is named."""
    predicted = set()
    with MessageStore(left.root, parse_broker_conf(left.conf)) as store:
        for row in pops(store, left.now, Chosen()):
            if row["type"] != "pop_check_point":
                continue
            queue = store.consume_queue(row["topic"], row["queue_id"])
            assert queue is not None
            for offset in row["queue_offsets"]:
                unit = queue.unit(offset)
                assert unit is not None
                record = store.look_message_by_offset(unit.physical_offset)
                predicted.add((row["retry_topic"], record.properties["UNIQ_KEY"]))
    assert predicted == left.given_back


def test_acknowledged_and_taken_again(left: Left) -> None:
    rows = rows_of(left, chosen=Chosen(everything=True))
    seen = {
        (row["topic"], row["queue_id"], *row["queue_offsets"]): (row["messages"], row["acked"])
        for row in rows
        if row["type"] == "pop_check_point"
    }
    retry = "%RETRY%pickers_orders"
    assert seen[retry, 0, 0] == (1, 0)
    assert seen["orders", 0, 2, 6, 7] == (6, 3)
    assert seen["orders", 0] == (3, 3)
    assert seen["orders", 1, 0, 1, 2, 3] == (4, 0)
    # One was acknowledged, another made invisible for longer, with a check point of its own.
    assert seen["orders", 1, 6] == (3, 2)
    assert seen["orders", 1, 4] == (1, 0)
    orders = [row for row in rows if row["type"] == "pop_order"]
    found = {(row["topic"], row["state"], *row["queue_offsets"]) for row in orders}
    # Killed before it wrote the file for the first time, after ten seconds.
    assert found == ({("in_line", "blocked", 2, 3)} if left.root.name == "pop" else set())
    shown = sum(row["type"] == "pop_check_point" for row in rows_of(left))
    assert shown == len(seen) - 1 == rows[-1]["check_points"] - 1
    assert rows[-1]["acked"] == 1
    waiting = sum(row["waiting"] for row in rows if row["type"] == "pop_check_point")
    assert rows[-1]["messages"] == waiting


def test_by_another_time_it_is_due(left: Left) -> None:
    later = rows_of(left, left.now + 600_000)
    waiting = later[-1]["messages"]
    assert (later[-1]["due"], later[-1]["blocked_queues"]) == (waiting, 0)
    assert {row["state"] for row in later[:-1] if "state" in row} == {"due"}
    assert later[-1]["next_visible_timestamp"] is None
    sooner = rows_of(left, 0)
    assert (sooner[-1]["due"], sooner[-1]["messages"]) == (0, waiting)


def test_a_topic_has_what_came_back_of_it(left: Left) -> None:
    def topics(chosen: Chosen) -> set[str]:
        rows = rows_of(left, chosen=chosen)
        return {row["topic"] for row in rows if row["type"] in ("pop_check_point", "pop_order")}

    assert topics(Chosen(topic="orders")) == {"orders", "%RETRY%pickers_orders"}
    assert topics(Chosen(topic="in_line")) <= {"in_line"}
    assert topics(Chosen(group="others")) == set()
    limited = rows_of(left, chosen=Chosen(limit=1))
    assert sum(row["type"] == "pop_check_point" for row in limited) == 1
    assert limited[-1] == rows_of(left)[-1]


def test_groups_of_a_topic_have_what_came_back_of_it(left: Left, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(left.conf)
    more = ("--store", left.root, "--broker-conf", tmp_path / "conf", "--format", "ndjson")
    told = {topic for topic, group in consumer_offsets(left.root, None) if group == "pickers"}
    assert left.root.name != "pop" or {"orders", "%RETRY%pickers_orders"} <= told
    for topic in ("orders", "in_line"):
        rows = cli("groups", "--topic", topic, *more).rows
        wanted = {name for name in told if normal_topic(name, "pickers") == topic}
        assert {row["topic"] for row in rows[:-1]} == wanted


def test_v2_retry_topics(left: Left) -> None:
    newer = left._replace(conf=left.conf + "enableRetryTopicV2=true\n")
    topics = {row["retry_topic"] for row in rows_of(newer) if row["type"] == "pop_check_point"}
    assert topics == {"%RETRY%pickers+orders", "%RETRY%pickers_orders"}
    assert normal_topic("%RETRY%g+a_b", "g") == normal_topic("%RETRY%g_a_b", "g") == "a_b"
    assert normal_topic("%RETRY%g", "g") == "%RETRY%g"


def test_some_stand_in_the_revive_topic_already(left: Left) -> None:
    places = {row["revive_offset"] for row in rows_of(left) if row["type"] == "pop_check_point"}
    assert None in places
    assert (places != {None}) == (left.root.name == "pop-killed")


def test_such_a_store_is_sound(left: Left) -> None:
    found = verify(left.root, parse_broker_conf(left.conf))
    assert {one.severity for one in found if isinstance(one, Finding)} <= {"info"}


# --- a store that is made by hand ----------------------------------------------------------------


def check_point(**more: object) -> dict[str, object]:
    fields: dict[str, object] = {"so": 0, "pt": 1000, "it": 500, "bm": 0, "n": 2, "q": 0}
    return {**fields, "t": "orders", "c": "g", "d": [0, 1], "bn": "b", **more}


def revive(store: MessageStore, tag: str, body: bytes) -> None:
    message = MessageExtBrokerInner(TOPIC, body, 0, properties={"TAGS": tag, "UNIQ_KEY": "u"})
    assert store.put_message(message).is_ok


def made(root: Path, bodies: list[tuple[str, bytes]]) -> Path:
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        for number in range(3):
            body = str(number).encode()
            assert store.put_message(MessageExtBrokerInner("orders", body, 0)).is_ok
        for tag, body in bodies:
            revive(store, tag, body)
    return root


def test_acknowledgements_count_in_the_order_of_the_topic(tmp_path: Path, cli: Cli) -> None:
    """One before its check point counts for nothing; several at once, by long names, do."""
    early = {"ao": 0, "so": 0, "c": "g", "t": "orders", "q": 0, "pt": 1000}
    long = {"ackOffsetList": [1, 77], "startOffset": 0, "consumerGroup": "g", "topic": "orders"}
    root = made(
        tmp_path / "store",
        [
            ("ack", json.dumps(early).encode()),
            ("ck", json.dumps(check_point()).encode()),
            ("bAck", json.dumps({**long, "queueId": 0, "popTime": 1000}).encode()),
            ("ck", json.dumps(check_point(so=2, d=None, n=4, bm=8)).encode()),
        ],
    )
    done = cli("pop", "ls", "--now", "1600", "--format", "ndjson", store=root)
    first, second, queue, summary = done.rows
    assert (first["queue_offsets"], first["acked"], first["lost"]) == ([0], 1, 0)
    # Of messages that are not in their queue none comes back.
    assert (second["queue_offsets"], second["acked"], second["lost"]) == ([2, 3, 4], 1, 2)
    assert "2 messages are no longer in a queue" in done.err
    assert (queue["progress"], queue["behind"]) == (None, 4)
    assert (summary["due"], summary["lost"], summary["unreadable"]) == (4, 2, 0)
    # The progress is the offset of the last check point that was dealt with.
    (root / "config").mkdir(exist_ok=True)
    place = f"{TOPIC}@CID_RMQ_SYS_REVIVE_GROUP"
    (root / "config/consumerOffset.json").write_text(f'{{"offsetTable":{{"{place}":{{0:1}}}}}}')
    done = cli("pop", "ls", "--now", "1600", "--format", "ndjson", store=root)
    assert [row["queue_offsets"] for row in done.rows[:-2]] == [[2, 3, 4]]
    assert done.rows[-2]["behind"] == 2


HOSTILE = [
    b"",
    b"[" * 1500,
    b"null",
    b'{"n":99999999999999999999}',
    json.dumps(check_point(n=127, d=[0])).encode(),
    json.dumps(check_point(n=-1)).encode(),
    json.dumps(check_point(it=2**63 - 1)).encode(),
    json.dumps(check_point(t=7)).encode(),
    json.dumps(check_point(d=["x", 1])).encode(),
    b"1" * 1500,
]


def test_hostile_check_points(tmp_path: Path, cli: Cli) -> None:
    """They are counted; a name from a store reaches no terminal as it is."""
    nasty = json.dumps(check_point(t=NASTY, c="\ud800")).encode()
    root = made(tmp_path / "store", [("ck", one) for one in (*HOSTILE, nasty)])
    for form in ("table", "ndjson", "json", "csv"):
        done = cli("pop", "ls", "--format", form, store=root)
        assert done.code == 0
        assert "\x1b" not in done.out and "Traceback" not in done.err
    done = cli("pop", "ls", "--now", "0", "--format", "ndjson", store=root)
    *rows, _, summary = done.rows
    assert summary["unreadable"] == len(HOSTILE)
    assert [(row["topic"], row["group"]) for row in rows] == [(NASTY, "?")]


@pytest.mark.parametrize("body", [b"[" * 60_000, b'{"t":' * 10_000, b"1" * 60_000])
def test_bodies_that_are_hard_to_parse(body: bytes) -> None:
    assert parsed(body, "ck", PLACE) is None


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
_NAMES = st.sampled_from([*check_point(), "ao", "aol", "rp", "startOffset"])


@settings(max_examples=times(100))
@given(st.dictionaries(_NAMES, _VALUES), st.sampled_from(["ck", "ack", "bAck", "x"]), st.booleans())
def test_any_json_is_read_or_counted(fields: dict[str, Any], tag: str, full: bool) -> None:
    body = json.dumps({**check_point(), **fields} if full else fields).encode()
    read = parsed(body, tag, PLACE)
    assert tag != "x" or read is None


@settings(max_examples=times(100))
@given(st.binary(max_size=200), st.sampled_from(["ck", "ack", "bAck"]))
def test_any_bytes_are_read_or_counted(body: bytes, tag: str) -> None:
    parsed(body, tag, PLACE)


# --- consumerOrderInfo.json ----------------------------------------------------------------------

ORDER = '{"popTime":1000,"i":500,"o":[5,1,2],"cm":2,"ot":{7:9000}}'


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f'{{"table":{{"orders@g":{{0:{ORDER}}}}}}}', None),
        (f'{{"table":{{"orders":{{0:{ORDER}}}}}}}', "config-entry-malformed"),
        ('{"table":{"orders@g":{0:{"o":[]}}}}', "config-entry-malformed"),
        ('{"table":{"orders@g":7}}', "config-entry-malformed"),
        ('{"table":7}', "config-entry-malformed"),
        ("{", "config-unreadable"),
    ],
)
def test_order_infos(tmp_path: Path, cli: Cli, text: str, code: str | None) -> None:
    root = made(tmp_path / "store", [])
    (root / "config").mkdir(exist_ok=True)
    (root / "config/consumerOrderInfo.json").write_text(text)
    checked = cli("config", "check", "--format", "ndjson", store=root)
    codes = {row["code"] for row in checked.rows if "OrderInfo" in str(row.get("path"))}
    assert codes == ({code} if code else set())
    done = cli("pop", "ls", "--now", "2000", "--format", "ndjson", store=root)
    if code == "config-unreadable":
        assert (done.code, "consumerOrderInfo.json" in done.err) == (5, True)
        return
    orders = [row for row in done.rows if row["type"] == "pop_order"]
    assert len(orders) == (code is None)
    for row in orders:
        # Of the one that was made invisible for longer the queue is still blocked.
        assert (row["state"], row["queue_offsets"]) == ("blocked", [5, 7])
        assert (row["visible_timestamp"], row["remaining_milliseconds"]) == (9000, 7000)
