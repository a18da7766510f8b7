"""A Spark session for one command: quiet, local unless told otherwise, and gone afterwards.

What Spark and its Python workers print goes to an unnamed file, whose end is shown when Spark does
not start. Executors elsewhere get this package as a zip; its own requirements (numpy, isal,
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
#: So long Java has to end and to remove what it made before it had a directory of its own.
_END_SECONDS = 60
#: How times are in Parquet, and the form that holds those of any year.
TIMES, MICROSECONDS = "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"
#: Of queries. What is kept of one (``persist``) are groups, few mostly: without this each of 200
#: parts of them, most without a row, is a task of its own.
_QUERIES = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    TIMES: MICROSECONDS,
}
#: Bytes of a socket's path that the system takes, and of the name that PySpark gives one in its
#: directory (``/.`` a UUID ``.sock``).
_SOCKET_PATH, _SOCKET_NAME = 107, 43
_TOP = Path(__file__).parents[3]
_PACKAGES = ("rmqctl", "formats")


class NoMaster(RmqctlError):
    """Nobody listens where the master should; Spark itself would try for minutes."""

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
    """Whether executors are this process's own."""
    return master == "local" or master.startswith("local[")


def runs_here(spark: SparkSession) -> bool:
    """Whether the executors of a session are on this machine; of Spark Connect nobody knows."""
    context = getattr(spark, "_sc", None)
    return context is not None and is_local(context.master)


def _on_loopback(master: str) -> bool:
    return is_local(master) or re.match(r"spark://(127\.|localhost)", master) is not None


def check_master(master: str) -> None:
    """:raises NoMaster: nobody listens at an address of a standalone master or a Connect server."""
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
    """A session that is stopped, and whose Java process ends, when the context is left.

    :raises SparkMissing, SparkFailed, NoMaster: there is none to be had.
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
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # Rows of packed units are megabytes each.
        "spark.sql.execution.arrow.maxBytesPerBatch": "67108864",
    }
    if _on_loopback(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    if is_local(master):
        settings["spark.driver.memory"] = "2g"
    return _QUERIES | settings | dict(conf)


@contextmanager
def _interrupts_kept() -> Iterator[list[int]]:
    """Ctrl-C waits, in the list, while Java starts: an interrupted start leaves a Java process
    behind that nothing ends. A second Ctrl-C does not wait."""
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
    """Keeps the handler of Ctrl-C. PySpark's own one calls Java from within the handler, which
    fails, with a traceback, in the middle of another call; jobs are cancelled on the way out."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def _silence() -> None:
    """Spark logs a query's error as JSON on stderr before it raises it, py4j a call cut short."""
    import logging

    from pyspark.logger import PySparkLogger

    # py4j uses the root logger, which gets a handler to stderr when it has none.
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
                # Else made with the first query, which may be when Java, told to end, has removed
                # its directories already.
                spark._jsparkSession.artifactManager()
                if not is_local(master):
                    # Executors fetch it from its place when they start.
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
        # A second Ctrl-C must not leave the Java process behind.
        try:
            context.stop()
        except end_of_java():
            pass  # It stops everything.
        finally:
            _end(gateway, places)
            log.close()

    return spark, close


def _own_directory(gateway: Any, places: list[str]) -> str:
    """Makes a directory in Java's one for temporary files, for those of this session, and adds it
    to the session's places; which it is. Java removes all of them at its end, also when this
    process was killed. What the queries and tasks that it ended so wrote meanwhile is left to
    :func:`_end`."""
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
    """Has Java and Python talk through sockets in a directory, where its name is short enough. By
    TCP most tasks wait for the system to acknowledge what has come, which it puts off for 40 ms.
    """
    if len(os.fsencode(place)) + _SOCKET_NAME > _SOCKET_PATH:
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
            spark.stop()  # Else the server keeps it.
            raise
    except Exception as error:
        raise SparkFailed(reason=first_line(error)) from error
    return spark, spark.stop


def _end(gateway: Any, places: list[str]) -> None:
    """Ends the Java process and forgets it, so that another session may start; removes its
    directories."""
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
    """What Spark's processes inherit: this Python, the place of this package, no other address,
    and where Java is."""
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
        # PYSPARK_PYTHON stays: tasks are given its name when they are made.
        for name, value in before.items():
            if name.startswith("PYSPARK"):
                continue
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _has_utf8_names() -> bool:
    """Whether Java takes names of files for UTF-8, as Python does in any locale: in another one it
    cannot write those of a topic or a directory that are not ASCII."""
    told = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return re.search("utf-?8", next(filter(None, told), ""), re.IGNORECASE) is not None


def code_zip(directory: str) -> str:
    """This package as a zip in a directory, for executors that have none; its path."""
    path = Path(directory) / "rmqctl-code.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for source in sorted((_TOP / package).rglob("*.py")):
                archive.write(source, source.relative_to(_TOP))
    return str(path)


def _why(error: Exception, log: IO[bytes]) -> str:
    """The last line of the log that says something, else the error's own."""
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").splitlines()
    told = [line for line in lines if re.search(r"Exception|Error", line)]
    return told[-1].strip() if told else first_line(error)
