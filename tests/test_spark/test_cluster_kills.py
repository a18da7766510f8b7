"""Whatever a command has run on a cluster, it says and writes the same when executors die.

They die at points that their tasks have come to (``helddaemon.py``), whatever the time is: one
before a task has done anything, one when another is done and nobody has been told. A task is tried
four times, and an executor that dies counts as its failure.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl.engine.settings.storeconfig import parse_broker_conf
from tests import golden_data
from tests.test_spark import helddaemon
from tests.test_spark.conftest import (
    LARGE_CONF,
    LARGE_MESSAGES,
    STREAM,
    Answer,
    Cluster,
    Session,
    java_environment,
    python_without,
    verdict,
    wait_until,
)
from tests.test_spark.test_encode import kept_of

pytestmark = [
    pytest.mark.xdist_group("spark-cluster"),
    pytest.mark.slow,
    pytest.mark.nightly,
]

CONFIG = parse_broker_conf(LARGE_CONF)
_DAEMON = "rmqctl_held_daemon"


class Points:
    """Where tasks tell which points they pass, and which of them they wait at."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.begin([])

    def begin(self, held: list[str]) -> None:
        """Counts from now on; tasks wait at those points, such as ``end 3``."""
        for old in self.directory.iterdir():
            old.unlink()
        # Who reads the one has to find the other.
        (self.directory / "hold").write_text("\n".join(held))
        (self.directory / "points").touch()

    @property
    def passed(self) -> Counter[str]:
        return Counter((self.directory / "points").read_text().split())

    def executor(self, point: str) -> int | None:
        """The executor whose task waits at a point."""
        place = self.directory / point
        return int(place.read_text()) if place.exists() else None


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Points:
    return Points(tmp_path_factory.mktemp("held") / "points")


@pytest.fixture(scope="module")
def session(
    cluster: Cluster, points: Points, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    """One driver for the commands of this module, whose executors have tasks that can be held."""
    venv = tmp_path_factory.mktemp("held-python") / "venv"
    python = python_without(venv, "rmqctl", "formats")
    paths = {"base": str(venv), "platbase": str(venv)}
    packages = Path(sysconfig.get_path("purelib", "venv", paths))
    shutil.copy(str(helddaemon.__file__), packages / f"{_DAEMON}.py")
    environment = java_environment(cluster.temporary) | {"PYSPARK_PYTHON": python}
    conf = {
        "spark.python.daemon.module": _DAEMON,
        f"spark.executorEnv.{helddaemon.PLACE}": str(points.directory),
    }
    made = Session(cluster.master, environment, **conf)
    yield made
    made.close()
    wait_until(cluster.is_quiet)


class Made(NamedTuple):
    """What a command may be given: stores, sound and damaged, and files; what it writes goes to
    ``to``. ``conf`` is the stores' broker.conf."""

    conf: Path
    root: Path
    damaged: Path
    fleet: Path
    lines: Path
    to: Path


def _held_by(made: Made) -> object:
    """What there is in a place that a command makes, and in the store that it may change."""
    names = {re.sub(r"-old-\d+$", "", name) for name in os.listdir(made.root)}
    held = [[_queues(one), _items(one)] for one in (made.root, made.to)]
    return held, names, _rows(made.to)


def _told(answer: Answer) -> object:
    """What is the same each time: neither names of what is made nor times, and in any order."""
    code, out, err = answer
    text = re.sub(r'"seconds":[^,}]*|made\d+|(?<=rmqctl-old-)\d+', "", out)
    return code, sorted(text.splitlines()), err


def _imported(made: Made) -> object:
    findings, _ = verdict(made.to, CONFIG)
    return kept_of(made.to, CONFIG), findings


def _read_by_note(made: Made) -> object:
    """Of a stream's files those count that its note names, and their rows are told: what a task
    that died has left is beside them."""
    return (made.to / "_spark_metadata").is_dir()


def _queues(root: Path) -> object:
    return golden_data.tree_content(root / "consumequeue")


def _items(root: Path) -> object:
    return golden_data.index_contents(root / "index") if (root / "index").exists() else None


def _rows(to: Path) -> list[tuple[str, list[str]]]:
    """The rows of files of Parquet and of lines, which bear names by chance, by directory."""
    from pyarrow import parquet

    found: dict[str, list[str]] = {}
    for path in to.rglob("part-*"):
        if path.suffix == ".parquet":
            rows = [str(row) for row in parquet.ParquetFile(path).read().to_pylist()]
        else:
            rows = path.read_text().splitlines()
        found.setdefault(str(path.parent.relative_to(to)), []).extend(rows)
    return sorted((name, sorted(rows)) for name, rows in found.items())


class Job(NamedTuple):
    """A command line, or a program of the session with its arguments; an assignment that the
    session makes first, so that a small store is not done in the driver; what it has made."""

    line: str
    first: str = ""
    made: Callable[[Made], object] = _held_by


_WHERE = "--store {damaged} --broker-conf {conf}"
_FLEET = "--stores {fleet} --broker-conf {conf} --format ndjson"
_QUERY = "SELECT topic, count(*) AS n, max(physical_offset) AS last FROM messages GROUP BY topic"
_APPEND = """
from rmqctl.spark import RocketMQDataSource
from rmqctl.spark.source.datasource import scan
source, to, conf = arguments
text = open(conf).read()
spark.dataSource.register(RocketMQDataSource)
rows = scan(spark, source, columns=["topic", "queue_id", "body", "born_timestamp"], brokerConf=text)
rows.write.format("rocketmq").mode("append").option("brokerConf", text).save(to)
"""
_BY_PROGRAM = """
from rmqctl.spark import store
held = store(arguments[0], spark=spark, broker_conf=arguments[1])
counts = held.query(lambda rows: rows.groupBy("topic", "queue_id").count())
units = held.query(lambda rows: rows.groupBy("queue_id").count(), "queue")
print(sorted(map(tuple, counts.collect())), sorted(map(tuple, units.collect())))
"""
_ALONE = "from rmqctl.spark.procedures import fleet; fleet.LARGE = -1"
#: In few batches: each takes a cluster its time.
_STREAM = STREAM.replace("48k", "512k")
_PROGRAMS = {"STREAM": _STREAM, "APPEND": _APPEND, "BY_PROGRAM": _BY_PROGRAM, "QUERY": _QUERY}
#: Every command that takes ``--master``, in each of its ways, and what programs do by it.
JOBS = {
    "verify": Job(f"verify {_WHERE} --format ndjson --output {{to}}"),
    "stats": Job(
        f"stats {_WHERE} --format ndjson",
        "from rmqctl.spark.procedures import fewstats; fewstats.SMALL = -1",
    ),
    "sql": Job(f"sql {_WHERE} --format ndjson QUERY"),
    "sql-parquet": Job(f"sql {_WHERE} --output {{to}} QUERY"),
    "export-ndjson": Job(f"export {_WHERE} --output {{to}} --format ndjson"),
    "export-parquet": Job(f"export {_WHERE} --output {{to}}"),
    "import": Job(
        "import --store {to} --broker-conf {conf} --from {lines} --input ndjson",
        "from rmqctl.spark.sink import newstore; newstore.SMALL = 0",
        _imported,
    ),
    "rebuild-all": Job(f"rebuild all {_WHERE} --output {{to}}"),
    "rebuild-queues": Job("rebuild queues --store {root} --broker-conf {conf} --output {to}"),
    "rebuild-index": Job("rebuild index --store {root} --broker-conf {conf} --output {to}"),
    "in-place": Job("rebuild all --store {root} --broker-conf {conf} --in-place --yes"),
    "fleet-verify": Job(f"fleet verify {_FLEET}"),
    "fleet-stats": Job(f"fleet stats {_FLEET}"),
    "fleet-du": Job(f"fleet du {_FLEET}"),
    "fleet-verify-split": Job(f"fleet verify {_FLEET}", _ALONE),
    "fleet-stats-split": Job(f"fleet stats {_FLEET}", _ALONE),
    "stream": Job("-c STREAM {root} {to} {to}-checkpoint", made=_read_by_note),
    "append": Job("-c APPEND {root} {to} {conf}", made=_imported),
    "program": Job("-c BY_PROGRAM {root} {conf}"),
}


def _line(number: int) -> str:
    place = {"topic": f"t{number % 7}", "queue_id": number % 3, "born_timestamp": number}
    return json.dumps(place | {"body": f"{number} " + "x" * 100}) + "\n"


@pytest.fixture
def make(large_store: Path, tmp_path: Path) -> Iterator[Callable[[], Made]]:
    """What a run of a command is given: always the same, and a place of its own. What only reads
    the stores leaves them as they are."""
    conf, lines, fleet = tmp_path / "broker.conf", tmp_path / "lines.ndjson", tmp_path / "stores"
    conf.write_text(LARGE_CONF)
    lines.write_text("".join(map(_line, range(LARGE_MESSAGES))))
    root = golden_data.copy_tree(large_store, tmp_path / "store")
    damaged = golden_data.copy_tree(large_store, tmp_path / "damaged")
    (hole, *_), numbers = sorted((damaged / "commitlog").iterdir())[1:], count()
    golden_data.apply_damage(
        damaged,
        [{"op": "write", "path": f"commitlog/{hole.name}", "position": 4000, "hex": "00" * 999}],
    )
    (tmp_path / "none").mkdir()
    several = {"a": root, "b": damaged, "c": large_store, "d": tmp_path / "none"}
    fleet.write_text("".join(f"{name}={place}\n" for name, place in several.items()))
    before = [golden_data.state(one) for one in (large_store, damaged)]
    yield lambda: Made(conf, root, damaged, fleet, lines, tmp_path / f"made{next(numbers)}")
    assert [golden_data.state(one) for one in (large_store, damaged)] == before


class Ran(NamedTuple):
    """What a command has told and made, its answer as it came, and the points that no task has come
    to."""

    told: object
    made: object
    answer: Answer
    left: set[str]


def _is_held(session: Session, points: Points, left: set[str]) -> bool:
    return session.is_answered() or any(map(points.executor, left))


@pytest.mark.parametrize("name", JOBS)
def test_the_answer_is_the_same_when_executors_die(
    cluster: Cluster,
    session: Session,
    points: Points,
    make: Callable[[], Made],
    chance: random.Random,
    name: str,
) -> None:
    job = JOBS[name]
    if job.first:
        assert session.run("-c", job.first) == (0, "", "")

    def run(held: list[str]) -> Ran:
        """What it answers and has made; the executors that wait at some points are killed."""
        made = make()
        points.begin(held)
        words = (word.format(**made._asdict()) for word in job.line.split())
        session.begin(*(_PROGRAMS.get(word, word) for word in words))
        left = set(held)
        while left:
            wait_until(partial(_is_held, session, points, left), session.process, 600)
            if session.is_answered():
                break
            for point in [one for one in left if points.executor(one)]:
                os.kill(points.executor(point) or 0, signal.SIGKILL)
                left.remove(point)
        answer = session.answer()
        return Ran(_told(answer), job.made(made), answer, left)

    usual = run([])
    passed = points.passed
    assert 0 <= usual.answer[0] < 5 and passed["begin"] and passed["end"], (usual.answer, passed)
    for _ in range(5):
        # Of a job that has got all that it wants some tasks may not come to their end.
        held = [f"{point} {chance.randrange(passed[point])}" for point in ("begin", "end")]
        again = run(held)
        assert again[:2] == usual[:2], (held, again.answer, again.left)
        if not again.left:
            return
    pytest.fail(f"the executors to kill were not there: {held}, {passed}")
