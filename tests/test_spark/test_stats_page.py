"""stats: the numbers are the log's, and the page shows a store's words as text."""

from __future__ import annotations

import re
import shutil
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.cli import statspage
from rmqctl.cli.statspage import page
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from tests import golden_data
from tests.browser import find_browser, opened, with_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")
HOSTILE = "<script>document.title='owned'</script>"
_HOUR = 3_600_000
NOW = 1_795_132_800_000  # 2026-11-20 00:00 UTC
HERE = Path(statspage.__file__).parent


def test_numbers_are_those_of_the_log(spark: SparkSession, golden: Callable[[str], Path]) -> None:
    from rmqctl.spark.report.stats import statistics

    root = golden("broker")
    rows = list(statistics(spark, [str(root)], {}, 1000))
    with MessageStore(root, golden_data.broker_conf("broker")) as store:
        records = [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]
    counted = {r["topic"]: r["messages"] for r in rows if r["type"] == "topic"}
    assert counted == Counter(record.topic for record in records)
    sizes = {(r["topic"], r["queue_id"]): r["bytes"] for r in rows if r["type"] == "queue"}
    expected: Counter[tuple[str, int]] = Counter()
    for record in records:
        expected[record.topic, record.queue_id] += record.total_size
    assert sizes == expected
    tags = {(r["topic"], r["tag"]): r["messages"] for r in rows if r["type"] == "tag"}
    assert tags == Counter((record.topic, record.properties.get("TAGS")) for record in records)
    hours = {r["hour"]: r["messages"] for r in rows if r["type"] == "hour"}
    assert hours == Counter(record.store_timestamp // _HOUR * _HOUR for record in records)
    keys = Counter(
        (record.topic, kind, key)
        for record in records
        for kind in ("KEYS", "UNIQ_KEY")
        for key in set(record.properties.get(kind, "").split(" ")) - {""}
    )
    duplicates = {
        (r["topic"], r["kind"], r["key"]): r["messages"]
        for r in rows
        if r["type"] == "duplicate_key"
    }
    assert duplicates == {key: count for key, count in keys.items() if count > 1}
    summary = rows[-1]
    assert summary["messages"] == len(records)
    assert summary["retries"] == sum(r.topic.startswith("%RETRY%") for r in records)
    assert summary["dead_letters"] == sum(r.topic.startswith("%DLQ%") for r in records)
    for kind in ("size", "delay", "producer"):
        assert sum(r["messages"] for r in rows if r["type"] == kind) == len(records)


@pytest.fixture(params=["few groups", "many groups"])
def groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The driver sums up, or jobs do."""
    if request.param == "many groups":
        monkeypatch.setattr("rmqctl.spark.report.stats._FEW", 1)
    return str(request.param)


@pytest.mark.parametrize(
    ("name", "groups"),
    [("broker", "few groups"), ("broker", "many groups"), ("ipv6", "few groups")],
    indirect=["groups"],
)
def test_the_same_rows_without_spark(
    name: str, groups: str, spark: SparkSession, golden: Callable[[str], Path]
) -> None:
    from rmqctl.operations.look import stats
    from rmqctl.operations.look.waiting import waiting
    from rmqctl.rows.columns import broker_of
    from rmqctl.spark.report.stats import statistics

    root = golden(name)
    with MessageStore(root, golden_data.broker_conf(name)) as store:
        counted = [stats.StoreToCount(store, broker_of(str(root)), str(root))]
        waits = waiting([store], 7)
        here = list(stats.statistics(counted, 7, lambda done: None, waits))
    before = _jobs(spark)
    assert here == list(statistics(spark, [str(root)], {}, 7, waits))
    if groups == "few groups":
        # A scan, a sum and its result, of all groups and of all keys.
        assert _jobs(spark) - before <= 6


def _jobs(spark: SparkSession) -> int:
    """How many jobs a session has begun."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def test_small_stores_are_counted_without_a_job(
    spark: SparkSession, golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqctl.spark import store
    from rmqctl.spark.procedures import fewstats

    stores = store(str(golden("ipv6")), str(golden("crash")), spark=spark)
    before = _jobs(spark)
    here = stores.stats(7).rows
    assert _jobs(spark) == before
    monkeypatch.setattr(fewstats, "SMALL", 0)
    assert stores.stats(7).rows == here
    assert _jobs(spark) > before


def test_unreadable_places_and_an_empty_store_are_the_same_without_spark(
    groups: str, spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    from rmqctl.operations.look import stats
    from rmqctl.rows.columns import broker_of
    from rmqctl.rows.sections import Waiting
    from rmqctl.spark.report.stats import statistics

    damaged, empty = tmp_path / "broker-d" / "store", tmp_path / "broker-e" / "store"
    shutil.copytree(golden("basic"), damaged)
    (empty / "commitlog").mkdir(parents=True)
    with MessageStore(damaged, golden_data.broker_conf("basic")) as store:
        offsets = [e.physical_offset for e in store.commit_log.walk() if isinstance(e, Record)]
    (log, *_) = sorted((damaged / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    for offset in offsets[1:8:3]:
        data[offset + 4 : offset + 8] = b"\xff" * 4
    log.write_bytes(data)
    last = max((damaged / "commitlog").iterdir())
    last.unlink()
    last.mkdir()
    text = golden_data.broker_conf_text("basic") + "\nfileReservedTime=48\n"
    config = parse_broker_conf(text)
    with MessageStore(damaged, config) as one, MessageStore(empty, config) as other:
        counted = [
            stats.StoreToCount(store, broker_of(str(root)), str(root))
            for store, root in ((one, damaged), (other, empty))
        ]
        here = list(stats.statistics(counted, 2, lambda done: None, Waiting()))
    there = statistics(spark, [str(damaged), str(empty)], {"brokerConf": text}, 2)
    assert here == list(there)
    places = [row["physical_offset"] for row in here if row["type"] == "unreadable"]
    assert places == [None, offsets[1]] and here[-1]["damages"] == 4
    logs = {row["store"]: row for row in here if row["type"] == "store"}
    assert logs[str(damaged)]["file_reserved_hours"] == 48
    assert logs[str(empty)]["first_store_timestamp"] is None


def rows() -> list[dict[str, Any]]:
    words = [HOSTILE, '"><img src=x onerror=alert(1)>', "&amp;", "a" * 120, "\x1b[31m"]
    topics = [
        {"type": "topic", "topic": word, "messages": 9 - n, "bytes": 1000 * (9 - n)}
        for n, word in enumerate(words)
    ]
    queues = [row | {"type": "queue", "queue_id": 0} for row in topics]
    tags = [row | {"type": "tag", "tag": HOSTILE} for row in topics]
    brokers = [row | {"type": "broker", "broker": row["topic"]} for row in topics]
    hours = [
        {"type": "hour", "hour": NOW + n * _HOUR, "messages": n + 1, "bytes": 1}
        for n in range(30)
        if n != 7
    ]
    due = [hours[n] | {"type": "due"} for n in (1, 9)]
    keys = [
        {"type": "duplicate_key", "topic": HOSTILE, "kind": "KEYS", "key": w, "messages": 2}
        for w in words
    ]
    summary = {"type": "summary", "messages": 35, "bytes": 35_000, "retry_rate": 0.5, "damages": 9}
    stores = [store_row(word, NOW, NOW + 30 * _HOUR) for word in words]
    groups = [
        {"type": "consumer_group", "group": word, "retries": 3, "dead_letters": n, "bytes": 1}
        for n, word in enumerate(words)
    ]
    places = [
        {
            "type": "unreadable",
            "store": word,
            "physical_offset": 77,
            "length": None,
            "reason": word,
        }
        for word in words
    ]
    halves = [
        {"type": "half", "producer_group": word, "messages": 1, "oldest_born_timestamp": 1 << 62}
        for word in [*words, None]
    ]
    sections = (stores, brokers, topics, queues, tags, hours, groups, places, keys, due, halves)
    return [row for section in sections for row in section] + [summary]


def store_row(name: str, first: int | None, last: int | None) -> dict[str, Any]:
    return {
        "type": "store",
        "store": name,
        "first_store_timestamp": first,
        "last_store_timestamp": last,
        "file_reserved_hours": 24,
    }


def scripts(text: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", text, re.DOTALL)


def cards(text: str) -> dict[str, str]:
    """What stands in each card, by its heading."""
    found = re.findall(r"<section[^>]*><h2>([^<]*)</h2>(.*?)</section>", text, re.DOTALL)
    return dict(found)


def labels(card: str) -> list[str]:
    """The first and the last column of a card's bars."""
    return re.findall(r"<span>(.*?)</span>", card)


def test_a_page_holds_words_as_text_and_needs_nothing() -> None:
    text = page(rows(), HOSTILE)
    own = [(HERE / name).read_text() for name in ("uPlot.iife.min.js", "page.js")]
    assert scripts(text) == own
    assert text.count("<script") == len(own) + text.count('<script type="application/json">') == 4
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    hashes = [b64encode(sha256(script.encode()).digest()).decode() for script in own]
    assert policy.startswith("default-src 'none'; ")
    assert re.findall(r"script-src ([^;]*);", policy) == [
        " ".join(f"'sha256-{digest}'" for digest in hashes)
    ]
    for data in re.findall(r'<script type="application/json">(.*?)</script>', text):
        assert re.fullmatch(r"[0-9,\[\]]+", data)
    assert "<img" not in text and " src=" not in text.replace("img src=x", "")
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text
    assert re.findall(r"https?://[^\s\"']*", text) == ["https://github.com/leeoniya/uPlot"]
    assert "prefers-color-scheme" in text
    assert text.count("<svg") > 20


def test_a_page_of_nothing_is_a_page() -> None:
    summary = dict.fromkeys(("messages", "bytes", "topics", "queues", "damages"), 0)
    text = page([{"type": "summary"} | summary, store_row("empty", None, None)], "empty")
    assert labels(cards(text)["Messages"]) == [] and "none" in cards(text)["Messages"]
    assert "<figure" not in text and text.count("<dt>") == 10


def test_bytes_stand_by_bytes_and_bars_are_no_more_than_asked_for() -> None:
    topics = [
        {"type": "topic", "topic": "many", "messages": 90, "bytes": 90},
        {"type": "topic", "topic": "some", "messages": 50, "bytes": 50},
        {"type": "topic", "topic": "large", "messages": 1, "bytes": 3 << 20},
    ]
    found = cards(page([*topics, {"type": "summary", "messages": 141}], "x", 2))
    assert labels(found["Messages by topic"]) == ["many", "90", "some", "50"]
    assert labels(found["Bytes by topic"]) == ["large", "3 MiB", "many", "90 B"]


def test_one_hour_is_a_sentence_and_odd_hours_are_told() -> None:
    hour = {"type": "hour", "hour": NOW, "messages": 900, "bytes": 1 << 20}
    summary = {"type": "summary", "messages": 900}
    (said,) = re.findall("<h2>Messages by hour</h2>([^<]*)<", page([hour, summary], "one"))
    assert said == "900 messages, 1 MiB, all between 2026-11-20 00:00 and 01:00."
    odd = [hour | {"hour": value, "messages": 4} for value in (-_HOUR, 1 << 62)]
    later = hour | {"hour": NOW + _HOUR}
    text = cards(page([*odd, hour, later, summary], "odd"))["Messages by hour"]
    assert "8 more at times that no clock shows" in text
    assert f"[[{NOW // 1000},{NOW // 1000 + 3600}],[900,900],[{1 << 20},{1 << 20}]]" in text
    only_odd = cards(page([*odd, summary], "odd"))["Messages by hour"]
    assert only_odd == "<p>8 more at times that no clock shows.</p>"


def test_a_hundred_thousand_hours_are_a_page_of_some_megabytes() -> None:
    hours = [
        {"type": "hour", "hour": NOW + n * _HOUR, "messages": 2, "bytes": n} for n in range(100_000)
    ]
    text = page([*hours, {"type": "summary", "messages": 200_000}], "long")
    assert len(text) < 3 << 20 and text.count("<rect") == 500
    assert "400 in 200 hours" in text and "2038-04-17 16:00" in text


def test_the_logs_reach_is_beside_its_retention() -> None:
    stores = [store_row("a", NOW, NOW + 48 * _HOUR), store_row("b", NOW + 36 * _HOUR, NOW)]
    stores[1]["last_store_timestamp"] = NOW + 36 * _HOUR + 90_000
    text = cards(page([*stores, {"type": "summary", "messages": 1}], "x"))[
        "How far the logs reach back"
    ]
    bars = re.findall(r'<rect( class="old")? x="([\d.]+)" width="([\d.]+)"', text)
    assert bars[:2] == [(' class="old"', "0.00", "500.00"), ("", "500.00", "500.00")]
    assert bars[2][2] == "0.00" and bars[3] == ("", "750.00", "2.00")
    assert "2026-11-20 00:00 to 2026-11-22 00:00: 2 d, kept for 1 d" in text
    assert "12:01: 1 min, kept for 1 d" in text


@pytest.fixture(scope="module")
def chromium() -> str:
    return find_browser()


#: These scripts are the tests': what is wider than the window or its card, how light the ground is,
#: and what stands in the charts.
MEASURE = """
const wide = [...document.querySelectorAll('html, section')].some(
  (one) => one.scrollWidth > one.clientWidth + 1);
const ground = getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] > 127;
const holes = [...document.querySelectorAll('.tiles div')].map((one) => one.offsetTop);
const row = holes.filter((top) => top === holes[0]).length;
document.title = [
  wide ? 'too wide' : 'fits', ground ? 'light' : 'dark', holes.length % row,
  document.querySelectorAll('rect').length > 40, document.querySelectorAll('img').length,
  document.querySelectorAll('.drawn canvas').length].join(' ');
"""
#: A pointer over the third hour, a drag over some of the time, and the way back.
USE = """
const figure = document.querySelector('figure'), over = figure.querySelector('.u-over');
const box = over.getBoundingClientRect(), told = [];
const at = (type, part, target = over) => target.dispatchEvent(new MouseEvent(type, {
  clientX: box.left + box.width * part, clientY: box.top + 50, movementX: 1, bubbles: true,
  view: window }));
const tip = figure.querySelector('.tip'), back = figure.querySelector('button');
const pause = () => new Promise((done) => setTimeout(done, 60));
(async () => {
  await pause();
  at('mouseenter', 2.5 / 30); at('mousemove', 2.5 / 30); await pause();
  told.push(tip.hidden, tip.textContent, back.hidden);
  at('mousemove', 7.5 / 30); await pause();
  told.push(tip.hidden);
  at('mousedown', 0.2); await pause(); at('mousemove', 0.5); await pause();
  at('mouseup', 0.5, document); await pause();
  told.push(back.hidden);
  back.click(); await pause();
  told.push(back.hidden);
  document.title = told.join(' | ');
})();
"""


@pytest.mark.parametrize(
    ("width", "is_light"),
    [(500, 1), (500, 0), (1400, 1), (1400, 0)],
    ids=["narrow-light", "narrow-dark", "wide-light", "wide-dark"],
)
def test_a_browser_shows_it(chromium: str, tmp_path: Path, width: int, is_light: int) -> None:
    path = tmp_path / "page.html"
    path.write_text(with_script(page(rows(), HOSTILE), MEASURE), "utf-8")
    window = (f"--window-size={width},900", f"--blink-settings=preferredColorScheme={is_light}")
    shown = opened(chromium, path, *window)
    assert f"<title>fits {'light' if is_light else 'dark'} 0 true 0 2</title>" in shown


def test_a_phones_width_is_enough(chromium: str, tmp_path: Path) -> None:
    """A window of the browser is never this narrow, a frame is."""
    frame = tmp_path / "page.html"
    measure = MEASURE.replace("document.title =", "parent.document.title =")
    frame.write_text(with_script(page(rows(), HOSTILE), measure), "utf-8")
    path = tmp_path / "phone.html"
    path.write_text(f'<iframe width="390" height="900" src="{frame.as_uri()}"></iframe>')
    shown = opened(chromium, path, "--allow-file-access-from-files", "--disable-web-security")
    assert "<title>fits light 0 true 0 2</title>" in shown


def test_a_chart_tells_what_is_under_the_pointer_and_zooms(chromium: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(with_script(page(rows(), HOSTILE), USE), "utf-8")
    shown = opened(chromium, path, "--window-size=1200,900", "--virtual-time-budget=5000")
    title = re.findall("<title>(.*?)</title>", shown)[0]
    first = "2026-11-20 02:00: 3 messages, 1 B"
    assert title == f"false | {first} | true | true | false | true"


def test_its_own_scripts_run_under_its_policy_and_no_other(chromium: str, tmp_path: Path) -> None:
    path, intruder = tmp_path / "page.html", "<script>document.title = 'owned'</script>"
    path.write_text(page(rows(), "t").replace("</main>", f"</main>{intruder}"), "utf-8")
    shown = opened(chromium, path)
    assert "<title>t</title>" in shown and shown.count("<canvas") == 2
