"""The session: what is missing is said in one line, and nothing is loaded that is not asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.spark import session
from tests.test_spark.conftest import ROOT

pytestmark = pytest.mark.xdist_group("spark")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rmqctl", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        *([name, "--help"] for name in ("rebuild", "verify", "export", "import", "stats", "sql")),
    ],
)
def test_help_loads_no_spark(arguments: list[str]) -> None:
    code = (
        "import json, sys\nfrom rmqctl.cli.main import run\n"
        f"code = run({arguments!r})\n"
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'numpy'} & set(sys.modules)\n"
        "print(json.dumps([code, sorted(heavy)]), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stderr) == [0, []]


def test_without_spark_it_says_how_to_install(tmp_path: Path, golden: object) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('no', name='pyspark')")
    store = golden("basic")  # type: ignore[operator]
    done = run("sql", "--store", str(store), "SELECT 1", PYTHONPATH=str(tmp_path))
    assert done.returncode == 5
    assert "pyspark is not installed" in done.stderr
    assert "pip install 'rmqctl[spark]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def java(directory: Path, script: str) -> str:
    """A JAVA_HOME with such a java."""
    (directory / "bin").mkdir(parents=True)
    program = directory / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(directory)


def test_java_is_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {
        "is Java 11": "echo 'openjdk version \"11.0.2\" 2019' >&2",
        "is Java 8": "echo 'java version \"1.8.0_411\"' >&2",
        "does not run": "exit 3",
    }
    for number, (said, script) in enumerate(cases.items()):
        home = java(tmp_path / str(number), script)
        monkeypatch.setenv("JAVA_HOME", home)
        with pytest.raises(session.SparkMissing, match=said) as caught:
            session.check_java()
        assert f"JAVA_HOME={home}" in str(caught.value)
        assert "Java 17" in str(caught.value)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(session.SparkMissing, match="no Java was found"):
        session.check_java()


def test_a_bad_setting_is_a_usage_error(golden: object) -> None:
    store = golden("basic")  # type: ignore[operator]
    done = run("stats", "--store", str(store), "--conf", "nonsense")
    assert done.returncode == 2
    assert "'nonsense' is not KEY=VALUE" in done.stderr


def test_the_innermost_error_is_told() -> None:
    text = (
        "Job aborted due to stage failure: Task 0 failed 4 times: org.apache.spark.api.python."
        "PythonException: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n'
        "rmqctl.errors.CannotRead: cannot read /s: no such file. Check its owner.\n\n"
        "\tat org.apache.spark.X\n"
    )
    assert session.innermost(text) == "cannot read /s: no such file. Check its owner."
    assert session.innermost("ValueError: x\n\tat y") == "ValueError: x"
