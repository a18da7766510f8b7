"""Options that commands share, and the command class whose help has examples and exit codes.

``@command(…)`` makes a command, ``@common`` gives it ``--store``, ``--broker-conf``, ``--format``,
``--json``, ``-q`` and ``-v``, bundled as one :class:`Settings` argument. A command returns its exit
code (None is 0). A ``@group(…)`` takes the common options before the name of its command, too.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from rmqctl.cli.output import FORMATS, RowWriter, note

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig

F = TypeVar("F", bound=Callable[..., Any])
LONG_MAX = 0x7FFFFFFFFFFFFFFF
INT_MAX = 0x7FFFFFFF


class Whole(click.ParamType[int]):
    """A whole number in decimal digits, within limits."""

    name = "number"

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip()
        if not re.fullmatch(r"-?[0-9]{1,40}", text):
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if not self.low <= int(text) <= self.high:
            self.fail(f"{text} is not within {self.low} to {self.high}", param, ctx)
        return int(text)


#: A physical offset, a queue offset: a Java long that is not negative.
OFFSET = Whole(0, LONG_MAX)
QUEUE_ID = Whole(0, INT_MAX)

EXIT_CODES = {
    0: "done, nothing wrong found",
    1: "done: findings, or nothing matched",
    2: "usage",
    3: "no such store, or not a store",
    4: "the store is in use by a broker, or read-only",
    5: "cannot continue: damaged or unsupported data",
    6: "refused: needs consent (--yes)",
    70: "a bug in rmqctl",
    130: "interrupted",
}
#: Of commands that change a store.
WRITING_EXITS = {code: EXIT_CODES[code] for code in (4,)}


class Command(click.Command):
    """A command whose help has examples before the options and the exit status after them."""

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        exits: dict[int, str] | None = None,
        **kw: Any,
    ) -> None:
        super().__init__(*args, **kw)
        self.examples = examples
        self.exits = exits or {}

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        codes = {code: EXIT_CODES[code] for code in (0, 2, 3, 5)} | self.exits
        with formatter.section("Exit status"):
            formatter.write_dl([(str(code), codes[code]) for code in sorted(codes)])


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    if examples:
        with formatter.section("Examples"):
            for line in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def command(
    name: str, *, examples: Sequence[str], exits: dict[int, str] | None = None, **kw: Any
) -> Callable[[Callable[..., Any]], Command]:
    """``@click.command`` with examples (command lines) and the exit codes beyond 0, 2, 3 and 5."""
    return click.command(name, cls=Command, examples=examples, exits=exits, **kw)


class Group(click.Group):
    """A group of commands whose help has examples, and which takes the common options before the
    command as well as after it."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, command_first(args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            close = get_close_matches(args[0], self.list_commands(ctx), 1)
            if not close:
                raise
            text = f"{error.message} Did you mean {close[0]!r}?"
            raise click.UsageError(text, error.ctx) from None

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)


def command_first(args: list[str]) -> list[str]:
    """``--store DIR queues …`` as ``queues --store DIR …``; with no command, what follows them."""
    at = 0
    while at < len(args) and args[at].partition("=")[0] in COMMON_OPTIONS:
        takes_value = COMMON_OPTIONS[args[at].partition("=")[0]]
        at += 2 if takes_value and "=" not in args[at] else 1
    rest = args[at:]
    if not rest or rest[0].startswith("-"):
        return rest
    return [rest[0], *args[:at], *rest[1:]]


def group(
    name: str, *, examples: Sequence[str], cls: type[Group] = Group
) -> Callable[[Callable[..., Any]], Group]:
    """``@click.group`` with examples."""
    return click.group(name, cls=cls, examples=examples)


class Settings(NamedTuple):
    """What every command is told."""

    root: Path
    broker_conf: str | None
    format: str
    quiet: bool
    verbose: bool

    @property
    def config(self) -> MessageStoreConfig:
        from rmqctl.engine.settings.storeconfig import MessageStoreConfig, load_broker_conf

        return load_broker_conf(self.broker_conf) if self.broker_conf else MessageStoreConfig()

    def open(self, *, writable: bool = False, create: bool = False, **changes: Any) -> MessageStore:
        """Opens the store; use as a context manager. ``changes`` go before the ``broker.conf``."""
        from rmqctl.engine.messagestore import MessageStore

        config = replace(self.config, **changes) if changes else self.config
        with self.quiet_progress("recovery") as progress:
            store = MessageStore(
                self.root, config, writable=writable, create=create, progress=progress
            )
        if writable:
            self._note_recovery(store)
        self.detail(
            f"{self.root}: log from {store.min_offset} to {store.max_offset}, files of "
            f"{store.commit_log.file_size} bytes, queue files of {store.queues.file_size}"
        )
        if store.irregular:
            from rmqctl.operations.look.info import irregular_files

            self.note_irregular(irregular_files(store))
        return store

    def _note_recovery(self, store: MessageStore) -> None:
        """Says what opening for writing did with what a crash, or a loss, has left."""
        plan = store.plan
        if not plan.is_needed:
            return
        cut = sum(one.max_offset - one.end for one in plan.queue_cuts if not one.is_hole)
        self.note(
            ("note: " if plan.is_clean else "note: the store was not closed cleanly: ")
            + f"brought in order as by a broker's start; the log ends at {plan.end.offset}, "
            f"{plan.dispatch_bytes} bytes of it were dispatched again"
            + (f", {cut} units without a record are gone" if cut else "")
            + "."
        )

    def quiet_progress(self, title: str) -> AbstractContextManager[Callable[[int, int], None]]:
        """A bar on a terminal's stderr for what comes before any row, and seldom takes long; gives
        the function that takes what is done, and how much there is."""
        from rmqctl.cli.progress import late_progress

        return late_progress(title, quiet=self.quiet)

    def planned_recovery(self, store: MessageStore, writer: RowWriter) -> None:
        """For a dry run: the row of what opening for writing would do first, if anything."""
        from rmqctl.operations.mend.recovery import planned_row

        with self.quiet_progress("recovery") as progress:
            row = planned_row(store, progress)
        if row is not None:
            writer.row(row)

    def note_irregular(self, files: list[str]) -> None:
        """Says which files are not as long as they must be, so that something may be left out."""
        if not files:
            return
        self.note(
            f"note: {_some(files)}. What they lack is left out, and a broker does not start on "
            "them: `rmqctl verify` says what to do."
        )

    def note_index(self, store: MessageStore) -> bool:
        """Says which index files are passed over; whether there are any."""
        files = [f"{path.name} ({size} bytes)" for path, size in store.index.irregular.items()]
        if files:
            self.note(
                f"note: index files of a wrong length are left out: {_some(files)}. Messages may "
                "be missing here: `rmqctl rebuild index` writes the index anew."
            )
        return bool(files)

    def writer(
        self,
        main_type: str | None = None,
        *,
        bulk: bool = False,
        vertical: bool = False,
        live: bool = False,
    ) -> RowWriter:
        """The writer of the command's rows; use as a context manager."""
        return RowWriter(
            self.format,
            main_type=main_type,
            bulk=bulk,
            vertical=vertical,
            live=live,
            wide=self.verbose,
            quiet=self.quiet,
        )

    def note(self, text: str) -> None:
        """A note on stderr, unless -q."""
        if not self.quiet:
            note(text)

    def detail(self, text: str) -> None:
        """A note on stderr with -v."""
        if self.verbose and not self.quiet:
            note(text)

    def note_absent_queue(self, store: MessageStore, topic: str, queue_id: int) -> None:
        """A note when the store has no such queue, mostly because a name is mistyped."""
        if store.consume_queue(topic, queue_id) is None:
            self.note(
                f"note: there is no queue {queue_id} of topic {topic!r}: `rmqctl queues` lists all."
            )

    def progress(
        self, title: str, total: int, writer: RowWriter
    ) -> AbstractContextManager[Callable[[int], None]]:
        """A bar on a terminal's stderr; gives the function that takes what is done of ``total``."""
        from rmqctl.cli.progress import progress

        return progress(title, total, writer, quiet=self.quiet)


def _some(names: list[str]) -> str:
    more = f", and {len(names) - 3} more" if len(names) > 3 else ""
    return "; ".join(names[:3]) + more


class StorePath(click.Path):
    """A directory's name; an empty one is a variable that was not set, and not ``.``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "":
            self.fail("it is empty", param, ctx)
        return Path(value)


#: The options of :func:`common`, and whether each takes a value.
COMMON_OPTIONS = {
    "--store": True,
    "--broker-conf": True,
    "--format": True,
    "--json": False,
    "-q": False,
    "--quiet": False,
    "-v": False,
    "--verbose": False,
}


def common(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Gives a command the options that all have, as its first argument ``settings``."""

    @click.option(
        "--store",
        "root",
        metavar="DIR",
        required=True,
        envvar="RMQCTL_STORE",
        show_envvar=True,
        type=StorePath(file_okay=False),
        help="The broker's storePathRootDir.",
    )
    @click.option(
        "--broker-conf",
        metavar="FILE",
        type=click.Path(),
        help="The broker's broker.conf, for sizes other than the defaults.",
    )
    @click.option(
        "--format",
        metavar="FORMAT",
        type=click.Choice(FORMATS),
        help="table (the default), json, ndjson or csv.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
    @click.option("-q", "--quiet", is_flag=True, help="Print no rows: the exit code tells.")
    @click.option("-v", "--verbose", is_flag=True, help="All columns in tables, notes on stderr.")
    @functools.wraps(function)
    def run(
        root: Path,
        broker_conf: str | None,
        format: str | None,
        as_json: bool,
        quiet: bool,
        verbose: bool,
        **options: Any,
    ) -> int | None:
        if as_json and format not in (None, "json"):
            raise click.UsageError(f"--json and --format {format} exclude each other.")
        chosen = "json" if as_json else format or "table"
        return function(Settings(root, broker_conf, chosen, quiet, verbose), **options)

    return run


_AGO = re.compile(r"-([0-9]{1,9})(ms|s|m|h|d|w)")
_UNIT = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


class Time(click.ParamType[int]):
    """Epoch milliseconds, ISO 8601 (local zone when it names none), or ``-2h`` before now."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if re.fullmatch(r"[0-9]+", text):
            return Whole(0, LONG_MAX).convert(text, param, ctx)
        ago = _AGO.fullmatch(text)
        if ago:
            return time.time_ns() // 1_000_000 - int(ago[1]) * _UNIT[ago[2]]
        from datetime import UTC, datetime, timedelta

        try:
            moment = datetime.fromisoformat(text).astimezone()
        except (ValueError, OverflowError):
            self.fail(
                f"{text!r} is no time: give epoch milliseconds, ISO 8601 such as "
                "2024-05-01T12:00:00+02:00, or -2h (ms, s, m, h, d, w)",
                param,
                ctx,
            )
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def offset_range(function: F) -> F:
    """``--start`` and ``--end``: physical offsets, the end exclusive."""
    function = click.option(
        "--end", metavar="OFFSET", type=OFFSET, help="Physical offset to stop before."
    )(function)
    return click.option(
        "--start", metavar="OFFSET", type=OFFSET, help="Physical offset to start at."
    )(function)


def time_range(function: F) -> F:
    """``--since`` and ``--until``: store times, both inclusive."""
    function = click.option(
        "--until", metavar="TIME", type=Time(), help="Stored at this time or before."
    )(function)
    return click.option(
        "--since",
        metavar="TIME",
        type=Time(),
        help="Stored at this time or after: ms, ISO 8601, or -2h.",
    )(function)


def topic_option(*, required: bool = False) -> Callable[[F], F]:
    text = "Topic." if required else "Only this topic."
    return click.option("--topic", metavar="TOPIC", required=required, help=text)


def queue_id_option(*, required: bool = False) -> Callable[[F], F]:
    text = "Queue of the topic." if required else "Only this queue."
    return click.option("--queue-id", metavar="N", type=QUEUE_ID, required=required, help=text)


def limit_option(function: F) -> F:
    return click.option(
        "--limit", metavar="N", type=Whole(1, LONG_MAX), help="Print at most N rows."
    )(function)


def dry_run_option(function: F) -> F:
    return click.option(
        "--dry-run", is_flag=True, help="Change nothing, print what would be done."
    )(function)


def body_option(function: F) -> F:
    return click.option(
        "--body",
        metavar="SPELLING",
        type=click.Choice(("none", "base64", "utf8", "hex")),
        default="none",
        help="Show the stored body: base64, utf8, hex or none (the default).",
    )(function)


def decompress_options(function: F) -> F:
    """``--decompress`` and ``--decompress-limit``, as one argument ``decompress_limit``: None
    without."""

    @click.option(
        "--decompress", is_flag=True, help="Show bodies as a consumer gets them, not as stored."
    )
    @click.option(
        "--decompress-limit",
        metavar="BYTES",
        type=Whole(1, INT_MAX),
        default=64 << 20,
        show_default=True,
        help="With --decompress: bodies that are larger are not shown.",
    )
    @functools.wraps(function)
    def run(*args: Any, decompress: bool, decompress_limit: int, **kw: Any) -> Any:
        if decompress and kw.get("body") == "none":
            raise click.UsageError("--decompress needs --body utf8, base64 or hex.")
        return function(*args, decompress_limit=decompress_limit if decompress else None, **kw)

    return run  # type: ignore[return-value]
