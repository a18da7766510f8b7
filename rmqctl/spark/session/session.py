"""Starts a Spark session for one command, and ends it afterwards. It is local by default.

The output of Spark and its Python workers goes to an unnamed file, whose end is shown if Spark does
not start. Executors on other machines get this package as a zip. Its requirements (numpy, isal,
construct) must be installed there.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rmqctl.errors import RmqctlError, UsageError
from rmqctl.spark.session.failures import SparkFailed, end_of_java, first_line
from rmqctl.spark.session.java import SparkMissing, java_environment
from rmqctl.spark.session.sparkhome import links_to_spark, remove_links
from rmqctl.spark.session.staging import remove_abandoned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANSWER_SECONDS = 10
#: How long Java may take to end, and to remove files that it made outside of its own directory.
_END_SECONDS = 60
#: The setting for the type of times in Parquet, and the type that can hold times of any year.
TIMES, MICROSECONDS = "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"
#: Settings for queries. Persisted rows are groups, of which there are mostly few: without this each
#: of 200 partitions, most of them empty, would be a task.
_QUERIES = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    TIMES: MICROSECONDS,
}
#: The most characters that Spark takes for the directory of its sockets
#: (``Python#PYTHON_UNIX_DOMAIN_SOCKET_DIR``): the path of a socket has 107 bytes.
_SOCKET_DIRECTORY = 61
_TOP = Path(__file__).parents[3]
_PACKAGES = ("rmqctl", "formats")
#: The masters that Spark takes (``SparkContext#createTaskScheduler``), and those of Connect.
_MASTERS = re.compile(
    r"local(\[([1-9]\d*|\*)(\s*,\s*\d+)?\])?|local-cluster\[.+\]|yarn|(spark|sc|k8s)://.+"
)


class NoMaster(RmqctlError):
    """Nothing listens at the address of the master. Spark itself would try for minutes."""

    template = "no master of Spark answers at {master}: {reason}. Start it, or correct its address."


def check_spark() -> None:
    """:raises SparkMissing: pyspark, or what it needs, is not installed or too old."""
    try:
        import pyarrow  # noqa: F401
        import pyspark
    except ImportError as error:
        raise _missing(f"{error.name} is not installed") from error
    found = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if found < (4, 2):
        raise _missing(f"pyspark {pyspark.__version__} is older than 4.2")
    try:
        import pandas  # noqa: F401
    except ImportError as error:
        raise _missing("pandas is not installed") from error


def _missing(reason: str) -> SparkMissing:
    from rmqctl.installed import install_command

    return SparkMissing(reason=reason, advice=f"Install it with `{install_command('spark')}`.")


def is_local(master: str) -> bool:
    """Whether the executors run in this machine's Java process."""
    return master == "local" or master.startswith("local[")


def runs_here(spark: SparkSession) -> bool:
    """Whether the executors of a session are on this machine. With Spark Connect that is not
    known."""
    context = getattr(spark, "_sc", None)
    return context is not None and is_local(context.master)


def _on_loopback(master: str) -> bool:
    return is_local(master) or re.match(r"spark://(127\.|localhost)", master) is not None


def check_master(master: str) -> None:
    """Checks the form of a master, and the address of a standalone master or a Connect server.

    :raises UsageError: there is no such master.
    :raises NoMaster: nothing listens there.
    """
    if _MASTERS.fullmatch(master) is None:
        forms = "local[*], local[N] with N from 1 on, spark://HOST:7077, sc://HOST, yarn, k8s://URL"
        raise UsageError(reason=f"--master {master}: Spark has no such master. It takes {forms}.")
    match = re.match(r"(spark|sc)://([^/;]+)", master)
    if match is None:
        return
    problem: OSError | None = None
    for address in match[2].split(","):
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "")
        default = 7077 if match[1] == "spark" else 15002
        try:
            number = int(port) if port else default
            socket.create_connection((host.strip("[]"), number), _ANSWER_SECONDS).close()
            return
        except ValueError:
            raise UsageError(reason=f"--master {master}: {port!r} is no port.") from None
        except OSError as error:
            problem = error
    reason = problem.strerror or str(problem) if problem else "it names no address"
    raise NoMaster(master=master, reason=reason.lower())


@contextmanager
def session(master: str, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session. When the context is left, it is stopped, and its Java process ends.

    :raises SparkMissing, SparkFailed, NoMaster: it cannot be started.
    """
    check_spark()
    check_master(master)
    _silence()
    spark, close = (
        _connect(master, conf or {}) if master.startswith("sc://") else _start(master, conf or {})
    )
    try:
        yield spark
    finally:
        try:
            close()
        finally:
            remove_abandoned()


def _settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    settings = {
        "spark.app.name": "rmqctl",
        "spark.master": master,
        # A thread of Spark that takes a task's result and runs out of memory ends, and the query
        # waits for the result for ever: better the process ends.
        "spark.driver.defaultJavaOptions": "-XX:+ExitOnOutOfMemoryError",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # Each row of packed units has megabytes.
        "spark.sql.execution.arrow.maxBytesPerBatch": "67108864",
    }
    if _on_loopback(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    if is_local(master):
        settings["spark.driver.memory"] = "2g"
    return _QUERIES | settings | dict(conf)


@contextmanager
def _interrupts_kept() -> Iterator[list[int]]:
    """Defers Ctrl-C while Java starts, and notes it in the list: an interrupted start would leave a
    Java process behind that nothing ends. A second Ctrl-C is not deferred."""
    told: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield told
        return

    def keep(number: int, _: object) -> None:
        told.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, keep)
    try:
        yield told
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keeps the handler of Ctrl-C. PySpark's handler calls Java, which fails with a traceback if it
    interrupts another call. Jobs are cancelled when the contexts are left."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def _silence() -> None:
    """Silences logging to stderr: Spark logs the error of a query as JSON before it raises it,
    py4j logs interrupted calls, and PySpark's server of sums prints that Java has ended."""
    import logging

    from pyspark import accumulators
    from pyspark.logger import PySparkLogger

    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = lambda *_: None  # type: ignore[method-assign]

    # py4j uses the root logger, which writes to stderr if it has no handler.
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _start(master: str, conf: Mapping[str, str]) -> tuple[SparkSession, Any]:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    settings = SparkConf(loadDefaults=False)
    settings.setAll(list(_settings(master, conf).items()))
    log = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the session)
    links = links_to_spark() if is_local(master) else None
    places, home = ([links], {"SPARK_HOME": links}) if links else ([], {})
    try:
        with java_environment() as java, _environment(master, java | home):
            with _interrupts_kept() as told:
                gateway = launch_gateway(settings, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
                place = _own_directory(gateway, places)
            if is_local(master):
                settings.setAll([*(_sockets(place) | dict(conf)).items()])
            try:
                if told:
                    raise KeyboardInterrupt
                with _own_interrupts():
                    context = SparkContext(gateway=gateway, conf=settings)
                    spark = SparkSession(context)
                # Otherwise the first query makes it, which may be after Java was told to end and
                # has removed its directories.
                spark._jsparkSession.artifactManager()
                if not is_local(master):
                    # Executors fetch the zip when they start.
                    context.addPyFile(code_zip(context._temp_dir))
            except BaseException:
                _end(gateway, places)
                raise
    except BaseException as error:
        _remove(places)
        if isinstance(error, SparkMissing) or not isinstance(error, Exception):
            raise
        raise SparkFailed(reason=_why(error, log)) from error

    def close() -> None:
        # Ignore Ctrl-C here: it must not leave the Java process behind.
        try:
            context.stop()
        except end_of_java():
            pass  # Ending the Java process stops everything.
        finally:
            _end(gateway, places)
            log.close()

    return spark, close


def _own_directory(gateway: Any, places: list[str]) -> str:
    """Makes a directory for this session in Java's directory for temporary files, adds it to
    ``places``, and returns it. Java removes it when it ends, also if this process was killed. What
    interrupted queries and tasks still write into it meanwhile is left to :func:`_end`."""
    try:
        system, name = gateway.jvm.java.lang.System, "java.io.tmpdir"
        place = tempfile.mkdtemp(prefix="rmqctl-spark-", dir=system.getProperty(name))
        places.append(place)
        system.setProperty(name, place)
        manager = gateway.jvm.org.apache.spark.util.ShutdownHookManager
        for one in places:
            manager.registerShutdownDeleteDir(gateway.jvm.java.io.File(one))
    except BaseException:
        _end(gateway, places)
        raise
    return place


def _sockets(place: str) -> dict[str, str]:
    """The settings with which Java and Python use Unix sockets in a directory, if its name is short
    enough. With TCP most tasks wait for a delayed acknowledgement, for 40 ms.
    """
    if len(os.fsencode(place)) > _SOCKET_DIRECTORY:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": place,
    }


def _connect(master: str, conf: Mapping[str, str]) -> tuple[SparkSession, Any]:
    """A session of Spark Connect."""
    from pyspark.sql import SparkSession

    try:
        builder = SparkSession.builder.remote(master)
        for name, value in (_QUERIES | dict(conf)).items():
            builder = builder.config(name, value)
        spark = builder.create()
        try:
            with tempfile.TemporaryDirectory() as directory:
                spark.addArtifacts(code_zip(directory), pyfile=True)
        except BaseException:
            spark.stop()  # Otherwise the server keeps the session.
            raise
    except Exception as error:
        raise SparkFailed(reason=first_line(error)) from error
    return spark, spark.stop


def _end(gateway: Any, places: list[str]) -> None:
    """Ends the Java process, makes PySpark forget it, so that another session can start, and
    removes its directories."""
    from pyspark import SparkContext

    SparkContext._gateway = SparkContext._jvm = None
    process = gateway.proc
    process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        _remove(places)
    gateway.shutdown()


def _remove(places: list[str]) -> None:
    for place in places:
        remove_links(place)
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _environment(master: str, java: Mapping[str, str]) -> Iterator[None]:
    """Sets the environment for Spark's processes: this Python, the directory of this package, no
    other master, and the place of Java."""
    wanted = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, **java}
    if is_local(master):
        inherited = os.environ.get("PYTHONPATH")
        wanted["PYTHONPATH"] = os.pathsep.join([str(_TOP), *([inherited] if inherited else [])])
    if _on_loopback(master):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    if not is_local(master):
        wanted["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if not _has_utf8_names():
        wanted["LC_ALL"] = "C.UTF-8"
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        # PYSPARK_PYTHON stays set, because tasks take its value when they are made.
        for name, value in before.items():
            if name.startswith("PYSPARK"):
                continue
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _has_utf8_names() -> bool:
    """Whether Java takes file names as UTF-8, as Python does in any locale. In other locales Java
    cannot write names of topics or directories that are not ASCII."""
    told = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return re.search("utf-?8", next(filter(None, told), ""), re.IGNORECASE) is not None


def code_zip(directory: str) -> str:
    """Writes this package as a zip into a directory, for executors that do not have it. Returns the
    path of the zip."""
    path = Path(directory) / "rmqctl-code.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for source in sorted((_TOP / package).rglob("*.py")):
                archive.write(source, source.relative_to(_TOP))
    return str(path)


def _why(error: Exception, log: IO[bytes]) -> str:
    """The last useful line of the log, or else of the error."""
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").splitlines()
    told = [line for line in lines if re.search(r"Exception|Error", line)]
    return told[-1].strip() if told else first_line(error)
