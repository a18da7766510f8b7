"""Options of the commands that run on Spark, and the session they open. Imports no Spark."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from rmqctl.cli.options import Settings, StorePath
from rmqctl.cli.output import RowWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

F = TypeVar("F", bound=Callable[..., Any])
LOCAL = "local[*]"


def spark_options(default: str | None = None) -> Callable[[F], F]:
    """``--master`` and ``--conf``; without a default Spark is used only when it is asked for."""
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


class SparkSettings(NamedTuple):
    """What commands are told that read several stores."""

    stores: list[str]
    broker_conf: str | None
    quiet: bool
    verbose: bool

    def settings(self, format: str = "table") -> Settings:
        """The same for the writer of rows."""
        return Settings(Path(self.stores[0]), self.broker_conf, format, self.quiet, self.verbose)

    def writer(self, format: str, main_type: str | None = None, *, bulk: bool = False) -> RowWriter:
        return self.settings(format).writer(main_type, bulk=bulk)

    @property
    def source_options(self) -> dict[str, str]:
        """Options of the data source; the configuration travels as text."""
        if self.broker_conf is None:
            return {}
        self.settings().config  # noqa: B018 (a file that is none is told here)
        return {"brokerConf": Path(self.broker_conf).read_text("utf-8")}


def several_stores(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """``--store`` (repeatable, each may be a pattern), ``--broker-conf``, -q and -v."""

    @click.option(
        "--store",
        "roots",
        metavar="DIR",
        required=True,
        multiple=True,
        envvar="RMQCTL_STORE",
        show_envvar=True,
        type=StorePath(),
        help="A broker's storePathRootDir, or a pattern of several (repeatable).",
    )
    @click.option("--broker-conf", metavar="FILE", type=click.Path(), help="Their broker.conf.")
    @click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
    @click.option("-v", "--verbose", is_flag=True, help="All columns in tables, notes on stderr.")
    @functools.wraps(function)
    def run(
        roots: tuple[Path, ...], broker_conf: str | None, quiet: bool, verbose: bool, **options: Any
    ) -> int | None:
        stores = _expanded(roots)
        return function(SparkSettings(stores, broker_conf, quiet, verbose), **options)

    return run


def _expanded(roots: tuple[Path, ...]) -> list[str]:
    """The stores that names and patterns mean. :raises StoreNotFound, NotAStore: one is none."""
    import glob

    from rmqctl.engine import paths

    stores: list[str] = []
    for root in roots:
        found = sorted(glob.glob(str(root))) if not root.exists() else [str(root)]
        for path in found or [str(root)]:
            paths.check_store(Path(path))
            if (absolute := str(Path(path).absolute())) not in stores:
                stores.append(absolute)
    return stores


@contextmanager
def spark_session(
    options: dict[str, Any], advance: Callable[[int], None] | None = None, total: int = 0
) -> Iterator[SparkSession]:
    """The session that ``--master`` and ``--conf`` ask for; Spark's errors become rmqctl's.

    ``advance`` is told of the tasks that are done, as parts of ``total``.
    """
    from rmqctl.spark.session import check_spark

    check_spark()
    from rmqctl.spark.progress import TOTAL, watched
    from rmqctl.spark.session import failures_told, session

    def step(done: int) -> None:
        if advance is not None:
            advance(done * total // TOTAL)

    with (
        session(options["master"], options["conf"]) as spark,
        failures_told(),
        watched(spark, step),
    ):
        yield spark
