"""A Spark session for one command: quiet, local unless told otherwise, and gone afterwards.

What Spark and its Python workers print goes to an unnamed file, whose end is shown when Spark does
not start. Executors elsewhere get this package as a zip; its own requirements (numpy, isal,
construct) must be installed there.
"""

from __future__ import annotations

import os
import re
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
from rmqctl.spark.java import SparkMissing, java_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANSWER_SECONDS = 10
_INSTALL = "Install it with `pip install 'rmqctl[spark]'`."
_TOP = Path(__file__).parents[2]
_PACKAGES = ("rmqctl", "formats")


class SparkFailed(RmqctlError):
    """Spark, or a task on it, ended with an error."""

    template = "Spark failed: {reason}"


class NoMaster(RmqctlError):
    """Nobody listens where the master should; Spark itself would try for minutes."""

    template = "no master of Spark answers at {master}: {reason}. Start it, or correct --master."


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
    try:
        with java_environment() as java, _environment(master, java):
            with _interrupts_kept() as told:
                gateway = launch_gateway(settings, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            try:
                if told:
                    raise KeyboardInterrupt
                with _own_interrupts():
                    context = SparkContext(gateway=gateway, conf=settings)
                if not is_local(master):
                    # Executors fetch it from its place when they start; Java removes it at its end.
                    context.addPyFile(code_zip(context._temp_dir))
            except BaseException:
                _end(gateway)
                raise
    except (KeyboardInterrupt, SparkMissing):
        raise
    except Exception as error:
        raise SparkFailed(reason=_why(error, log)) from error

    def close() -> None:
        # A second Ctrl-C must not leave the Java process behind.
        try:
            context.stop()
        except Exception:
            pass  # Ctrl-C cut a call short; the end of Java stops everything.
        finally:
            _end(gateway)
            log.close()

    return SparkSession(context), close


def _connect(master: str, conf: Mapping[str, str]) -> tuple[SparkSession, Any]:
    """A session of Spark Connect."""
    from pyspark.sql import SparkSession

    try:
        builder = SparkSession.builder.remote(master)
        for name, value in ({"spark.sql.session.timeZone": "UTC"} | dict(conf)).items():
            builder = builder.config(name, value)
        spark = builder.create()
        with tempfile.TemporaryDirectory() as directory:
            spark.addArtifacts(code_zip(directory), pyfile=True)
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
    return told[-1].strip() if told else _first_line(error)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


#: What a task raised, as its Python worker wrote it.
_RAISED = re.compile(
    r"^([A-Za-z_][\w.]*(?:Error|Exception|Cannot\w+|Refused|Contradiction)): (.*)$"
)
_OURS = re.compile(r"^rmqctl\.[\w.]+: (.*)$")


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
        reason = f"its Java process ended. {_MORE_MEMORY}"
        raise SparkFailed(reason=reason) from error
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(reason=explained(str(error))) from error


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error of the connection to Java."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


_MORE_MEMORY = (
    "When memory is short give more: --conf spark.driver.memory=4g or spark.executor.memory=4g."
)
#: What goes wrong with clusters: what Spark says of it, what that means, and what to do.
_KNOWN = (
    (
        r"ModuleNotFoundError: No module named '([^']+)'",
        "the Python of its executors has no module {0}. Install what rmqctl needs on every node, "
        "or set PYSPARK_PYTHON to a Python there that has it",
    ),
    (
        r'Cannot run program "([^"]+)"',
        "a node has no Python {0}. Set PYSPARK_PYTHON to the place of Python on the nodes",
    ),
    (
        r"PYTHON_VERSION_MISMATCH\][^\n]*?\(?(\d+\.\d+)\)?[^\n]*?(\d+\.\d+)",
        "its executors run Python {0}, this process {1}. Set PYSPARK_PYTHON to a Python of the "
        "same minor version on the nodes",
    ),
    (
        r"(No space left on device|Disk quota exceeded)",
        "{0}. Free space where it writes, and for its own files in the directory of "
        "--conf spark.local.dir",
    ),
    (
        r"Python worker exited unexpectedly",
        "a Python process of its executors was ended from outside, as the system does when memory "
        "is short. Run fewer tasks at a time (--conf spark.executor.cores=1, --master 'local[1]')",
    ),
    (r"(java\.lang\.OutOfMemoryError: [^\n]*)", "{0}. " + _MORE_MEMORY.rstrip(".")),
)


def explained(text: str) -> str:
    """What a long text of nested tracebacks is about, and the next step where it is known."""
    if not any(_OURS.match(line) for line in _lines(text)):
        for pattern, meaning in _KNOWN:
            if match := re.search(pattern, text):
                return meaning.format(*match.groups()) + "."
    return innermost(text)


def _lines(text: str) -> list[str]:
    return [
        line.strip().removeprefix(": ").removeprefix("Caused by: ") for line in text.splitlines()
    ]


def innermost(text: str) -> str:
    """The error that a long text of nested tracebacks is about."""
    lines = _lines(text)
    ours = [match[1] for line in lines if (match := _OURS.match(line))]
    if ours:
        return ours[-1]
    raised = [match[0] for line in lines if (match := _RAISED.match(line))]
    python = [line for line in raised if not line.startswith(("org.", "java.", "py4j."))]
    return (python or raised or text.strip().splitlines() or ["no reason given"])[
        -1 if python else 0
    ]
