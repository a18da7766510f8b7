"""One Spark session and one small cluster for all tests of a process, and rows to compare with the
engine's."""

from __future__ import annotations

import json
import os
import pickle
import re
import select
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.operations.look.walk import Selection, walk_commit_log, walk_index
from rmqctl.operations.look.walkqueues import walk_queues
from rmqctl.operations.verify import Finding, Summary, verify
from rmqctl.rows import Row
from rmqctl.spark.session.sparkhome import links_to_spark, remove_links
from tests.test_spark.classdata import java_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]
Rows = list[dict[str, Any]]
Result = TypeVar("Result")


def why_not() -> str | None:
    """Why Spark cannot run here; None when it can."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed: pip install '.[spark]'"
    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin/java").exists()) and shutil.which("java") is None:
        return "there is no Java: Spark needs version 17 or later"
    return None


@pytest.fixture(scope="session")
def spark_home() -> Iterator[str]:
    """Spark as sessions of rmqctl see theirs: whose Python processes compile no PySpark."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SPARK_HOME", raising=False)
        links = links_to_spark()
    assert links is not None
    yield links
    remove_links(links)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, spark_home: str) -> Iterator[SparkSession]:
    """A quiet session on two cores."""
    from pyspark.sql import SparkSession

    from rmqctl.spark import RocketMQDataSource

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.extraJavaOptions": java_options(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.python.daemon.module": "tests.test_spark.daemon",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    builder = SparkSession.builder.master("local[2]").appName("rmqctl tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    known = os.environ.get("PYTHONPATH")
    # Java takes these over when it starts; what other tests start must not find them.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_HOME", spark_home)
        patch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{known}" if known else str(ROOT))
        session = builder.getOrCreate()
    session.dataSource.register(RocketMQDataSource)
    yield session
    session.stop()


def reads(frame: DataFrame) -> list[tuple[list[str], list[Any]]]:
    """Columns and conditions of each read of a query's plan."""
    leaves = frame._jdf.queryExecution().optimizedPlan().collectLeaves()
    found = []
    for leaf in (leaves.apply(n) for n in range(leaves.size())):
        if leaf.getClass().getSimpleName() != "DataSourceV2ScanRelation":
            continue
        where = leaf.relation().options().get("where")
        columns = [leaf.output().apply(n).name() for n in range(leaf.output().size())]
        found.append((columns, json.loads(where) if where else []))
    return found


def wait_until(
    what: Callable[[], Any], process: subprocess.Popen[Any] | None = None, seconds: float = 200
) -> Any:
    """The first answer that says something; the process must live until then."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it has not come to pass"
        # The processor is that of what is waited for, too.
        time.sleep(0.05)
    return found


def parents() -> dict[int, int]:
    """Of each process that runs the one that has started it."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (directory / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # It has ended.
        if state != "Z":
            found[int(directory.name)] = int(parent)
    return found


#: Answers lines of JSON in one session: a command's words, or ``-c``, a program and its arguments.
_SESSION = """
import contextlib, io, json, sys, traceback
sys.path.insert(0, sys.argv[1])
from rmqctl.cli.main import run
from rmqctl.spark.session import session
master, conf = json.loads(sys.stdin.readline())
with session.session(master, conf) as spark:
    session.session = lambda *_: contextlib.nullcontext(spark)
    for line in sys.stdin:
        words, python = json.loads(line)
        if python:
            usual, spark.sparkContext.pythonExec = spark.sparkContext.pythonExec, python
        out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in "12")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            if words[0] == "-c":
                try:
                    code = exec(words[1], {"spark": spark, "arguments": words[2:]}) or 0
                except Exception:
                    code = traceback.print_exc() or 70
            else:
                code = run([*words, "--master", master])
        if python:
            spark.sparkContext.pythonExec = usual
        texts = [one.buffer.getvalue().decode() for one in (out, err)]
        print(json.dumps([code, *texts]), flush=True)
"""
Answer = tuple[int, str, str]


class Session:
    """A process with one session of Spark that runs commands one after the other: a session takes
    seconds, a job does not."""

    def __init__(self, master: str, environment: dict[str, str], **conf: str) -> None:
        self.process = subprocess.Popen(
            # Spark's own processes have its directory, where they must not find the code.
            [sys.executable, "-c", _SESSION, str(ROOT)],
            cwd="/",
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._send([master, {"spark.sql.shuffle.partitions": "2"} | conf])

    def begin(self, *words: str, python: str = "") -> None:
        """Starts a command; ``python`` is what executors are to run for it."""
        self._send([words, python])

    def is_answered(self) -> bool:
        """Whether the command that was begun has ended."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def answer(self) -> Answer:
        """Exit code, stdout and stderr of the command, when it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "".join(self.process.communicate())
        code, out, err = json.loads(line)
        return code, out, err

    def run(self, *words: str, python: str = "") -> Answer:
        self.begin(*words, python=python)
        return self.answer()

    def close(self) -> None:
        out, err = self.process.communicate(timeout=400)
        assert (self.process.returncode, out, err) == (0, "", ""), f"{out}{err}"

    def _send(self, value: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()


def run_several(
    master: str, environment: dict[str, str], lines: list[list[str]], **conf: str
) -> list[Answer]:
    """What some commands answer, run in one session."""
    session = Session(master, environment, **conf)
    answers = [session.run(*line) for line in lines]
    session.close()
    return answers


#: What Spark says of a stream's Python process that has not come to it in ten seconds, for which it
#: has no setting: where others want the processors, too, it may take longer. The query is started
#: again then, as `docs/how-to/spark.md` says.
TOO_LATE = "Python worker failed to connect back"


def until_connected(run: Callable[[], Result]) -> Result:
    """What a stream's query answers, started five times at most, until it is not too late."""
    from pyspark.errors import StreamingQueryException

    for _ in range(4):
        try:
            return run()
        except StreamingQueryException as problem:
            if TOO_LATE not in str(problem):
                raise
    return run()


#: Follows the log of a store to its end: ``root out checkpoint``.
STREAM = """
import json
from rmqctl.spark import RocketMQDataSource
from rmqctl.rows.columns import ddl
root, out, checkpoint = arguments
spark.dataSource.register(RocketMQDataSource)
stream = spark.readStream.format("rocketmq").option("maxBytesPerTrigger", "48k")
frame = stream.schema(ddl("commitlog", ["physical_offset", "status"])).load(root)
query = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
query = query.trigger(availableNow=True).start(out)
query.awaitTermination()
rows = spark.read.parquet(out).collect()
print(json.dumps(sorted([row.physical_offset, row.status] for row in rows)))
"""


def java_environment(temporary: Path) -> dict[str, str]:
    """For a command whose Java starts fast and has its temporary files there."""
    options = f"{java_options()} -Djava.io.tmpdir={temporary}"
    # Spark would take the directories of that name instead.
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_DIRS"}
    return inherited | {"JDK_JAVA_OPTIONS": options, "TMPDIR": str(temporary)}


def python_without(directory: Path, *names: str) -> str:
    """A Python of this version with the packages of this one, but for those names."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    paths = {"base": str(directory), "platbase": str(directory)}
    target = Path(sysconfig.get_path("purelib", "venv", paths))
    for source in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(source).iterdir():
            is_wanted = entry.suffix != ".pth" and not entry.name.startswith(names)
            if is_wanted and not (target / entry.name).exists():
                (target / entry.name).symlink_to(entry)
    return str(directory / "bin" / "python")


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    python = python_without(tmp_path_factory.mktemp("bare") / "venv", "rmqctl", "formats")
    code = "import numpy, pyarrow, construct\nimport rmqctl"
    done = subprocess.run([python, "-c", code], cwd="/", capture_output=True, text=True)
    assert "No module named 'rmqctl'" in done.stderr
    return python


@dataclass
class Cluster:
    """A master and its workers, each a process of its own, on the loopback address."""

    master: str
    directory: Path
    workers: list[subprocess.Popen[str]]
    environment: dict[str, str]

    def executors(self, busy: bool = False) -> list[int]:
        """Java processes that run tasks; with ``busy`` those whose Python has been started."""
        known = parents()
        started = set(known.values())
        found = [pid for one in self.workers for pid in known if known[pid] == one.pid]
        return [pid for pid in found if not busy or pid in started]

    def start(self, what: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Starts a master or a worker, and returns when it says that it is up."""
        log = self.directory / f"{what}-{len(self.workers)}.log"
        program = str(Path(self.environment["SPARK_HOME"], "bin", "spark-class"))
        name = f"org.apache.spark.deploy.{what}.{what.capitalize()}"
        command = [program, name, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        before = environment.pop("before", "").split()
        with log.open("w") as output:
            process = subprocess.Popen(
                [*before, *command, *arguments],
                cwd=self.directory,
                env=self.environment | environment,
                stdout=output,
                stderr=output,
                text=True,
            )
        pattern = r"(?:Starting Spark master at|Successfully registered with master) (spark:\S+)"
        found = wait_until(lambda: re.search(pattern, log.read_text()), process)
        self.master = found[1]
        return process

    def start_worker(self, **environment: str) -> subprocess.Popen[str]:
        """One more worker of one core, with directories of its own."""
        place = self.directory / f"worker{len(self.workers)}"
        place.mkdir()
        arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(place / "work")]
        worker = self.start(
            "worker",
            *arguments,
            self.master,
            SPARK_LOCAL_DIRS=str(place / "local"),
            SPARK_WORKER_DIR=str(place / "work"),
            **environment,
        )
        self.workers.append(worker)
        return worker

    @property
    def temporary(self) -> Path:
        """Where drivers are to put their temporary files."""
        return self.directory / "drivers"

    def is_quiet(self) -> bool:
        """No application runs any more, and none has left files with its driver or a worker."""
        # A worker has an empty directory of its own among its local ones.
        left = [*self.temporary.iterdir(), *self.directory.glob("worker*/local/*/*")]
        return not (self.executors() or left)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, spark_home: str) -> Iterator[Cluster]:
    """A real standalone cluster: one master and two workers of one core."""
    directory = tmp_path_factory.mktemp("cluster")
    for name in ("drivers", "nodes"):
        (directory / name).mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": spark_home,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false",
        "JDK_JAVA_OPTIONS": f"{java_options()} -Djava.io.tmpdir={directory / 'nodes'}",
    }
    made = Cluster("", directory, [], environment)
    master = made.start("master")
    try:
        for _ in range(2):
            made.start_worker()
        yield made
    finally:
        for process in (*made.workers, master):
            process.terminate()
        for process in (*made.workers, master):
            process.wait(200)


#: Of :func:`large_store`.
LARGE_CONF = "mappedFileSizeCommitLog=524288\nmaxHashSlotNum=1000\nmaxIndexNum=6001\n"
LARGE_MESSAGES = 12_000


@pytest.fixture(scope="session")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that takes a cluster of two cores some seconds: parts of half a mebibyte."""
    root = tmp_path_factory.mktemp("large") / "store"
    with MessageStore(root, parse_broker_conf(LARGE_CONF), writable=True, create=True) as store:
        messages = (
            MessageExtBrokerInner(
                f"t{n % 7}", b"%d" % n + b"x" * 100, n % 3, properties={"KEYS": f"k{n} l{n % 100}"}
            )
            for n in range(LARGE_MESSAGES)
        )
        assert all(bulk.refused is None for bulk in store.append_stream(messages, flush=False))
    return root


def verdict(root: Path, config: MessageStoreConfig | None = None) -> tuple[list[Finding], Summary]:
    """What verify says of a store: its findings and the summary."""
    rows = list(verify(root, config or MessageStore(root).config))
    summary = rows.pop()
    assert isinstance(summary, Summary)
    return [row for row in rows if isinstance(row, Finding)], summary


def engine_rows(structure: str, root: Path, config: MessageStoreConfig | None = None) -> Rows:
    """What the data source must give, from the walks of the engine."""
    walks: dict[str, Callable[[MessageStore, Selection], Iterable[Row]]]
    walks = {"queue": walk_queues, "index": walk_index}
    with MessageStore(root, config) as store:
        rows: list[Row]
        if structure == "commitlog":
            rows = list(walk_commit_log(store, Selection(), "hex"))
        else:
            rows = list(walks[structure](store, Selection()))
    return [_row(structure, root, row) for row in rows if row["type"] not in ("blank", "summary")]


def _row(structure: str, root: Path, row: Row) -> dict[str, Any]:
    from rmqctl.rows.columns import STRUCTURES, broker_of

    result = dict.fromkeys(column.name for column in STRUCTURES[structure])
    result["store"], result["broker"] = str(root), broker_of(str(root))
    if row["type"] == "damage":
        result["status"] = "damage"
        if structure == "commitlog":
            result["physical_offset"] = row["physical_offset"]
            result["total_size"] = min(row["length"], 2**31 - 1)
            result["damage"] = f"{row['reason']}: expected {row['expected']}, found {row['found']}"
        else:
            result |= {name: row[name] for name in ("topic", "queue_id", "queue_offset")}
            lacks = f"{row['length']} units" if row["expected"] == "units" else row["expected"]
            result["damage"] = f"{row['reason']}: expected {lacks}, found {row['found']}"
        return result
    result |= {name: row[name] for name in result.keys() & row.keys()}
    result["status"] = row.get("status", "ok")
    if structure == "commitlog":
        result["body"] = bytes.fromhex(row["body"])
        result["born_time"] = moment(row["born_timestamp"])
    if structure == "queue" and (row["physical_offset"], row["size"], row["tags_code"]) == (
        0,
        2**31 - 1,
        0,
    ):
        result["status"] = "pre-blank"
    if structure in ("commitlog", "index"):
        result["store_time"] = moment(row["store_timestamp"])
    return result


def moment(milliseconds: int) -> datetime | None:
    """A time as Spark has it; None outside of its calendar."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def read_rows(settings: Any, names: list[str] | None = None, bounds: Any = None) -> Rows:
    """The rows of a read as executors make them, in this process: the splits travel as bytes."""
    import pyarrow as pa

    from rmqctl.arrow.arrays import ARROW_TYPES
    from rmqctl.rows.columns import STRUCTURES
    from rmqctl.spark.source import splits
    from rmqctl.spark.source.pushdown import Bounds

    kinds = {column.name: column.type for column in STRUCTURES[settings.structure]}
    schema = pa.schema([(name, ARROW_TYPES[kinds[name]]) for name in names or kinds])
    bounds = bounds or Bounds()
    rows: Rows = []
    for split in splits.plan(settings, bounds):
        split, settings, bounds = pickle.loads(pickle.dumps((split, settings, bounds)))
        for batch in splits.read(split, settings, bounds, schema):
            batch.validate(full=True)
            rows += table_rows(batch)
    return rows


def table_rows(table: Any) -> Rows:
    """An Arrow table as rows; maps become dicts, and hold no name twice."""
    rows: Rows = table.to_pylist()
    for row in rows:
        if row.get("properties") is not None:
            assert len(dict(row["properties"])) == len(row["properties"])
            row["properties"] = dict(row["properties"])
    return rows
