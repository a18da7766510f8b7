"""Rules of Spark's own optimiser: queries over ``load()`` read what they use, and as columns.

Spark tells a Python source neither which columns a query uses nor, in a way that holds
(:mod:`rmqctl.spark.source.pushdown`), which rows; its optimiser knows both (``PrunedReads.java``).
And it makes a row of each message before anybody asks what for, though columns are what a source
hands on and what its generated code can take (``ArrowReads.java``).

The optimiser takes rules of others. Spark has a compiler for the code that it generates, and that
makes classes of these, in the driver; what tasks need of them is sent to executors as a jar. Where
that is out of reach, as over Spark Connect, queries answer the same, and take longer.
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

#: Each rule, and what is so without it.
_RULES = {
    "PrunedReads": "queries over load() read all columns of the table",
    "ArrowReads": "Spark makes rows of what is read",
}
#: Whose class is needed by tasks, too.
_OF_TASKS = "ArrowReads"
_JAR = "rmqctl-arrow-reads.jar"
#: A session with files of its own does not look among those of the context.
_OWN_FILES = "spark.sql.artifact.isolation.enabled"
#: What was compiled for each JVM.
_made: WeakKeyDictionary[Any, dict[str, tuple[Any, dict[str, bytes]]]] = WeakKeyDictionary()
log = logging.getLogger(__name__)


def install_rules(spark: SparkSession) -> None:
    """Makes the rules those of a session, if they are not yet."""
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        return  # Of Spark Connect: what optimises is on the server.
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
    """A rule, whose class finds others by the loader ``above``, and its classes. All sessions of a
    JVM have the same: Py4J takes methods of two classes of one name for each other's."""
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
    """Has executors find these classes, those of a cluster and those of this machine."""
    from pyspark import SparkFiles

    context: Any = spark.sparkContext._jsc.sc()
    if _JAR in str(context.listJars()):
        return
    # Spark removes the directory when the driver ends.
    directory = Path(SparkFiles.getRootDirectory()) / "rmqctl"
    directory.mkdir(exist_ok=True)
    with zipfile.ZipFile(directory / _JAR, "w") as file:
        for name, code in classes.items():
            file.writestr(f"{name.replace('.', '/')}.class", code)
    context.addJar(str(directory / _JAR))
