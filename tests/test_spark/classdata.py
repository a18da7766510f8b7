"""The classes that Spark loads, prepared once: an archive that every Java of the tests maps.

Java reads, checks and lays out some ten thousand classes for a session, four seconds on one core.
With class data sharing (JEP 310, JEP 350) it maps them as an earlier session left them. The archive
is of one Java and one pyspark, and Java itself passes over one that does not fit.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import golden_data

_ROOT = Path(__file__).parents[2]
#: Sessions of tests are short: what the second compiler of Java makes comes too late for them.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: What the session does whose classes are kept: ``archive store directory``.
_SESSION = f"""
import sys
from rmqctl.spark import RocketMQDataSource
from rmqctl.spark.session import session
session._END_SECONDS = 600  # On a busy machine Java, which writes it at its end, takes minutes.
archive, store, directory = sys.argv[1:]
options = "{QUICK} -XX:ArchiveClassesAtExit=" + archive
with session.session("local[1]", {{"spark.driver.extraJavaOptions": options}}) as spark:
    spark.dataSource.register(RocketMQDataSource)
    frame = spark.read.format("rocketmq").load(store).select("topic", "queue_id", "physical_offset")
    frame.repartition(2).write.partitionBy("topic").json(directory + "/json")
    frame.write.parquet(directory + "/parquet")
    assert spark.read.parquet(directory + "/parquet").groupBy("queue_id").count().collect()
    assert spark.sparkContext.range(9).map(str).collect()
"""


@functools.cache
def java_options() -> str:
    """Options for a Java that runs Spark, as ``JDK_JAVA_OPTIONS`` has them."""
    archive = _archive()
    if not archive.exists():  # A Java that makes none.
        return QUICK
    # Of an archive that does not fit Java would tell on stdout.
    return f"{QUICK} -XX:SharedArchiveFile={archive} -Xlog:disable"


def _archive() -> Path:
    """Where the archive is; made unless it was."""
    import pyspark

    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else "java"
    version = subprocess.run([program, "-version"], capture_output=True, check=True).stderr
    source = [version, pyspark.__version__.encode(), pyspark.__file__.encode()]
    digest = hashlib.sha256(b"\n".join([*source, _SESSION.encode()])).hexdigest()[:16]
    directory = _ROOT / "build" / "class-data"
    directory.mkdir(parents=True, exist_ok=True)
    archive = directory / f"spark-{digest}.jsa"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            for old in directory.glob("spark-*.jsa"):
                old.unlink()
            _make(archive)
    return archive


def _make(archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="class-data-") as name:
        store = golden_data.unpacked("ipv6", Path(name))
        made = Path(name, "spark.jsa")
        arguments = [str(made), str(store), name]
        command = [sys.executable, "-c", _SESSION, *arguments]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if made.exists():
            beside = archive.with_suffix(".new")
            beside.write_bytes(made.read_bytes())
            beside.rename(archive)
