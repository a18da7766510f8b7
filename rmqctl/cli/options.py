"""Options that commands share, bundled as one argument.

``@command(…)`` makes a command, ``@common`` gives it ``--store``, ``--broker-conf``, ``--format``,
``--json``, ``-q`` and ``-v``, bundled as one :class:`Settings` argument. A command returns its exit
code (None is 0). A ``@group(…)`` takes the common options before the name of its command, too.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from formats.constants import INT_MAX, LONG_MAX
from rmqctl.cli import pager
from rmqctl.cli.output import FORMATS
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import OFFSET, QUEUE_ID, Name, StorePath, Time, Whole

F = TypeVar("F", bound=Callable[..., Any])

#: At most so many threads read a log: one window has no work for more.
_MOST_JOBS = 4


class Option(click.Option):
    """An option with former names (``formerly``), which still work but are not shown."""

    def __init__(self, *args: Any, formerly: Sequence[str] = (), **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.formerly = formerly

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        shown, self.opts = self.opts, [*self.opts, *self.formerly]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


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
    "--no-pager": False,
}


def no_pager_option(function: F) -> F:
    return click.option(
        "--no-pager",
        is_flag=True,
        help="On a terminal: do not page with RMQCTL_PAGER, PAGER or less.",
    )(function)


_where_option = click.option(
    "--store",
    "root",
    metavar="DIR",
    envvar="RMQCTL_STORE",
    show_envvar=True,
    type=StorePath(file_okay=False),
    help="The broker's storePathRootDir, or @NAME; not needed if broker.conf names it.",
)
_conf_option = click.option(
    "--broker-conf",
    metavar="FILE",
    envvar="RMQCTL_BROKER_CONF",
    show_envvar=True,
    type=click.Path(),
    help="The broker's broker.conf, for file sizes other than the defaults.",
)


def store_options(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """The options of :func:`common` that name the store, for a command that prints no rows."""

    @_where_option
    @_conf_option
    @functools.wraps(function)
    def run(root: Path | str | None, broker_conf: str | None, **options: Any) -> int | None:
        from rmqctl.cli.place import place_of

        where, conf = place_of(root, broker_conf)
        return function(Settings(where, conf, "table", False, False), **options)

    return run


def common(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Gives a command the options that all have, as its first argument ``settings``."""

    @_where_option
    @_conf_option
    @_output_options
    @functools.wraps(function)
    def run(
        root: Path | str | None, broker_conf: str | None, told: Settings, **options: Any
    ) -> int | None:
        from rmqctl.cli.place import place_of

        where, conf = place_of(root, broker_conf)
        return function(replace(told, root=where, broker_conf=conf), **options)

    return run


def two_stores(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """:func:`common` for a command that takes two stores: both as arguments, or the first one with
    --store. The command gets the second one as its argument ``other``."""

    @click.argument(
        "stores", metavar="[STORE_A] STORE_B", type=StorePath(file_okay=False), nargs=-1
    )
    @_where_option
    @_conf_option
    @_output_options
    @functools.wraps(function)
    def run(
        stores: tuple[Path | str, ...],
        root: Path | str | None,
        broker_conf: str | None,
        told: Settings,
        **options: Any,
    ) -> int | None:
        from rmqctl.cli.place import place_of, places_of

        if len(stores) not in (1, 2) or (len(stores) == 1 and not (root or broker_conf)):
            raise click.UsageError("name two stores, or one beside --store.")
        if len(stores) == 1:
            stores = (place_of(None, broker_conf).root if root is None else root, *stores)
        named, conf = places_of(stores, broker_conf, is_shared=True)
        settings = replace(told, root=Path(named[0]), broker_conf=conf)
        return function(settings, other=Path(named[1]), **options)

    return run


def without_store(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """:func:`common` without --store and --broker-conf, for a command that looks at no store."""

    @_output_options
    @functools.wraps(function)
    def run(told: Settings, **options: Any) -> int | None:
        return function(told, **options)

    return run


def _output_options(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """The options that say how to print, as one argument ``told``: settings without a store."""

    @click.option(
        "--format",
        metavar="FORMAT",
        type=click.Choice(FORMATS),
        help="table (the default), json, ndjson or csv.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
    @click.option(
        "-q", "--quiet", is_flag=True, help="Print no rows; the exit code has the result."
    )
    @click.option(
        "-v", "--verbose", is_flag=True, help="Show all columns in tables, and notes on stderr."
    )
    @no_pager_option
    @functools.wraps(function)
    def run(
        format: str | None,
        as_json: bool,
        quiet: bool,
        verbose: bool,
        no_pager: bool,
        **options: Any,
    ) -> int | None:
        if as_json and format not in (None, "json"):
            raise click.UsageError(f"--json and --format {format} exclude each other.")
        chosen = "json" if as_json else format or "table"
        told = Settings(Path(), None, chosen, quiet, verbose, pager.is_wanted(no_pager))
        return function(told=told, **options)

    return run


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
        help="Stored at this time or after: ms, ISO 8601, -2h, 14:30, yesterday or now.",
    )(function)


def completed(names: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """The completion of an option's value. ``names`` is a function of
    :mod:`~rmqctl.cli.completing`, a module that is loaded only when the shell asks."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from rmqctl.cli import completing

        found: list[Any] = getattr(completing, names)(ctx, param, incomplete)
        return found

    return complete


def topic_option(*, required: bool = False) -> Callable[[F], F]:
    text = "Topic." if required else "Only this topic."
    return click.option(
        "--topic",
        metavar="TOPIC",
        type=Name(),
        required=required,
        shell_complete=completed("topics"),
        help=text,
    )


def queue_id_option(*, required: bool = False) -> Callable[[F], F]:
    text = "Queue of the topic." if required else "Only this queue."
    return click.option(
        "--queue-id",
        metavar="N",
        type=QUEUE_ID,
        required=required,
        shell_complete=completed("queue_ids"),
        help=text,
    )


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
        "--body-as",
        "body",
        cls=Option,
        formerly=("--body",),
        metavar="SPELLING",
        type=click.Choice(("none", "base64", "utf8", "hex")),
        default="none",
        help="Show the stored body: base64, utf8 (base64 where it is not UTF-8), hex or none (the "
        "default).",
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
        help="With --decompress: do not show bodies larger than this.",
    )
    @functools.wraps(function)
    def run(*args: Any, decompress: bool, decompress_limit: int, **kw: Any) -> Any:
        if decompress and kw.get("body") == "none":
            raise click.UsageError("--decompress needs --body-as utf8, base64 or hex.")
        return function(*args, decompress_limit=decompress_limit if decompress else None, **kw)

    return run  # type: ignore[return-value]


def jobs_option(function: F) -> F:
    """``--jobs``: threads of this process; a command asks :func:`jobs_of` for their number."""
    return click.option(
        "--jobs",
        metavar="N",
        type=Whole(1, INT_MAX),
        help="Threads that read the log, 4 at most; by default one for each core.",
    )(function)


#: ``--report``: a page of :mod:`rmqctl.cli.storepage` beside the rows.
report_option = click.option(
    "--report",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write one HTML page: log, queues, index, what to do.",
)


def check_spark(options: dict[str, Any]) -> None:
    """:raises click.UsageError: --jobs is given with --master, or --conf without it."""
    if options["jobs"] is not None and options["master"] is not None:
        raise click.UsageError("--jobs and --master exclude each other: Spark has its own cores.")
    if options.get("conf") and options["master"] is None:
        raise click.UsageError("--conf needs --master: its settings are Spark's.")


def jobs_of(options: dict[str, Any]) -> int:
    """How many threads were asked for.

    :raises click.UsageError: as of :func:`check_spark`.
    """
    check_spark(options)
    jobs: int | None = options["jobs"]
    return min(jobs or len(os.sched_getaffinity(0)), _MOST_JOBS)
