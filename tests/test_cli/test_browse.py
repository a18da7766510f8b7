"""``rmqctl browse``: driven as by somebody at a terminal of 80 columns and 24 lines."""

from __future__ import annotations

import asyncio
import html
import io
import os
import re
import signal
import sys
import threading
import time
import tomllib
from collections.abc import Awaitable, Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual import events
from textual.pilot import Pilot
from textual.screen import Screen
from textual.worker import WorkerFailed

from rmqctl.cli.browse.app import Browser
from rmqctl.cli.browse.model.lines import Line
from rmqctl.cli.browse.model.opened import Opened
from rmqctl.cli.browse.model.queues import Queues, Topics
from rmqctl.cli.browse.screens.findings import FindingsPage
from rmqctl.cli.browse.screens.found import FoundPage
from rmqctl.cli.browse.screens.help import HelpScreen
from rmqctl.cli.browse.screens.jobs import JobPage
from rmqctl.cli.browse.screens.lists import MessagesPage, QueuesPage, TopicsPage
from rmqctl.cli.browse.screens.page import Page
from rmqctl.cli.browse.screens.places import LogPage, MessagePage
from rmqctl.cli.browse.widgets.lines import Lines, column_widths, drawn
from rmqctl.cli.browse.widgets.prompt import Prompt
from rmqctl.cli.commands import browse
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.queuetable import ConsumeQueueTable
from rmqctl.installed import install_command
from rmqctl.operations.verify.findings import finding
from tests import golden_data
from tests.conftest import Golden
from tests.golden_data import broker_conf
from tests.terminals import OnTerminal
from tests.test_cli.conftest import CONFIG, Cli, cli, message, state, store
from tests.test_cli.test_manners import RAW

__all__ = ["cli", "store"]  # Fixtures of other files.

#: How Textual names keys.
_NAMES = {"/": "slash", ":": "colon", "?": "question_mark", "-": "minus", ".": "full_stop"}
#: Seconds that the slowest machine may take to paint a screen.
_PATIENCE = 60
Keys = Pilot[int]
Scenario = Callable[["Hand"], Awaitable[None]]


class Hand:
    """Somebody at the keyboard, who waits for an answer after each key."""

    def __init__(self, app: Browser, pilot: Keys) -> None:
        self.app = app
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        for key in keys:
            self.strike(key)
            await self.settle()

    def strike(self, key: str) -> None:
        """One key, and no wait for what it does."""
        self.app.post_message(events.Key(_NAMES.get(key, key), key if len(key) == 1 else None))

    async def write(self, text: str) -> None:
        for character in text:
            self.strike(character)
        await self.press("enter")

    async def settle(self) -> None:
        """Until nothing is under way: no worker, no message."""
        await self._quiet()
        if isinstance(self.app.screen, JobPage):
            self.app.screen.look()
            await self._quiet()

    async def _quiet(self) -> None:
        quiet = 0
        while quiet < 3:
            # An empty queue is not enough: a page that is still being put up has one, too.
            await self.pilot.pause(0.001)
            nodes = [self.app, self.app.screen, *self.app.screen.walk_children()]
            is_busy = any(node.message_queue_size for node in nodes)
            is_working = any(worker.is_running for worker in self.app.workers)
            quiet = 0 if is_busy or is_working else quiet + 1

    def on(self, kind: type[Screen[Any]]) -> bool:
        """Whether one has got to a screen of this kind."""
        return isinstance(self.app.screen, kind)

    @property
    def page(self) -> Page:
        assert isinstance(self.app.screen, Page)
        return self.app.screen

    @property
    def list(self) -> list[str]:
        """The lines of the list, without the empty ones."""
        lines = self.page.lines
        shown = [lines.render_line(y).text.rstrip() for y in range(lines.size.height)]
        return [line for line in shown if line]

    def screen(self) -> str:
        """All that is on the screen, line by line, as it was painted last."""
        lines: dict[float, str] = {}
        found = re.findall(
            r'<text [^>]*y="([^"]*)"[^>]*>([^<]*)</text>', self.app.export_screenshot()
        )
        for y, text in found:
            lines[float(y)] = lines.get(float(y), "") + html.unescape(text).replace("\xa0", " ")
        return "\n".join(lines[y] for y in sorted(lines))

    async def shows(self, *texts: str) -> str:
        """Waits until the screen has some texts, wherever its lines break, and gives it."""
        wanted = ["".join(text.split()) for text in texts]
        deadline = time.monotonic() + _PATIENCE
        while True:
            screen = self.screen()
            if all(text in "".join(screen.split()) for text in wanted):
                return screen
            assert time.monotonic() < deadline, screen
            await asyncio.sleep(0.01)


def drive(
    opened: Opened, scenario: Scenario, size: tuple[int, int] = (80, 24), **options: Any
) -> Browser:
    app = Browser(opened, **options)
    run(app, scenario, size)
    return app


def run(app: Browser, scenario: Scenario, size: tuple[int, int] = (80, 24)) -> None:
    async def driven() -> None:
        async with app.run_test(size=size) as pilot:
            hand = Hand(app, pilot)
            await hand.settle()
            await scenario(hand)

    asyncio.run(driven())


def golden_opened(golden: Golden, name: str = "broker") -> Opened:
    return Opened(golden(name), broker_conf(name))


def test_from_the_topics_to_the_bytes_of_a_message_and_back(golden: Golden) -> None:
    async def scenario(hand: Hand) -> None:
        assert hand.on(TopicsPage)
        assert len(hand.list) == 16 and "orders" in hand.list[-2]
        await hand.press("/", *"orders", "enter", "G", "enter")
        assert hand.on(QueuesPage) and len(hand.list) == 5
        await hand.press("j", "enter")
        assert hand.on(MessagesPage) and "order-3 " in hand.list[2]
        await hand.press("down", "enter")
        assert hand.on(MessagePage)
        assert "  KEYS           order-3" in hand.list
        await hand.press("x")
        assert " 000000 00 00 00 e7             ....     total_size 231" in hand.list
        await hand.press("n")
        assert any("total_size 232" in line for line in hand.list)
        await hand.press("tab", "p", "p", "p")
        assert any("queue 1, offset 0" in line for line in hand.list)
        await hand.press("n", "n", "n", "escape")
        assert hand.on(MessagesPage) and hand.page.lines.cursor == 3
        await hand.press("escape", "escape", "escape", "escape")
        assert hand.on(TopicsPage)
        await hand.press("q")

    assert drive(golden_opened(golden), scenario).return_value == 0


def test_keys_of_pagers_move_the_cursor(golden: Golden) -> None:
    async def scenario(hand: Hand) -> None:
        lines = hand.page.lines
        for key, expected in (
            ("j", 1), ("n", 2), ("k", 1), ("p", 0), ("space", 18), ("b", 0), ("G", 121), ("g", 0),
            ("end", 121), ("pageup", 103), ("home", 0), ("up", 0), ("ctrl+f", 18),
        ):  # fmt: skip
            await hand.press(key)
            assert lines.cursor == expected, key
            assert any(line.lstrip().startswith(f"{expected} 20") for line in hand.list)
        await hand.press("home")
        await hand.pilot.click(Lines, offset=(5, 3))
        await hand.settle()
        assert lines.cursor == 2
        await hand.pilot.click(Lines, offset=(5, 3))
        await hand.settle()
        assert hand.on(MessagePage)

    drive(golden_opened(golden), scenario, (80, 23), topic="orders", queue_id=1)


def test_keys_that_come_before_the_list_is_there_count(golden: Golden) -> None:
    async def typed_ahead(hand: Hand) -> None:
        for key in ("G", "enter"):
            hand.strike(key)
        await hand.shows("› payments")
        assert hand.on(QueuesPage)

    opened = golden_opened(golden)
    app = Browser(opened)

    async def driven() -> None:
        async with app.run_test() as pilot:
            await typed_ahead(Hand(app, pilot))

    asyncio.run(driven())


def test_a_time_an_offset_and_the_log(golden: Golden) -> None:
    opened = golden_opened(golden)
    queue = opened.store.consume_queue("orders", 1)
    assert queue is not None
    unit = queue.unit(50)
    assert unit is not None
    record = opened.store.commit_log.find_record(unit.physical_offset)
    assert record is not None

    async def scenario(hand: Hand) -> None:
        await hand.press("t")
        await hand.write("half past nine")
        assert hand.on(Prompt)
        await hand.shows("is no time")
        for _ in range(14):
            await hand.press("backspace")
        await hand.write(str(record.store_timestamp))
        line = hand.page.lines.current()
        assert line is not None and line.place.queue_offset is not None
        assert line.place.queue_offset <= 50
        await hand.press("t")
        await hand.write("2999-01-01")
        assert hand.page.lines.cursor == 121
        await hand.shows("nothing was stored then")
        await hand.press(":")
        await hand.write("50")
        assert hand.page.lines.cursor == 50
        await hand.press("l")
        assert hand.on(LogPage)
        await hand.shows(f"offset {unit.physical_offset}, ")
        await hand.press("k", "n", "enter")
        assert hand.on(MessagePage)
        await hand.shows("orders, queue 1, offset 50")
        await hand.press("p", "escape", "g")
        await hand.shows("offset 0, 0 % of the log")
        await hand.press(":")
        await hand.write(record.msg_id)
        await hand.shows(f"offset {unit.physical_offset}, ")
        await hand.press("G")
        assert "end of the log" in hand.list[-1]
        await hand.press("enter", "t")
        await hand.write(str(record.store_timestamp))
        assert hand.list[0].split() == ["offset", "size", "stored", "what"]

    drive(opened, scenario, topic="orders", queue_id=1)


def test_a_key_is_found_and_words_in_the_log(golden: Golden) -> None:
    async def scenario(hand: Hand) -> None:
        await hand.press("f")
        await hand.press("enter")
        await hand.shows("type a key")
        await hand.write("order-3")
        assert hand.on(FoundPage) and len(hand.list) == 2
        await hand.shows("1 found", "not looked at: properties and bodies")
        await hand.press("enter", "n")
        await hand.shows("there is no other")
        await hand.press("escape", "f")
        await hand.write("iquqzuqtxfudjie")
        assert hand.list[1:] == ["no messages here"]
        await hand.press("s")
        await hand.shows("everything was looked at")
        assert "body" in hand.list[1]
        await hand.press("x", "escape")

    drive(golden_opened(golden), scenario)


def damaged(golden: Golden, case: str, tmp_path: Path) -> Opened:
    told = golden_data.damage_case(case)
    root = golden_data.copy_tree(golden(told["base"]), tmp_path / case)
    golden_data.apply_damage(root, told["ops"])
    return Opened(root, broker_conf(told["base"]))


def test_findings_and_where_they_lie(golden: Golden, tmp_path: Path) -> None:
    async def scenario(hand: Hand) -> None:
        await hand.press("v")
        assert hand.on(FindingsPage)
        await hand.shows("2 errors, 1 warning", "█", "found  0xdeadbeef")
        await hand.press("enter")
        assert hand.on(LogPage)
        assert "DAMAGE bad-magic" in "\n".join(hand.list)
        # Something stands before it.
        assert "DAMAGE" not in hand.list[1]
        await hand.press("enter")
        assert any("de ad be ef" in line for line in hand.list)
        await hand.press("escape", "escape", "G")
        assert hand.page.lines.cursor == 2
        await hand.press("r")
        await hand.shows("2 errors, 1 warning")

    drive(damaged(golden, "bad-magic-late", tmp_path), scenario)


def test_a_finding_of_a_queue_alone_leads_there(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [
        finding("unit-misplaced", topic="orders", queue_id=1, queue_offset=5),
        finding("checkpoint-missing", path="checkpoint"),
    ]
    monkeypatch.setattr("rmqctl.cli.browse.model.findings.verify", lambda *_: iter(told))

    async def scenario(hand: Hand) -> None:
        await hand.press("v")
        await hand.shows("orders 1@5")
        await hand.press("enter")
        assert hand.on(MessagesPage) and hand.page.lines.cursor == 5
        await hand.press("escape", "G", "enter")
        await hand.shows("this finding has no place in the log")

    drive(Opened(store, CONFIG), scenario)


def test_verify_goes_on_while_one_looks_elsewhere_and_can_be_stopped(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = golden_opened(golden)

    def endless(root: Path, config: object, progress: Callable[[int], None]) -> Any:
        while True:
            time.sleep(0.001)
            progress(1000)
            yield from ()

    monkeypatch.setattr("rmqctl.cli.browse.model.findings.verify", endless)

    async def until(hand: Hand, holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.001)

    async def scenario(hand: Hand) -> None:
        hand.strike("v")
        await until(hand, lambda: opened.findings is not None)
        job = opened.findings
        assert job is not None
        await until(hand, lambda: job.state == "running" and job.done == 1000)
        hand.strike("escape")
        await until(hand, lambda: hand.on(TopicsPage))
        assert job.state == "running"
        hand.strike("v")
        await until(hand, lambda: hand.on(FindingsPage) and bool(hand.page.query(Lines)))
        await until(hand, lambda: hand.page.lines.is_ready)
        page = hand.page
        assert isinstance(page, FindingsPage) and page.the_job() is job
        page.look()
        await hand.shows("looking… 0 % (x stops)")
        hand.strike("x")
        await until(hand, lambda: job.is_over)
        page.look()
        await hand.shows("stopped")

    drive(opened, scenario)


def test_leaving_does_not_wait_for_a_search(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def endless(store: object, wanted: object, progress: Callable[[int], None]) -> Any:
        while True:
            time.sleep(0.001)
            progress(0)
            told.append(1)
            yield from ()

    monkeypatch.setattr("rmqctl.cli.browse.model.messages.find", endless)

    async def scenario(hand: Hand) -> None:
        await hand.press("f")
        hand.strike("x")
        hand.strike("enter")
        while not told:
            await asyncio.sleep(0.001)
        hand.strike("q")
        while hand.app.is_running:
            await asyncio.sleep(0.001)

    assert drive(golden_opened(golden), scenario).return_value == 0
    assert told


def test_the_help_has_every_key_that_does_something(golden: Golden) -> None:
    async def scenario(hand: Hand) -> None:
        await hand.press("?")
        assert hand.on(HelpScreen)
        await hand.shows("narrow the topics", "verify", "Nothing here changes the store.")
        await hand.press("q")
        assert hand.on(TopicsPage)

    drive(golden_opened(golden), scenario)


@pytest.mark.parametrize("columns", [80, 40])
def test_every_page_fits_its_terminal(columns: int, golden: Golden, tmp_path: Path) -> None:
    opened = damaged(golden, "bad-magic-late", tmp_path)

    async def scenario(hand: Hand) -> None:
        for key in ("enter", "enter", "enter", "x", "l", "v", "enter", "?"):
            if hand.on(Page):
                lines = hand.page.lines
                for y in range(lines.size.height):
                    assert cell_len(lines.render_line(y).text) <= columns
                    assert lines.render_line(y).cell_length in (0, columns)
            assert hand.app.screen.size == (columns, 24)
            await hand.press(key)
        # The last keys of the line at the bottom are on the screen.
        await hand.press("escape")
        if columns >= 80:
            await hand.shows("Quit")

    drive(opened, scenario, (columns, 24))


def test_nothing_of_a_store_reaches_the_screen_raw(store: Path) -> None:
    steps = [
        ((), "nasty\\u202etopic"),
        (("l", "k"), "nasty\\u202etopic 0@0"),
        (("enter",), "\\x1b[31mred\\x07"),
        (("x",), "magic_code"),
        (("G",), "properties"),
        (("escape", "escape", "enter", "enter"), "\\x1b[2J"),
        (("f", "k", "enter"), "1 found"),
        (("v",), "OK: 60 messages"),
    ]
    seen: list[str] = []

    async def scenario(hand: Hand) -> None:
        for keys, expected in steps:
            await hand.press(*keys)
            seen.append(await hand.shows(expected))

    drive(Opened(store, CONFIG), scenario, (200, 50))
    everything = "\n".join(seen)
    assert "nasty\\u202etopic" in everything and "\\x1b[31mred\\x07" in everything
    assert RAW.search(everything) is None


def test_looking_everywhere_leaves_every_byte_as_it_was(store: Path) -> None:
    before = state(store), {p: p.stat().st_mtime_ns for p in store.rglob("*") if p.is_dir()}

    async def scenario(hand: Hand) -> None:
        await hand.press("v", "escape", "enter", "enter", "enter", "x", "n", "l", "g", "r")
        await hand.press("f")
        await hand.write("order-7")
        await hand.press("s", "enter")

    drive(Opened(store, CONFIG), scenario)
    after = state(store), {p: p.stat().st_mtime_ns for p in store.rglob("*") if p.is_dir()}
    assert after == before


def test_r_shows_what_was_written_since_on_every_page_one_comes_back_to(store: Path) -> None:
    opened = Opened(store, CONFIG)

    async def scenario(hand: Hand) -> None:
        await hand.press("G", "enter", "enter")
        assert hand.on(MessagesPage)
        await hand.press("G")
        last = hand.page.lines.cursor
        with MessageStore(store, CONFIG, writable=True) as written:
            assert written.put_message(message(0, body=b"since then")).is_ok
        await hand.press("r", "G")
        assert hand.page.lines.cursor == last + 1 and "since then" in hand.list[-1]
        await hand.press("escape")
        assert any(line.split()[:2] == ["0", "31"] for line in hand.list)

    drive(opened, scenario)


def test_what_is_removed_meanwhile_is_told_and_r_goes_on(golden: Golden, tmp_path: Path) -> None:
    root = golden_data.copy_tree(golden("basic"), tmp_path / "store")

    async def scenario(hand: Hand) -> None:
        assert hand.on(MessagesPage)
        (root / "commitlog" / f"{3 * 65536:020d}").unlink()
        await hand.press("l", ":")
        await hand.write(str(3 * 65536 + 1))
        await hand.shows("is gone: retention removes files while you look")
        await hand.press("r")
        assert hand.on(LogPage) and "is gone" not in await hand.shows("% of the log")
        await hand.press("escape", "enter")
        assert hand.on(MessagePage)
        for path in sorted(root.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        root.rmdir()
        await hand.press("r")
        await hand.shows("there is no directory")

    drive(Opened(root, broker_conf("basic")), scenario, topic="TopicA", queue_id=0)


def test_a_broken_topics_json_is_told_and_the_queues_are_there(store: Path) -> None:
    (store / "config").mkdir()
    (store / "config/topics.json").write_text("{")

    async def scenario(hand: Hand) -> None:
        await hand.shows("config/topics.json, line 1, column")
        assert len(hand.list) == 3

    drive(Opened(store, CONFIG), scenario)


def test_of_many_queues_those_on_the_screen_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as written:
        written.put_messages([message(n, topic=f"topic-{n:03d}", queue_id=0) for n in range(300)])
    asked: set[str] = set()
    find = ConsumeQueueTable.find

    def noting(self: ConsumeQueueTable, topic: str, queue_id: int) -> object:
        asked.add(topic)
        return find(self, topic, queue_id)

    monkeypatch.setattr(ConsumeQueueTable, "find", noting)

    async def scenario(hand: Hand) -> None:
        assert len(hand.list) == 20
        assert len(asked) <= 3 * 20
        await hand.press("G")
        assert "topic-299" in hand.list[-1]
        assert len(asked) <= 6 * 20

    drive(Opened(root, CONFIG), scenario)


def test_a_topic_of_many_queues_does_not_keep_the_others_from_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as written:
        written.put_messages([message(n, topic=f"topic-{n}", queue_id=0) for n in range(3)])
    may_go_on, read = threading.Event(), Topics.line

    def slow(self: Topics, number: int, stop: Callable[[], bool]) -> Line:
        if number == 2:
            may_go_on.wait()
        return read(self, number, stop)

    monkeypatch.setattr(Topics, "line", slow)

    async def driven() -> None:
        app = Browser(Opened(root, CONFIG))
        async with app.run_test(size=(80, 24)) as pilot:
            hand = Hand(app, pilot)
            try:
                await hand.shows("topic-0", "topic-1", "3 topics")
                assert "topic-2" not in hand.screen()
            finally:
                may_go_on.set()
            await hand.shows("topic-2")

    asyncio.run(driven())


@pytest.mark.parametrize("where", [(QueuesPage, "make_source"), (Queues, "prepare")])
def test_a_bug_is_told_in_one_line_as_any_other(
    where: tuple[type, str], golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(*where, broken)
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)

    async def scenario(hand: Hand) -> None:
        hand.strike("enter")
        while hand.app.failure is None:
            await asyncio.sleep(0.001)

    app = Browser(golden_opened(golden))
    with pytest.raises((ZeroDivisionError, WorkerFailed)):
        run(app, scenario)
    assert isinstance(app.failure, ZeroDivisionError) and app.return_code == 1
    assert "Traceback" not in errors.getvalue()


def test_columns_that_do_not_fit_are_left_out_and_the_rest_shared() -> None:
    columns = Topics.columns
    assert column_widths(columns, 80) == [80 - 11 - 6 - 14 - 19 - 4, 11, 6, 14, 19]
    assert column_widths(columns, 40) == [40 - 6 - 14 - 2, 0, 6, 14, 0]
    assert drawn(("中文" * 20, "x"), columns[:1], 20) == "中文" * 4 + "中 …"
    assert drawn((), columns, 5) == " " * 5


# --- the command ---------------------------------------------------------------------------


@pytest.mark.parametrize("found", ["none", "0.89.1", "7.5.0"])
def test_without_textual_one_line_says_what_to_install(
    found: str, cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        assert name == "textual"
        if found == "none":
            raise metadata.PackageNotFoundError
        return found

    monkeypatch.setattr(metadata, "version", version)
    done = cli("browse", store=store)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"error: browse needs the package textual, 8.0 or later; found: {found}. Install it: "
        f"`{install_command('tui')}`.\n"
    )


def test_the_extra_asks_for_what_the_line_says() -> None:
    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["tui"] == [f"textual>={browse._LEAST_MAJOR}.0"]


def test_without_a_terminal_it_says_what_prints_rows(cli: Cli, store: Path) -> None:
    done = cli("browse", store=store)
    assert done.code == 2 and "browse needs a terminal" in done.err
    assert cli("browse", "--queue-id", "0", store=store).code == 2


_BROWSE = (sys.executable, "-m", "rmqctl", "browse")


def on_a_terminal(store: Path, keys: bytes, ending: int | None = None) -> tuple[int, bytes]:
    """Runs the command with a terminal, and types when its first screen is there; exit code and
    what came to the terminal."""
    conf = store.parent / "broker.conf"
    command = OnTerminal(
        # Whoever runs the tests by nohup ignores SIGHUP, and so would the command.
        ["env", "--default-signal=HUP", *_BROWSE, "--store", str(store), "--broker-conf", conf],
        stdin=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
    )
    seen, typed = b"", False
    for data in command:
        seen += data
        if b"orders" in seen and not typed:
            typed = True
            if ending is None:
                os.write(command.controller, keys)
            else:
                command.process.send_signal(ending)
    return command.process.wait(60), seen


@pytest.mark.parametrize(
    ("keys", "ending", "code"), [(b"q", None, 0), (b"\x03", None, 130), (b"", signal.SIGTERM, 130)]
)
def test_the_terminal_is_left_as_it_was(
    keys: bytes, ending: int | None, code: int, cli: Cli, store: Path
) -> None:
    cli("info", store=store)  # Writes broker.conf.
    done, seen = on_a_terminal(store, keys, ending)
    assert done == code
    assert seen.count(b"\x1b[?1049h") == seen.count(b"\x1b[?1049l") == 1
    assert b"Traceback" not in seen and b"\xe2\x80\xae" not in seen


def test_with_the_terminal_the_process_goes(cli: Cli, store: Path) -> None:
    cli("info", store=store)  # Writes broker.conf.
    done, _ = on_a_terminal(store, b"", signal.SIGHUP)
    assert done == -signal.SIGHUP
