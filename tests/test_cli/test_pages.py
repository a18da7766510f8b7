"""Tables on a terminal: of every command that prints one, at 80 columns and at 160."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.cli import layout, output, text
from rmqctl.cli.main import run
from rmqctl.engine.messagestore import MessageStore
from tests.conftest import Golden
from tests.golden_data import apply_damage, damage_case
from tests.test_cli.conftest import BORN, BROKER_CONF, CONFIG, Terminal, message

LONG = "com.example.a.long.name.payments.settlement.reconciliation.events.v2"
WIDE = "订单-已支付-通知主题-结算服务-生产环境"
GROUP = "cg_payments_settlement_reconciliation_service_group_production"
FAR = 123_456_789_012


Shown = Callable[..., str]


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """``on_terminal(80, "queues", …)``: what a command prints on a terminal of so many columns."""

    def show(columns: int, *line: object, code: int | None = 0) -> str:
        terminal = Terminal(io.BytesIO(), "utf-8")
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", str(columns))
            patch.setenv("TERM", "xterm")
            patch.setattr(sys, "stdout", terminal)
            assert run([str(part) for part in line]) == code or code is None
        return terminal.shown

    return show


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of long and of Chinese names, with consumers, in a directory with its broker.conf."""
    path = tmp_path_factory.mktemp("hard") / "store"
    clock = iter(range(BORN, BORN + 10**6))
    topics = (LONG, WIDE, "orders", "a" * 127)
    with MessageStore(
        path, CONFIG, writable=True, create=True, clock=lambda: next(clock)
    ) as opened:
        for number in range(24):
            properties = {
                "note": f"{WIDE} free text of some length {LONG}",
                "KEYS": f"order-{number} {WIDE}",
                "TAGS": "已支付已支付已支付",
            }
            body = f"{WIDE} {number} ".encode() * 5
            opened.put_message(
                message(number, topic=topics[number % 4], body=body, properties=properties)
            )
    (path / "config").mkdir(exist_ok=True)
    table = {f"{topic}@{group}": {0: 1, 1: 999} for topic in topics for group in (GROUP, WIDE)}
    (path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    (path.parent / "broker.conf").write_text(BROKER_CONF)
    return path


#: Commands of that store, each with what its header begins with; None where findings are told.
HARD = {
    ("topics",): "topic ",
    ("queues",): "topic ",
    ("groups",): "group ",
    ("groups", "--queues"): "group ",
    ("walk", "commitlog"): "log offset  topic ",
    ("walk", "commitlog", "--body-as", "utf8"): "log offset  topic ",
    ("walk", "queue"): "topic ",
    ("walk", "index"): "file ",
    ("pull", "--topic", WIDE, "--queue-id", "1", "--offset", "0"): "log offset  topic ",
    ("find", "order-3"): "log offset  topic ",
    ("index", "info"): "file ",
    ("index", "query", "--topic", "orders", "--key", WIDE): "log offset  topic ",
    ("index", "query", "--topic", "orders", "--key", WIDE, "--raw"): "file ",
    ("du",): "topic ",
    ("du", "--by", "topic,queue,tag,producer-host,day"): "topic ",
    ("du", "--disk"): "structure ",
    ("dump", "0"): "offset  size ",
    ("dump", "checkpoint"): "offset  size ",
    ("stats",): "topic ",
    ("config", "check"): None,
    ("clean", "--dry-run"): "topic ",
    (
        *("group", "set-offset", GROUP, "--topic", LONG, "--to", "begin", "--dry-run"),
    ): "topic ",
}  # fmt: skip


def widest(lines: list[str]) -> int:
    """The widest line. A command line that is advised is whole: it is there to be copied."""
    return max(text.width(line) for line in lines if not line.startswith("  rmqctl "))


def is_rule(line: str) -> bool:
    return bool(line) and set(line) == {"─"}


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("line", HARD, ids=" ".join)
def test_every_table_fits_the_terminal(
    line: tuple[str, ...], columns: int, hard: Path, on_terminal: Shown
) -> None:
    conf = hard.parent / "broker.conf"
    shown = on_terminal(columns, *line, "--store", hard, "--broker-conf", conf, code=None)
    lines = shown.splitlines()
    assert widest(lines) <= columns
    begin = HARD[line]
    if begin is None:
        assert not any(map(is_rule, lines[:3])) or columns == 160
        return
    rules = [number for number, one in enumerate(lines) if is_rule(one)]
    assert rules, shown
    for number in rules:
        # The header is the one line before the rule, and as wide as it: nothing is broken.
        header = lines[number - 1]
        assert header.startswith((begin, "structure ")) or line == ("stats",)
        assert text.width(header) <= len(lines[number]) <= columns
        assert "  " in header and "_" not in header
        # The first row is one line: its cells stand under their headings.
        assert text.width(lines[number + 1]) <= len(lines[number])


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize(
    ("name", "line", "begin"),
    [
        ("transaction", ("transaction", "ls", "--all"), "log offset  state "),
        ("transaction", ("transaction", "commit", "1246", "--dry-run"), "action  status "),
        ("delay", ("schedule", "ls"), "level  delay "),
        ("delay", ("schedule", "deliver", "--dry-run"), "level  progress "),
        ("timer", ("timer", "ls", "--now", "1795363220482"), "state "),
        ("broker", ("verify",), None),
        ("cqext", ("walk", "queue"), "topic "),
    ],
)
def test_so_do_those_of_real_brokers(
    name: str,
    line: tuple[str, ...],
    begin: str | None,
    columns: int,
    golden: Golden,
    broker_conf_file: Callable[[str], Path],
    on_terminal: Shown,
) -> None:
    where = ("--store", golden(name), "--broker-conf", broker_conf_file(name))
    lines = on_terminal(columns, *line, *where).splitlines()
    assert widest(lines) <= columns
    headers = [lines[number - 1] for number, one in enumerate(lines) if is_rule(one)]
    assert len(headers) == (begin is not None)
    assert all(header.startswith(begin or "") for header in headers)


@pytest.mark.parametrize("columns", [80, 160])
def test_rows_of_several_types_are_tables_one_below_the_other(
    columns: int,
    copy_store: Callable[[str], Path],
    broker_conf_file: Callable[[str], Path],
    tmp_path: Path,
    on_terminal: Shown,
) -> None:
    root = copy_store("basic")
    apply_damage(root, damage_case("flip-body-early-abort")["ops"])
    where = ("--store", root, "--broker-conf", broker_conf_file("basic"))

    def tables(*line: object) -> dict[str, str]:
        """The headers of what is shown, by their titles."""
        lines = on_terminal(columns, *line, *where, code=1).splitlines()
        assert widest(lines) <= columns
        titles = [n for n, one in enumerate(lines) if one.startswith("# ")]
        for number in titles:
            assert is_rule(lines[number + 2]) and (not number or lines[number - 1] == "")
        assert sum(map(is_rule, lines)) == len(titles)
        return {lines[n]: lines[n + 1] for n in titles}

    found = tables("simulate-start")
    assert list(found) == [
        *("# What the start does", "# Files that it deletes", "# Files that it cuts"),
        "# Queues after the start",
    ]
    assert found["# What the start does"].split() == ["what", "where", "why"]
    assert found["# Queues after the start"].startswith("topic ")
    lines = on_terminal(columns, "simulate-start", *where, code=1).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("delete-index "))
    margin = lines[at].index("its last message")
    # A sentence goes on below itself, and nothing of it is cut.
    more = lines[at + 1 :][: next(n for n, line in enumerate(lines[at + 1 :]) if line[0] != " ")]
    assert bool(more) == (columns == 80) and all(line[:margin].isspace() for line in more)
    told = " ".join([lines[at][margin:], *(line.strip() for line in more)])
    assert told.endswith("no checkpoint says that any of the index is on disk")
    found = tables("salvage", "--output", tmp_path / "new", "--dry-run")
    assert list(found) == ["# What cannot be read", "# Messages that are lost"]


def test_lines_between_rows_stay_lines(hard: Path, on_terminal: Shown) -> None:
    """A blank at the end of each log file is no table of one row."""
    where = ("--store", hard, "--broker-conf", hard.parent / "broker.conf")
    lines = on_terminal(160, "walk", "commitlog", *where).splitlines()
    assert sum(map(is_rule, lines)) == 1 and not any(line.startswith("# ") for line in lines)
    assert sum(line.startswith("blank: ") for line in lines) > 1


def test_what_is_cut_and_what_goes_is_told_and_v_shows_all(hard: Path, on_terminal: Shown) -> None:
    where = ("--store", hard, "--broker-conf", hard.parent / "broker.conf")
    narrow = on_terminal(80, "topics", *where)
    assert "com.example….events.v2  normal " in narrow and LONG not in narrow
    assert "\n(cut: topic. -v shows all)\n" in narrow
    groups = on_terminal(80, "groups", "--queues", *where)
    assert "\n(cut: group, topic; left out: consumed, max offset. -v shows all)\n" in groups
    everything = on_terminal(80, "topics", "-v", *where)
    assert "topic                   " in everything and "── topic 1 ──" in everything
    assert "".join(everything.replace("\n", "").split()).count(LONG) == 1
    assert "(cut" not in everything
    assert f"\n{LONG}  " in on_terminal(160, "topics", "--topic", LONG, *where)


def test_a_row_of_one_command_is_a_list_of_its_fields(hard: Path, on_terminal: Shown) -> None:
    shown = on_terminal(80, "message", "0", "--store", hard)
    lines = shown.splitlines()
    assert max(map(text.width, lines)) <= 80
    at = next(n for n, line in enumerate(lines) if line.startswith("properties"))
    margin = lines[at].index("KEYS=")
    assert lines[at][margin:].startswith("KEYS=order-0 ")
    assert all(line[:margin].isspace() for line in lines[at + 1 :] if "_" not in line[:margin])


def test_pages_with_the_same_columns_have_one_header(
    on_terminal: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    with output.RowWriter("table") as writer:
        for number in range(350):
            writer.row(
                {"type": "x", "n": 1000 + number, "topic": LONG if number > 99 else "a" * 60}
            )
        writer.row({"type": "x", "n": FAR, "topic": "t"})
    lines = terminal.shown.splitlines()
    headers = [number for number, line in enumerate(lines) if line.split() == ["n", "topic"]]
    # The last page has a number that the column has no room for.
    assert headers == [0, 302]


_TEXT = st.text(st.characters(codec="utf-8"), max_size=60) | st.text("订é한a\u0301 ", max_size=60)
_FIELD = st.sampled_from(
    ["topic", "group", "properties", "body", "lag", "path", "store_timestamp", "any", "code"]
)


@given(st.lists(st.dictionaries(_FIELD, _TEXT | st.integers(0, 2**63)), min_size=1, max_size=5),
       st.integers(20, 200))  # fmt: skip
def test_no_line_of_any_rows_is_wider_than_the_terminal(
    rows: list[dict[str, object]], columns: int
) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["topic"]
    page = layout.Page(names, rows)
    found = layout.fitted(page, columns, spare=("lag",), narrow={"topic": 5}, whole=False)
    if found is None:
        return
    lines = [found.header(), *found.rows(page, str)]
    assert len(lines) == len(rows) + 1
    assert max(map(text.width, lines)) <= found.width <= columns


@given(_TEXT, st.integers(2, 40))
def test_cutting_and_wrapping(value: str, room: int) -> None:
    shown = text.visible(value)
    for in_the_middle in (False, True):
        short = text.cut(shown, room, in_the_middle=in_the_middle)
        assert text.width(short) <= room
        if text.width(shown) <= room:
            assert short == shown
        else:
            assert "…" in short
    lines = text.wrapped(shown, room)
    assert max(map(text.width, lines)) <= room
    assert "".join(lines).replace(" ", "") == shown.replace(" ", "")


def test_a_note_is_broken_between_words(hard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "50")
    output.note(f"error: {WIDE} is wrong here. Run `rmqctl verify --store {LONG} -q` and see.")
    assert terminal.shown.splitlines() == [
        f"error: {WIDE} is",
        "wrong here. Run",
        f"`rmqctl verify --store {LONG} -q`",
        "and see.",
    ]
    assert text.in_sentences("a `b  c d", 4) == ["a `b", "c d"]


def test_lines_between_rows_that_come_one_by_one_are_broken_between_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    with output.RowWriter("table", main_type="replicated", live=True) as writer:
        writer.row({"type": "joined", "master": "10.1.2.3:10912", "from_offset": 248133})
        writer.summary(max_offset=248133, behind_bytes=0, caught_up=True)
    assert terminal.shown.splitlines() == [
        "joined: master=10.1.2.3:10912,",
        "  from_offset=248133",
        "summary: max_offset=248133,",
        "  behind_bytes=0, caught_up=yes",
    ]


def test_widths_of_what_is_not_latin() -> None:
    assert text.width("订单") == 4 and text.width("한글") == 4
    assert text.width("e\u0301") == 1 and text.width("\u1112\u1161\u11ab") == 2
    assert text.cut("订单已支付", 5) == "订单…"
    assert text.cut("abcdefgh", 5, in_the_middle=True) == "ab…gh"
    assert text.cut("e\u0301" * 8, 5, in_the_middle=True) == "e\u0301e\u0301…e\u0301e\u0301"
    assert text.wrapped("one two", 3) == ["one", "two"]
