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
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rmqctl.errors import RmqctlError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA = 17
_INSTALL = "Install it with `pip install 'rmqctl[spark]'`."
_TOP = Path(__file__).parents[2]
_PACKAGES = ("rmqctl", "formats")


class SparkMissing(RmqctlError):
    template = "this command runs on Apache Spark, and {reason}. {advice}"


class SparkFailed(RmqctlError):
    """Spark, or a task on it, ended with an error."""

    template = "Spark failed: {reason}"


def check_spark() -> None:
    """:raises SparkMissing: pyspark, or what it needs, is not installed or too old."""
    try:
        import pyarrow  # noqa: F401
        import pyspark
    except ImportError as error:
        raise SparkMissing(reason=f"{error.name} is not installed", advice=_INSTALL) from error
    found = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if found < (4, 2):
        raise SparkMissing(
            reason=f"pyspark {pyspark.__version__} is older than 4.2", advice=_INSTALL
        )
    try:
        import pandas  # noqa: F401
    except ImportError as error:
        raise SparkMissing(reason="pandas is not installed", advice=_INSTALL) from error


def check_java() -> None:
    """:raises SparkMissing: there is no Java, it does not run, or it is too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    where = f"JAVA_HOME={home}" if home else "no JAVA_HOME is set"
    advice = f"Install Java {LEAST_JAVA} or later, and set JAVA_HOME to its directory."
    if java is None:
        raise SparkMissing(reason=f"no Java was found ({where}, no `java` in PATH)", advice=advice)
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        reason = f"{java} does not run ({where}): {_first_line(error)}"
        raise SparkMissing(reason=reason, advice=advice) from error
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if version is None or int(version[1]) < LEAST_JAVA:
        found = version[1] if version else "of unknown version"
        raise SparkMissing(
            reason=f"{java} is Java {found} ({where}), older than {LEAST_JAVA}", advice=advice
        )


def is_local(master: str) -> bool:
    """Whether executors are this process's own."""
    return master == "local" or master.startswith("local[")


def _on_loopback(master: str) -> bool:
    return is_local(master) or re.match(r"spark://(127\.|localhost)", master) is not None


@contextmanager
def session(master: str, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session that is stopped, and whose Java process ends, when the context is left.

    :raises SparkMissing, SparkFailed: there is none to be had.
    """
    check_spark()
    _silence()
    spark, close = (
        _connect(master, conf or {}) if master.startswith("sc://") else _start(master, conf or {})
    )
    try:
        yield spark
    finally:
        close()


def _settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    settings = {
        "spark.app.name": "rmqctl",
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # Rows of packed units are megabytes each.
        "spark.sql.execution.arrow.maxBytesPerBatch": "67108864",
    }
    if _on_loopback(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    if is_local(master):
        settings["spark.driver.memory"] = "2g"
    return settings | dict(conf)


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
    check_java()
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    settings = SparkConf(loadDefaults=False)
    settings.setAll(list(_settings(master, conf).items()))
    log = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the session)
    try:
        with _environment(master):
            gateway = launch_gateway(settings, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            try:
                with _own_interrupts():
                    context = SparkContext(gateway=gateway, conf=settings)
            except BaseException:
                _end(gateway)
                raise
    except KeyboardInterrupt:
        raise
    except Exception as error:
        raise SparkFailed(reason=_why(error, log)) from error
    kept = ExitStack()
    if not is_local(master):
        # Executors fetch it from its place when they start, so it stays as long as the session.
        context.addPyFile(kept.enter_context(_code()))

    def close() -> None:
        # A second Ctrl-C must not leave the Java process behind.
        try:
            context.stop()
        except Exception:
            pass  # Ctrl-C cut a call short; the end of Java stops everything.
        finally:
            _end(gateway)
            log.close()
            kept.close()

    return SparkSession(context), close


def _connect(master: str, conf: Mapping[str, str]) -> tuple[SparkSession, Any]:
    """A session of Spark Connect."""
    from pyspark.sql import SparkSession

    try:
        builder = SparkSession.builder.remote(master)
        for name, value in ({"spark.sql.session.timeZone": "UTC"} | dict(conf)).items():
            builder = builder.config(name, value)
        spark = builder.create()
        with _code() as archive:
            spark.addArtifacts(archive, pyfile=True)
    except Exception as error:
        raise SparkFailed(reason=_first_line(error)) from error
    return spark, spark.stop


def _end(gateway: Any) -> None:
    """Ends the Java process and forgets it, so that another session may start."""
    from pyspark import SparkContext

    SparkContext._gateway = SparkContext._jvm = None
    process = gateway.proc
    process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    gateway.shutdown()


@contextmanager
def _environment(master: str) -> Iterator[None]:
    """What Spark's processes inherit: this Python, the place of this package, no other address."""
    wanted = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local(master):
        inherited = os.environ.get("PYTHONPATH")
        wanted["PYTHONPATH"] = os.pathsep.join([str(_TOP), *([inherited] if inherited else [])])
    if _on_loopback(master):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    if not is_local(master):
        wanted["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
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


@contextmanager
def _code() -> Iterator[str]:
    """This package as a zip."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rmqctl-code.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for package in _PACKAGES:
                for source in sorted((_TOP / package).rglob("*.py")):
                    archive.write(source, source.relative_to(_TOP))
        yield str(path)


def _why(error: Exception, log: IO[bytes]) -> str:
    """The last line of the log that says something, else the error's own."""
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").splitlines()
    told = [line for line in lines if re.search(r"Exception|Error", line)]
    return told[-1].strip() if told else _first_line(error)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


#: What a task raised, as its Python worker wrote it.
_RAISED = re.compile(
    r"^([A-Za-z_][\w.]*(?:Error|Exception|Cannot\w+|Refused|Contradiction)): (.*)$"
)
_OURS = re.compile(r"^rmqctl\.errors\.\w+: (.*)$")


@contextmanager
def failures_told() -> Iterator[None]:
    """Makes one line of what Spark raises: the innermost error that a task told of.

    :raises SparkFailed: instead of Spark's own errors. :raises UsageError: a query that Spark does
        not understand.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        reason = re.sub(r"\s*SQLSTATE: \w+.*|^\[[A-Z_.]+\]\s*", "", _first_line(error))
        raise UsageError(reason=reason) from error
    except (ConnectionRefusedError, Py4JNetworkError) as error:
        if _was_interrupted(error):
            raise KeyboardInterrupt from error
        raise SparkFailed(reason="its Java process ended") from error
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(reason=innermost(str(error))) from error


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error of the connection to Java."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def innermost(text: str) -> str:
    """The error that a long text of nested tracebacks is about."""
    lines = [
        line.strip().removeprefix(": ").removeprefix("Caused by: ") for line in text.splitlines()
    ]
    ours = [match[1] for line in lines if (match := _OURS.match(line))]
    if ours:
        return ours[-1]
    raised = [match[0] for line in lines if (match := _RAISED.match(line))]
    python = [line for line in raised if not line.startswith(("org.", "java.", "py4j."))]
    return (python or raised or text.strip().splitlines() or ["no reason given"])[
        -1 if python else 0
    ]
