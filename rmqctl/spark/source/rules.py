"""Adds rules to Spark's optimiser, so that queries over ``load()`` read only the columns and rows
that they use, and process them as columns.

Spark does not tell a Python source which columns a query uses, nor, reliably, which rows
(:mod:`rmqctl.spark.source.pushdown`). But its optimiser knows both (``PrunedReads.java``). Spark
also converts each message to a row at once, though the source returns columns, and generated code
can process columns (``ArrowReads.java``).

The optimiser accepts additional rules. They are compiled in the driver, with the compiler that
Spark has for generated code. Classes that tasks need are sent to the executors as a jar. Where that
is not possible, as over Spark Connect, queries give the same results, but take longer.
"""

from __future__ import annotations

import logging
import zipfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Each rule, and what happens without it.
_RULES = {
    "PrunedReads": "queries over load() read all columns of the table",
    "ArrowReads": "Spark makes rows of what is read",
}
#: The rules whose classes tasks need as well.
_OF_TASKS = "ArrowReads"
_JAR = "rmqctl-arrow-reads.jar"
#: A session with its own files does not use the files of the context.
_OWN_FILES = "spark.sql.artifact.isolation.enabled"
#: The compiled classes of each JVM.
_made: WeakKeyDictionary[Any, dict[str, tuple[Any, dict[str, bytes]]]] = WeakKeyDictionary()
log = logging.getLogger(__name__)


def install_rules(spark: SparkSession) -> None:
    """Adds the rules to a session, if it does not have them."""
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        return  # With Spark Connect the optimiser is on the server.
    rules = session.experimental().extraOptimizations()
    there = {rules.apply(n).ruleName().rpartition(".")[-1] for n in range(rules.size())}
    from py4j.protocol import Py4JError

    for name, otherwise in _RULES.items():
        if name in there or (name == _OF_TASKS and spark.conf.get(_OWN_FILES, "") == "true"):
            continue
        try:
            rule, classes = _compiled(spark, session.getClass().getClassLoader(), name)
            if name == _OF_TASKS:
                _send(spark, classes)
            known = session.experimental().extraOptimizations()
            getattr(session.experimental(), "extraOptimizations_$eq")(known.appended(rule))
        except (Py4JError, OSError) as error:
            log.warning("%s: %s", otherwise, error)


def _compiled(spark: SparkSession, above: Any, name: str) -> tuple[Any, dict[str, bytes]]:
    """Compiles a rule. Returns the rule and its classes; ``above`` is the parent class loader. All
    sessions of a JVM use the same classes, because Py4J confuses the methods of two classes with
    one name."""
    gateway: Any = spark.sparkContext._gateway
    made = _made.setdefault(gateway, {})
    if name not in made:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(above)
        compiler.cook(resources.files(__package__).joinpath(f"{name}.java").read_text("utf-8"))
        rule = compiler.getClassLoader().loadClass(f"rmqctl.{name}")
        made[name] = (
            rule.getDeclaredConstructor(gateway.new_array(gateway.jvm.Class, 0)).newInstance(
                gateway.new_array(gateway.jvm.Object, 0)
            ),
            dict(compiler.getBytecodes()),
        )
    return made[name]


def _send(spark: SparkSession, classes: dict[str, bytes]) -> None:
    """Makes these classes available to executors, on a cluster and on this machine."""
    from pyspark import SparkFiles

    context: Any = spark.sparkContext._jsc.sc()
    if _JAR in str(context.listJars()):
        return
    # Spark removes this directory when the driver ends.
    directory = Path(SparkFiles.getRootDirectory()) / "rmqctl"
    directory.mkdir(exist_ok=True)
    with zipfile.ZipFile(directory / _JAR, "w") as file:
        for name, code in classes.items():
            file.writestr(f"{name.replace('.', '/')}.class", code)
    context.addJar(str(directory / _JAR))
