"""Queries over ``load()`` read what they use: a rule of Spark's own optimiser sees to it.

Spark tells a Python source neither which columns a query uses nor, in a way that holds
(:mod:`rmqctl.spark.source.pushdown`), which rows. Its optimiser knows both, and takes rules of
others; one is ``PrunedReads.java``. Spark has a compiler for the code that it generates, and that
makes a class of it, in the driver. Where that is out of reach, as over Spark Connect, queries
read all columns of the table, and answer the same.
"""

from __future__ import annotations

import logging
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RULE = "PrunedReads"
log = logging.getLogger(__name__)


def prune_reads(spark: SparkSession) -> None:
    """Makes the rule one of a session, if it is not yet."""
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        return  # Of Spark Connect: what optimises is on the server.
    rules = session.experimental().extraOptimizations()
    if any(rules.apply(n).ruleName().endswith(_RULE) for n in range(rules.size())):
        return
    from py4j.protocol import Py4JError

    try:
        _compiled(spark, session.getClass().getClassLoader()).install(session)
    except Py4JError as error:
        log.warning("queries over load() read all columns of the table: %s", error)


def _compiled(spark: SparkSession, above: Any) -> Any:
    """A new rule, whose class finds others by the loader ``above``."""
    gateway: Any = spark.sparkContext._gateway
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(above)
    compiler.cook(resources.files(__package__).joinpath(f"{_RULE}.java").read_text("utf-8"))
    made = compiler.getClassLoader().loadClass(f"rmqctl.{_RULE}")
    return made.getDeclaredConstructor(gateway.new_array(gateway.jvm.Class, 0)).newInstance(
        gateway.new_array(gateway.jvm.Object, 0)
    )
