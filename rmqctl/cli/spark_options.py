"""Options of the commands that run on Spark, and the session that they open. It imports no Spark
before a session is opened."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from rmqctl.cli.options import no_pager_option
from rmqctl.cli.output import FORMATS, RowWriter
from rmqctl.cli.pager import is_wanted
from rmqctl.cli.place import places_of
from rmqctl.cli.settings import Settings
from rmqctl.cli.types import StorePath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

F = TypeVar("F", bound=Callable[..., Any])
LOCAL = "local[*]"


def spark_options(default: str | None = None) -> Callable[[F], F]:
    """``--master`` and ``--conf``. Without a ``default`` the command uses Spark only with
    ``--master``."""
    text = "Run on Apache Spark: local[*], spark://HOST:PORT, yarn, k8s://…, sc://HOST."
    if default is not None:
        text = "Spark's master: spark://HOST:PORT, yarn, k8s://…; this machine by default."

    def decorate(function: F) -> F:
        function = click.option(
            "--conf",
            metavar="KEY=VALUE",
            multiple=True,
            callback=_pairs,
            help="A setting for Spark (repeatable).",
        )(function)
        return click.option("--master", metavar="URL", default=default, help=text)(function)

    return decorate


def _pairs(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in value:
        name, equals, setting = text.partition("=")
        if not (name.strip() and equals):
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", ctx, param)
        pairs[name.strip()] = setting.strip()
    return pairs


class StoreName(StorePath):
    """A directory, a pattern of several, or a URL. An environment variable may hold several:
    directories with ``:`` between them, URLs with blanks."""

    name = "store"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "://" in str(value):
            return str(value)
        found = super().convert(value, param, ctx)
        if isinstance(found, Path) and str(found).startswith("@"):
            return f"./{found}"  # A directory whose name begins with @, and no store's name.
        return str(found)

    def split_envvar_value(self, rv: str) -> list[str]:
        return rv.split() if "://" in rv else rv.split(os.pathsep)


class SparkSettings(NamedTuple):
    """:class:`Settings` of a command that reads several stores. ``named`` are the stores as they
    were given, with patterns expanded."""

    named: list[str]
    broker_conf: str | None
    quiet: bool
    verbose: bool
    paged: bool = False

    @property
    def stores(self) -> list[str]:
        """The stores for other processes: absolute paths, and URLs."""
        return [name if "://" in name else str(Path(name).absolute()) for name in self.named]

    def settings(self, format: str = "table", store: str | None = None) -> Settings:
        """The settings of one store; without ``store`` of the first, for what all have in common,
        as the writer of rows."""
        root = Path(store or self.named[0])
        return Settings(root, self.broker_conf, format, self.quiet, self.verbose, self.paged)

    def check_outside(self, option: str, place: str | Path) -> None:
        """:raises UsageError: ``place``, where something will be written, lies in a store."""
        from rmqctl.cli.outside import check_outside

        check_outside(option, place, [self.settings(store=name) for name in self.named])

    def mapped_stores(self, verb: str, format: str, master: str | None) -> list[Settings]:
        """The settings of each store, for a command that maps files; without Spark there is one.

        :raises UsageError: there are several, or one is named by a URL.
        """
        if master is None and len(self.named) > 1:
            raise click.UsageError(
                f"{verb} takes {len(self.named)} stores on Spark only: add --master '{LOCAL}'."
            )
        for store in self.named:
            if "://" in store:
                raise click.UsageError(
                    f"{verb} maps a store's files, and {store} has none here: copy it to a "
                    "file system that every node sees, and name the directory."
                )
        self._check_spread()
        return [self.settings(format, store) for store in self.named]

    def _check_spread(self) -> None:
        """:raises UsageError: ``storePathCommitLog`` lists the directories of one store, but there
        are several, or a URL. :raises BrokerConfError: the file cannot be read as one."""
        from rmqctl.engine.settings.logdirectories import is_spread

        several = len(self.named) > 1 or "://" in self.named[0]
        if self.broker_conf and is_spread(self.settings().config) and several:
            raise click.UsageError(
                f"storePathCommitLog of {self.broker_conf} lists the directories of one store on "
                "this machine: read it alone, or give a broker.conf without that line."
            )

    def writer(self, format: str, main_type: str | None = None, *, bulk: bool = False) -> RowWriter:
        return self.settings(format).writer(main_type, bulk=bulk)

    @property
    def source_options(self) -> dict[str, str]:
        """Options of the data source; the configuration travels as text."""
        if not self.broker_conf:
            return {}
        self._check_spread()
        from rmqctl.engine.settings.storeconfig import read_broker_conf

        text = read_broker_conf(self.broker_conf)
        path = self.settings().config.store_path_commit_log.replace("\\", "\\\\")
        # A single directory counts only for the store that storePathRootDir names, which workers
        # cannot see. The empty line ends a last line that goes on.
        return {"brokerConf": f"{text}\n\nstorePathCommitLog={path}\n" if path else text}


def output_options(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """``--format`` and ``--json``, as one argument ``format``."""

    @click.option(
        "--format",
        metavar="FORMAT",
        type=click.Choice(FORMATS),
        help="table (the default), json, ndjson or csv.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
    @functools.wraps(function)
    def run(*, format: str | None, as_json: bool, **options: Any) -> int | None:
        if as_json and format not in (None, "json"):
            raise click.UsageError(f"--json and --format {format} exclude each other.")
        return function(format="json" if as_json else format or "table", **options)

    return run


def several_stores(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """``--store`` (repeatable, each may be a pattern or a URL), ``--broker-conf``, -q and -v."""

    @click.option(
        "--store",
        "roots",
        metavar="DIR",
        multiple=True,
        envvar="RMQCTL_STORE",
        show_envvar=True,
        type=StoreName(file_okay=False),
        help="A broker's storePathRootDir, a pattern of several, a URL, or @NAME (repeatable).",
    )
    @click.option(
        "--broker-conf",
        metavar="FILE",
        envvar="RMQCTL_BROKER_CONF",
        show_envvar=True,
        type=click.Path(),
        help="Their broker.conf.",
    )
    @click.option(
        "-q", "--quiet", is_flag=True, help="Print no rows; the exit code has the result."
    )
    @click.option(
        "-v", "--verbose", is_flag=True, help="Show all columns in tables, and notes on stderr."
    )
    @no_pager_option
    @functools.wraps(function)
    def run(
        roots: tuple[str, ...],
        broker_conf: str | None,
        quiet: bool,
        verbose: bool,
        no_pager: bool,
        **options: Any,
    ) -> int | None:
        named, conf = places_of(roots, broker_conf)
        paged = is_wanted(no_pager)
        return function(SparkSettings(_expanded(named), conf, quiet, verbose, paged), **options)

    return run


def _expanded(roots: Sequence[str]) -> list[str]:
    """The stores that names, patterns and URLs stand for, each once.

    :raises StoreNotFound, NotAStore: one is no store. :raises RemoteUnreadable: a URL cannot be
        read.
    """
    from rmqctl.spark.remote.stores import check_store, matching
    from rmqctl.spark.session.staging import is_remote

    stores: dict[str, str] = {}
    for root in roots:
        if is_remote(root):
            from rmqctl.spark.session.session import check_spark

            check_spark()
        for store in matching(root) or [root]:
            check_store(store)
            stores.setdefault(store if is_remote(store) else os.path.abspath(store), store)
    return list(stores.values())


def is_local(options: dict[str, Any]) -> bool:
    """Whether Spark runs here, as it comes: else names may be those of its settings, or a
    cluster's, and only it knows them."""
    return options["master"].startswith("local") and not options["conf"]


def is_spark_asked(options: dict[str, Any]) -> bool:
    """Whether ``--master`` or ``--conf`` were typed, of a command that has a default for
    ``--master``."""
    source = click.get_current_context().get_parameter_source("master")
    return source is not ParameterSource.DEFAULT or bool(options["conf"])


@contextmanager
def spark_session(
    options: dict[str, Any], advance: Callable[[int], None] | None = None, total: int = 0
) -> Iterator[SparkSession]:
    """The session that ``--master`` and ``--conf`` ask for. Spark's errors become rmqctl's.

    :param advance: is told which part of ``total`` is done, by the tasks that are.
    """
    from rmqctl.spark.session.session import check_spark

    check_spark()
    from rmqctl.spark.session.failures import failures_told
    from rmqctl.spark.session.progress import TOTAL, watched
    from rmqctl.spark.session.session import session

    def step(done: int) -> None:
        if advance is not None:
            advance(done * total // TOTAL)

    with (
        session(options["master"], options["conf"]) as spark,
        failures_told(),
        watched(spark, step),
    ):
        yield spark
