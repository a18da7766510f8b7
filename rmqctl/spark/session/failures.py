"""Shortens what Spark raises to one line with the next step: the innermost error of a task."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from rmqctl.errors import RmqctlError, UsageError

#: Matches the exception of a task, as its Python worker prints it.
_RAISED = re.compile(
    r"^([A-Za-z_][\w.]*(?:Error|Exception|Cannot\w+|Refused|Contradiction)): (.*)$"
)
_OURS = re.compile(r"^rmqctl\.[\w.]+: (.*)$")
_MORE_MEMORY = (
    "When memory is short give more: --conf spark.driver.memory=4g or spark.executor.memory=4g."
)
#: Usual problems with clusters: what Spark says, what it means, and what to do.
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
    (
        r"(?s)Encountered error while reading file (\S+?)\.\s.*MALFORMED_RECORD_IN_PARSING",
        "{0} holds a record that is not of its format. Correct it, or name the format of the files "
        "with --input",
    ),
    (r"\[USER_RAISED_EXCEPTION\] ([^\n]*?)\.?(?: SQLSTATE|\n|$)", "{0}"),
    (
        r"Mkdirs failed to create \S*/(topic=[^/\s]{40})[^/\s]{210,}/",
        "no directory can have the long name of a topic of the log, {0}…. Export the others with "
        "--topic, or use `rmqctl sql --output`, which makes no directories of topics",
    ),
    (r"(java\.lang\.OutOfMemoryError: [^\n]*)", "{0}. " + _MORE_MEMORY.rstrip(".")),
)


class SparkFailed(RmqctlError):
    """Spark, or a task on it, ended with an error."""

    template = "Spark failed: {reason}"


def end_of_java() -> tuple[type[Exception], ...]:
    """The exceptions of calls to Spark when its Java process has ended or is ending, or when Ctrl-C
    has interrupted a call. py4j's sockets also raise errors of the system."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException, OSError


@contextmanager
def failures_told() -> Iterator[None]:
    """Replaces what Spark raises by an error with one line: the innermost error of a task.

    :raises SparkFailed: Spark has raised an error. :raises UsageError: Spark cannot parse or
        analyse a query.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        reason = re.sub(r"\s*SQLSTATE: \w+.*|^\[[A-Z_.]+\]\s*", "", first_line(error))
        raise UsageError(reason=reason) from error
    except (ConnectionRefusedError, ConnectionResetError, EOFError, Py4JNetworkError) as error:
        # The end of a socket on which rows come is an EOFError.
        if _was_interrupted(error):
            raise KeyboardInterrupt from error
        reason = f"its Java process ended. {_MORE_MEMORY}"
        raise SparkFailed(reason=reason) from error
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(reason=explained(str(error))) from error


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C has caused an error of the connection to Java."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def explained(text: str) -> str:
    """The cause in a long text of nested tracebacks, and the next step if that is known."""
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
    """The innermost error in a long text of nested tracebacks."""
    lines = _lines(text)
    ours = [match[1] for line in lines if (match := _OURS.match(line))]
    if ours:
        return ours[-1]
    raised = [match[0] for line in lines if (match := _RAISED.match(line))]
    python = [line for line in raised if not line.startswith(("org.", "java.", "py4j."))]
    return (python or raised or text.strip().splitlines() or ["no reason given"])[
        -1 if python else 0
    ]


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
