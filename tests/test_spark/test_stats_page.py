"""stats: the numbers are the log's, and the page shows a store's words as text."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from tests import golden_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")
HOSTILE = "<script>document.title='owned'</script>"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_HOUR = 3_600_000


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


@pytest.mark.parametrize("name", ["broker", "basic", "ipv6"])
def test_the_same_rows_without_spark(
    name: str, spark: SparkSession, golden: Callable[[str], Path]
) -> None:
    from rmqctl.operations.look import stats
    from rmqctl.operations.look.waiting import waiting
    from rmqctl.spark.report.stats import statistics
    from rmqctl.rows.columns import broker_of

    root = golden(name)
    with MessageStore(root, golden_data.broker_conf(name)) as store:
        counted = [stats.StoreToCount(store, broker_of(str(root)), str(root))]
        waits = waiting([store], 7)
        here = list(stats.statistics(counted, 7, lambda done: None, waits))
    assert here == list(statistics(spark, [str(root)], {}, 7, waits))


def test_unreadable_places_and_an_empty_store_are_the_same_without_spark(
    spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    from rmqctl.operations.look import stats
    from rmqctl.rows.sections import Waiting
    from rmqctl.spark.report.stats import statistics
    from rmqctl.rows.columns import broker_of

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
    assert places == offsets[1:5:3] and here[-1]["damages"] == 3
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
    hours = [
        {"type": "hour", "hour": 1_795_161_600_000 + n * _HOUR, "messages": n + 1, "bytes": 1}
        for n in range(30)
    ]
    keys = [
        {"type": "duplicate_key", "topic": HOSTILE, "kind": "KEYS", "key": w, "messages": 2}
        for w in words
    ]
    summary = {"type": "summary", "messages": 35, "bytes": 35_000, "retry_rate": 0.5}
    return [*topics, *queues, *tags, *hours, *keys, summary]


def test_a_page_holds_words_as_text_and_needs_nothing() -> None:
    from rmqctl.cli.statspage import page

    text = page(rows(), HOSTILE)
    assert "<script" not in text
    assert "<img" not in text
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text
    assert "http://" not in text and "https://" not in text
    assert "prefers-color-scheme" in text
    assert text.count("<svg") > 20


def test_a_page_of_nothing_is_a_page() -> None:
    from rmqctl.cli.statspage import page

    assert "none" in page([{"type": "summary", "messages": 0}], "empty")


@pytest.fixture(scope="module")
def chromium() -> str:
    """Where the browser is. Where there is none, its tests are skipped; with
    RMQCTL_BROWSER=require (as in CI) they fail."""
    found = [path for name in BROWSERS if (path := shutil.which(name))]
    if not found:
        reason = f"there is no browser to open the page with: {', '.join(BROWSERS)}"
        if os.environ.get("RMQCTL_BROWSER") == "require":
            pytest.fail(reason)
        pytest.skip(reason)
    return found[0]


@pytest.mark.parametrize(
    ("width", "is_light"),
    [(400, 1), (400, 0), (1400, 1), (1400, 0)],
    ids=["narrow-light", "narrow-dark", "wide-light", "wide-dark"],
)
def test_a_browser_shows_it(chromium: str, tmp_path: Path, width: int, is_light: int) -> None:
    from rmqctl.cli.statspage import page

    path = tmp_path / "page.html"
    # The script is the test's: it tells whether anything is wider than the window or its card, and
    # how light the ground is.
    measure = (
        "<script>const wide = [...document.querySelectorAll('html, section')]"
        ".some(e => e.scrollWidth > e.clientWidth + 1);"
        "const ground = getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] > 127;"
        "document.title = !wide && document.querySelectorAll('rect').length > 40"
        " && !document.querySelector('img') && document.scripts.length == 1"
        " ? 'fits, ' + (ground ? 'light' : 'dark') : 'too wide'</script></body>"
    )
    text = page(rows(), HOSTILE).replace("default-src 'none'; ", "")
    path.write_text(text.replace("</body>", measure), "utf-8")
    command = [
        chromium,
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={width},900",
        f"--blink-settings=preferredColorScheme={is_light}",
    ]
    # It keeps settings in a home directory, and without one in the working directory.
    environment = os.environ | {"HOME": str(tmp_path)}
    done = subprocess.run(
        [*command, "--dump-dom", path.as_uri()],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert f"<title>fits, {'light' if is_light else 'dark'}</title>" in done.stdout
    picture = tmp_path / "page.png"
    subprocess.run(
        [*command, f"--screenshot={picture}", path.as_uri()],
        env=environment,
        capture_output=True,
        timeout=60,
    )
    assert picture.stat().st_size > 10_000
