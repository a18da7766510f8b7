"""The page of a store: what it tells, that a store's words are text, that it stays of bounded size,
and that a browser shows it in any window."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.cli.storepage import Collected, Report, log_range, making, page
from rmqctl.engine.rehearsal.model import Deleted, Outcome, QueueState, Step
from rmqctl.operations.doctor.portrait import IndexFill, LogFile, Portrait, QueueRange
from rmqctl.operations.doctor.simulatestart import LostOfQueue, Simulation, Truncated
from rmqctl.operations.verify import CODES
from rmqctl.operations.verify.findings import finding
from tests.browser import find_browser, opened, with_script
from tests.golden_data import apply_damage, damage_case, state
from tests.test_cli.conftest import Cli

HOSTILE = "<script>document.title='owned'</script>"
WORDS = [HOSTILE, '"><img src=x onerror=alert(1)>', "&amp;", "a" * 120, "\x1b[31m\u202e", "'`"]
_T0, _HOUR, _FILE = 1_795_132_800_000, 3_600_000, 1 << 20


@pytest.fixture
def damaged(copy_store: Callable[[str], Path]) -> Path:
    """A store of which a start keeps 60 messages of 600."""
    root = copy_store("basic")
    apply_damage(root, damage_case("flip-body-early-abort")["ops"])
    return root


def cards(text: str) -> dict[str, str]:
    """What stands in each card, by its heading without marks."""
    found = re.findall(r"<section[^>]*><h2>(.*?)</h2>(.*?)</section>", text, re.DOTALL)
    return {re.sub(r"<span>.*|<[^>]*>", "", heading): content for heading, content in found}


def tiles(text: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", text))


def assert_is_closed(text: str) -> None:
    """Nothing runs in it, and it asks nobody for anything."""
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy == (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
    assert "<script" not in text and "<img" not in text and "<a " not in text
    assert not re.findall(r"https?://|@import|url\(", text)
    assert not re.findall(r"[\0-\x09\x0b-\x1f\x7f\u202e]", text)
    assert "prefers-color-scheme" in text


def test_verify_writes_what_it_found_and_what_a_start_would_do(
    cli: Cli, damaged: Path, broker_conf_file: Callable[[str], Path], tmp_path: Path
) -> None:
    before, path = state(damaged), tmp_path / "page.html"
    where = ("--store", damaged, "--broker-conf", broker_conf_file("basic"))
    plain = cli("verify", *where)
    done = cli("verify", *where, "--report", path)
    assert done == plain and done.code == 1 and state(damaged) == before
    text = path.read_text()
    assert_is_closed(text)
    assert f'<p class="verdict error">{done.out.splitlines()[0]}</p>' in text
    told = tiles(text)
    assert told["errors"] == told["warnings"] == "1" and told["messages"] == "600"
    assert told["a start would lose, messages"] == "539" and told["log files"] == "7"
    found = cards(text)
    assert list(found) == [
        *("The log", "body-crc-mismatch", "checkpoint-zero", "unclean-shutdown"),
        *("What a start of 4.9.3 would do", "Queues", "Index: how full its files are"),
    ]
    (line,) = re.findall("<pre>(.*?)</pre>", found["body-crc-mismatch"])
    assert shlex.split(line)[:2] == ["rmqctl", "salvage"] and f"  {line}\n" in done.out
    assert 'data-name="log offset">45,412</td>' in found["body-crc-mismatch"]
    # One mark on the strip now; below it what the start takes: the rest of one file, six files.
    assert found["The log"].count('class="error" x=') == 1
    assert found["The log"].count('class="lost" x=') == 7
    assert found["The log"].count("deletes it (behind-log-end)") == 6
    assert "cuts it at 45,412" in found["The log"]
    assert found["Queues"].count("a start loses ") == 16
    assert found["Index: how full its files are"].count("a start deletes it") == 2


def test_what_only_queues_would_lose_stands_at_the_top(
    cli: Cli,
    copy_store: Callable[[str], Path],
    broker_conf_file: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    """A start that takes units alone takes no message of the log: a 0 would seem harmless."""
    root, path = copy_store("basic"), tmp_path / "page.html"
    with (root / "consumequeue/TopicA/0/00000000000000000000").open("r+b") as file:
        file.seek(100)  # The offset in unit 5, which is then past the log's end.
        file.write(b"\1")
    conf = ("--broker-conf", broker_conf_file("basic"))
    assert cli("verify", "--store", root, *conf, "--report", path).code == 1
    told = tiles(path.read_text())
    assert told["queues would lose, messages"] == "32"
    assert "a start would lose, messages" not in told


def test_a_page_of_a_start_alone_and_of_a_sound_store(
    cli: Cli,
    damaged: Path,
    copy_store: Callable[[str], Path],
    broker_conf_file: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, conf = tmp_path / "page.html", ("--broker-conf", broker_conf_file("basic"))
    done = cli("simulate-start", "--store", damaged, *conf, "--report", path)
    text = path.read_text()
    assert done.code == 1 and done.out.splitlines()[0] in text
    assert_is_closed(text)
    assert list(cards(text)) == [
        *("The log", "What a start of 4.9.3 would do", "Queues", "Index: how full its files are"),
    ]
    assert tiles(text)["queues would lose, messages"] == "539" and "errors" not in tiles(text)
    sound = copy_store("ipv6")
    conf = ("--broker-conf", broker_conf_file("ipv6"))
    done = cli("verify", "--store", sound, *conf, "--report", path, "--json")
    text = path.read_text()
    assert done.code == 0 and '<p class="verdict sound">OK: ' in text
    assert "Nothing is wrong." in cards(text)["Findings"] and 'class="lost"' not in text
    with monkeypatch.context() as patch:
        patch.setattr(making, "is_locked", lambda root: True)
        assert cli("verify", "--store", sound, *conf, "--report", path).code == 0
    assert "has the store open" in cards(path.read_text())["Not looked at"]


def test_what_is_asked_for_in_vain_is_told_before_the_check(
    cli: Cli, damaged: Path, copy_store: Callable[[str], Path], tmp_path: Path
) -> None:
    done = cli("verify", "--report", tmp_path / "none" / "page.html", store=damaged)
    assert done.code == 5 and done.out == "" and "no directory" in done.err
    done = cli("simulate-start", "--report", damaged / "page.html", store=damaged)
    assert done.code == 2 and done.out == "" and "lies in the store" in done.err
    assert "give a place outside" in done.err and "mount" not in done.err
    (tmp_path / "page.html").mkdir()
    assert cli("verify", "--report", tmp_path / "page.html", store=damaged).code == 2
    # Root would put a file in the place of a device.
    (tmp_path / "null").symlink_to("/dev/null")
    os.mkfifo(tmp_path / "fifo")
    for place in ("null", "fifo"):
        for command in ("verify", "simulate-start"):
            done = cli(command, "--report", tmp_path / place, store=damaged)
            assert done.code == 5 and done.out == "" and "no regular file" in done.err
        done = cli("stats", "--report", tmp_path / place, store=damaged)
        assert done.code == 5 and done.out == "" and "no regular file" in done.err
        assert not (tmp_path / place).is_file()
    (damaged / "commitlog").rename(tmp_path / "disk")
    (damaged / "commitlog").symlink_to(tmp_path / "disk")
    done = cli("verify", "--report", tmp_path / "disk/page.html", store=damaged)
    assert done.code == 2 and done.out == "" and "lies in the store" in done.err
    several = ("--store", damaged, "--store", copy_store("ipv6"), "--master", "local[1]")
    done = cli("verify", *several, "--report", tmp_path / "p.html")
    assert done.code == 2 and "--report is of one store" in done.err


def large(words: list[str], queues: int = 40, files: int = 5, times: int = 1) -> Report:
    """A page of a store with these words in it, of so many times as many findings as there are
    codes and words, and of a start."""
    log = [LogFile(f"commitlog/{n * _FILE:020d}", n * _FILE, _FILE, _T0) for n in range(files)]
    store = Portrait(Path("/data") / HOSTILE.replace("/", ""), log, files * _FILE - 999, _T0 + 5)
    del store.log[1]
    store.queues = [
        QueueRange(f"{words[n % len(words)]}{n}", n % 8, n, 1000 + n) for n in range(queues)
    ]
    store.index = [IndexFill(f"{n:017d}", n, 500, _T0, _T0 + _HOUR) for n in range(1, 60)]
    store.problems = [f"index: {words[0]}"]
    found = Collected(*log_range(store))
    for number, code in enumerate(CODES):
        for at, word in enumerate(words):
            one = finding(
                code,
                path=f"consumequeue/{word}/{at}",
                physical_offset=(number * 7919 + at * 104_729) % (files * _FILE),
                topic=f"{word}{at}",
                queue_id=at % 8,
                queue_offset=number * 11,
                expected=word,
                found=word * 2,
            )
            for _ in range(times):
                found.add(one, f"rmqctl pull --topic {shlex.quote(word)}")
    found.add(finding("queue-missing", path="consumequeue/gone/3", topic="gone", queue_id=3), None)
    ends = QueueState(store.queues[0].topic, 0, Path("/"), 0, 5, 5, 5)
    start = Simulation(
        store.root,
        "4.9.3",
        Outcome(False, words[1], [Step("end-log", word, word * 9) for word in words]),
        [LostOfQueue(ends, 900)],
        [Truncated(store.root / log[0].path, 99, 5)],
        [Deleted(store.root / log[-1].path, 9, words[0])],
        [Step("end-log", word, word * 9) for word in words],
        messages_lost=12_345_678,
    )
    start.outcome.walked_to = _FILE // 2
    return Report("verify", f"3 errors: {words[0]}", store, found, start, words[0], 12_345)


def test_words_of_a_store_are_text() -> None:
    text = page(large(WORDS))
    assert_is_closed(text)
    assert "&lt;script&gt;document" in text and "\\x1b[31m\\u202e" in text
    assert text.count('class="finding ') == len(CODES)
    assert 'class="gone" x=' in text  # The file that lacks.
    assert "no such queue; <b" in cards(text)["Queues"]


def test_a_page_of_very_much_is_bounded() -> None:
    report = large([f"{'t' * 200}{number}" for number in range(100)], 10_000, 3000, 12)
    assert report.found is not None and sum(report.found.severities.values()) > 100_000
    text = page(report)
    assert len(text) < len(CODES) * (32 << 10)
    assert text.count("<tr>") < 22 * len(CODES) + 400 and text.count("<rect") < 100_000
    found = cards(text)
    assert "1,180 more, in the rows of rmqctl verify" in found["bad-magic"]
    assert re.search(
        r"of 10,\d{3} queues have something to tell\. [\d,]+ are not shown", found["Queues"]
    )
    assert "19 more files are not shown" in found["Index: how full its files are"]


#: This script is the test's: what is wider than the window or its card, how light the ground is,
#: what is to be read without opening anything, and how many rows of tiles there are.
MEASURE = """
const wide = [...document.querySelectorAll('html, section, pre, .tiles div')].filter(
  (one) => one.scrollWidth > one.clientWidth + 1);
const ground = getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] > 127;
const tops = new Set([...document.querySelectorAll('.tiles div')].map((one) => one.offsetTop));
const strip = document.querySelector('.strip svg').getBoundingClientRect();
parent.told = [...(parent.told || []), [
  innerWidth, wide.length ? 'too wide' : 'fits', ground ? 'light' : 'dark', tops.size,
  strip.height > 30 && strip.width > innerWidth * 0.7,
  document.querySelectorAll('script').length, document.querySelectorAll('img').length].join(' ')];
parent.document.title = parent.told.sort().join(' | ');
"""


@pytest.mark.parametrize("is_light", [1, 0], ids=["light", "dark"])
def test_a_browser_shows_it_narrow_and_wide(is_light: int, tmp_path: Path) -> None:
    browser, frame = find_browser(), tmp_path / "page.html"
    frame.write_text(with_script(page(large(WORDS)), MEASURE), "utf-8")
    path = tmp_path / "frames.html"
    path.write_text(
        "".join(
            f'<iframe width="{width}" height="900" style="border:0" src="{frame.as_uri()}">'
            "</iframe>"
            for width in (360, 1300)
        )
    )
    shown = opened(
        browser,
        path,
        *("--allow-file-access-from-files", "--disable-web-security", "--window-size=1800,900"),
        f"--blink-settings=preferredColorScheme={is_light}",
    )
    scheme = "light" if is_light else "dark"
    # The only script is the test's.
    told = f"1300 fits {scheme} 2 true 1 0 | 360 fits {scheme} 4 true 1 0"
    assert f"<title>{told}</title>" in shown


def test_a_directory_without_the_right_to_write_is_told_of_before_the_check(
    cli: Cli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    done = cli("verify", "--report", tmp_path / "page.html", store=store)
    assert done.code == 5 and done.out == "" and "no right to write" in done.err
