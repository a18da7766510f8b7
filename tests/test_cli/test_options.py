"""One name for one thing among all commands; what is typed wrong is told by its meaning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rmqctl.cli import meant
from rmqctl.cli.main import cli as root
from rmqctl.cli.types import Time
from tests.test_cli.conftest import Cli, state

#: What a name means in one command only, and why it stays.
OWN_MEANING = {
    ("put", "--tag"),  # One tag, where others take an expression of several.
    ("put", "--from"),  # A file or stdin, where import takes a directory.
    ("salvage", "--from"),  # Another copy of the store.
    ("backup create", "--output"),  # A directory, a file, or a URL of one.
    ("export", "--format"),  # Of the files that it writes.
    ("replicate", "--to"),  # A copy, which no variable may name by accident.
    ("serve", "--flush"),  # A server does not end soon, so not "none".
    ("replicate", "--keep"),  # How much of the copy; of `demo` where.
}
#: Old names, which go on.
FORMER = [
    ("pull", "--max-messages", "--limit"),
    ("index query", "--max", "--limit"),
    ("stats", "--top", "--limit"),
    ("stats", "--html", "--report"),
    ("fleet verify", "--html", "--report"),
    ("clean", "--at", "--now"),
    ("export", "--to", "--output"),
    ("put", "--tags", "--tag"),
    ("put", "--keys", "--key"),
    ("walk commitlog", "--body", "--body-as"),
    ("find", "--body", "--body-as"),
    ("pull", "--body", "--body-as"),
    ("message", "--body", "--body-as"),
    ("index query", "--body", "--body-as"),
]


def _commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for part in command.list_commands(context):
            found = command.get_command(context, part)
            assert found is not None
            yield from _commands(found, f"{name} {part}".strip())
    else:
        yield name, command


COMMANDS = dict(_commands(root))


def _options(name: str) -> Iterator[tuple[str, click.Option]]:
    for option in COMMANDS[name].params:
        if isinstance(option, click.Option):
            for spelled in option.opts:
                yield spelled, option


def _means(option: click.Option) -> tuple[object, ...]:
    kind = type(option.type).__name__.replace("StoreName", "StorePath")
    # A directory that does not exist yet is a text to some.
    kind = "Text" if kind in ("Path", "StringParamType") else kind
    return option.is_flag, option.metavar, kind, getattr(option.type, "choices", None)


def test_a_name_means_the_same_in_every_command() -> None:
    meanings: dict[str, dict[tuple[object, ...], str]] = {}
    for command in COMMANDS:
        for spelled, option in _options(command):
            if (command, spelled) not in OWN_MEANING:
                meanings.setdefault(spelled, {}).setdefault(_means(option), command)
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}


def test_every_command_has_the_common_options() -> None:
    common = {"--store", "--broker-conf", "--format", "--json", "--quiet", "--verbose"}
    # These look at no store that is there; the last prints no rows.
    without = {"demo", "help", "version", "config stores", "backup verify", "backup ls", "restore"}
    fleets = {name for name in COMMANDS if name.startswith("fleet ")}  # A list: --stores.
    for command in COMMANDS.keys() - without - fleets - {"replicate", "browse"}:
        assert common <= {name for name, _ in _options(command)}, command


def test_what_is_a_time_is_told_as_one() -> None:
    for command in COMMANDS:
        for spelled, option in _options(command):
            assert (option.metavar == "TIME") is isinstance(option.type, Time), (command, spelled)


@pytest.mark.parametrize(("command", "former", "name"), FORMER)
def test_old_names_go_on_without_being_shown(
    command: str, former: str, name: str, cli: Cli
) -> None:
    shown = cli(*command.split(), "--help").out
    assert f"{name} " in shown and f"{former} " not in shown
    required = [
        text
        for one in COMMANDS[command].params
        if isinstance(one, click.Option) and one.required and name not in one.opts
        for text in (one.opts[0], "1")
    ]
    required += ["x" for one in COMMANDS[command].params if isinstance(one, click.Argument)]
    given = "hex" if name == "--body-as" else "7"
    for spelled in (former, name):
        with COMMANDS[command].make_context("x", [spelled, given, *required]) as context:
            (value,) = (
                context.params[str(one.name)]
                for one in COMMANDS[command].params
                if name in one.opts
            )
        assert value in (7, given, (given,), Path(given))


@pytest.mark.parametrize(("command", "former", "name"), FORMER)
def test_pages_use_the_names_of_now(command: str, former: str, name: str) -> None:
    top = Path(__file__).parents[2]
    for page in (top / "README.md", *(top / "docs").rglob("*.md")):
        for line in page.read_text("utf-8").splitlines():
            said = line.partition(f"rmqctl {command} ")[2].partition("|")[0]
            assert f" {former} " not in f" {said} ", f"{page.name}: {name} in {line}"


@pytest.mark.parametrize("line", ["verify", "rebuild queues --in-place --dry-run", "fleet verify"])
def test_settings_of_spark_need_spark(line: str, cli: Cli, store: Path) -> None:
    """They were passed over, and the work was done without it."""
    name, *rest = line.split()
    which = ["--stores", str(store)] if name == "fleet" else ["--store", str(store)]
    done = cli(name, *rest, *which, "--conf", "spark.cores.max=2")
    assert (done.code, done.out) == (2, "") and "--conf needs --master" in done.err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("walk commitlog --interval 1", "--interval needs --follow"),
        ("groups --interval 1", "--interval needs --watch"),
        ("index query --topic orders --key a --raw --body-as utf8", "and without --body-as"),
        ("pull --topic orders --queue-id 0 --follow --physical-memory 1", "exclude each other"),
        ("put --topic a --body x --flush async --sync-flush-timeout 1", "goes with --flush sync"),
        ("rebuild queues --purge --topic orders --yes", "it removes all old files"),
        ("rebuild queues --purge --queue-id 0 --dry-run", "leave --queue-id out"),
        ("repair --plan plan.json --yes", "--plan changes nothing"),
        ("export --output new --format store --until 0", "takes all messages"),
    ],
)
def test_options_that_would_be_passed_over_are_refused(
    line: str, told: str, cli: Cli, store: Path
) -> None:
    before = state(store)
    done = cli(*line.split(), "--store", store)
    assert (done.code, done.out) == (2, "") and told in done.err
    assert state(store) == before


@pytest.mark.parametrize("host", ["a..b", "a" * 64, ".", "x." + "a" * 64])
def test_what_is_no_name_of_a_host(host: str, cli: Cli, store: Path) -> None:
    """Python has an error of its own for it, which was told as a bug."""
    for line in (
        ("serve", "--read-only", "--listen", f"{host}:0", "--store", store),
        ("replicate", f"{host}:10912", "--to", store),
    ):
        done = cli(*line)
        assert (done.code, done.out) == (2, "") and "is no name of a host" in done.err


def test_keys_of_a_message(cli: Cli, tmp_path: Path) -> None:
    place = tmp_path / "store"
    put = ("put", "--create", "--topic", "t", "--body", "x", "--store", place)
    assert cli(*put, "--key", "a", "--key", "b", "--keys", "c d", "--tag", "T").code == 0
    (row, _) = cli("walk", "commitlog", "--store", place, "--format", "ndjson").rows
    assert row["properties"] == {"KEYS": "a b c d", "TAGS": "T"}


def test_walk_takes_tags_and_a_filter(cli: Cli, store: Path) -> None:
    line = ("walk", "commitlog", "--topic", "orders", "--format", "ndjson")

    def found(*more: str) -> set[str]:
        rows = cli(*line, *more, store=store).rows[:-1]
        return {row["properties"]["TAGS"] for row in rows}

    assert found("--tag", "paid") == {"paid"}
    assert found("--tag", "due || paid") == {"due", "paid"}
    assert found("--tag", "paid", "--filter", "TAGS = 'due'") == set()
    assert cli(*line, "--tag", "none", store=store).code == 1
    assert "names no tag" in cli(*line, "--tag", " ", store=store).err


@pytest.mark.parametrize("what", [("walk", "commitlog"), ("pull", "--queue-id", "0")])
def test_a_filter_by_one_of_several_keys_is_told_of(
    what: tuple[str, ...], cli: Cli, store: Path
) -> None:
    line = (*what, "--topic", "orders", "--format", "ndjson", "--filter")
    told = "compares KEYS as a whole"
    for sql in ("KEYS = 'order-2'", "KEYS IN ('order-2')", "'all' = KEYS"):
        done = cli(*line, sql, store=store)
        assert done.code == 1 and told in done.err
    for sql in ("KEYS = 'order-2 all'", "KEYS CONTAINS 'order-2 '", "KEYS STARTSWITH 'order-2 '"):
        done = cli(*line, sql, store=store)
        assert [row["queue_offset"] for row in done.rows[:-1]] == [1] and told not in done.err
    assert told not in cli(*line, "MONKEYS = 'x'", store=store).err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("walk commitlog --max 3", "'--limit'"),
        ("find x -n 3", "'--limit'"),
        ("walk commitlog --tags x", "'--tag'"),
        ("verify --out x", "'--output'"),
        ("sql x --to y", "'--output'"),
        ("index query --key-hash 3", "'--key' or '--raw'"),
        ("pull --queueId 3", "'--queue-id'"),
        ("pull --queue_id 3", "'--queue-id'"),
        ("pull --topc t", "'--topic'"),
        ("groups -g x", "'--group'"),
        ("verify --path x", "'--store'"),
        ("clean -y", "'--yes'"),
        ("rebuild all --fix", "'--in-place'"),
        ("walk commitlog --begin-timestamp 3", "'--since'"),
        ("-V", "'--version'"),
        ("check", "'verify'"),
        ("lag", "'groups'"),
        ("mend", "'rebuild'"),
        ("snapshot", "'backup'"),
        ("compare", "'diff'"),
        ("start", "'simulate-start' or 'serve'"),
        ("recover", "'flush' or 'salvage' or 'restore'"),
        ("pul", "'pull'"),
    ],
)
def test_what_was_meant(line: str, told: str, cli: Cli) -> None:
    done = cli(*line.split())
    assert (done.code, done.out) == (2, "")
    assert f"Did you mean {told}? Try `rmqctl" in done.err


def test_nothing_is_guessed_at_random(cli: Cli) -> None:
    for line in ("walk commitlog --zzz", "put --outside", "zzz"):
        error = cli(*line.split()).err
        assert "no such" in error and "mean" not in error and "ossible" not in error


def test_the_table_of_meanings_names_what_there_is() -> None:
    options = {name for command in COMMANDS for name, _ in _options(command)}
    assert meant._OPTIONS.keys() <= options | {"--version"}
    assert meant._COMMANDS.keys() <= set(root.list_commands(click.Context(root)))
    for name, words in (meant._OPTIONS | meant._COMMANDS).items():
        assert len(words.split()) == len(set(words.split())), name
    for name, words in meant._COMMANDS.items():
        assert not meant._COMMANDS.keys() & set(words.split()), name


def test_a_store_that_was_given_as_an_argument(cli: Cli, store: Path) -> None:
    for line in ("verify", "info", "walk commitlog", "rebuild all"):
        done = cli(*line.split(), store)
        assert done.code == 2 and f"Did you mean '--store {store}'?" in done.err, line
    assert "Did you mean" not in cli("verify", store / "absent").err
    assert "extra arguments (a b). Try" in cli("verify", "a", "b").err
