"""A real standalone cluster on the loopback address: the engine's results, and clear errors.

Its executors run a Python that has what rmqctl needs, but not rmqctl: that must come from the
driver.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.operations.mend import rebuild as in_process
from tests import golden_data, seeds
from tests.conftest import Golden
from tests.test_spark.conftest import (
    LARGE_CONF,
    ROOT,
    TOO_LATE,
    Answer,
    Cluster,
    Session,
    engine_rows,
    java_environment,
    python_without,
    verdict,
    wait_until,
)

pytestmark = [pytest.mark.xdist_group("spark-cluster"), pytest.mark.slow]


def environment(cluster: Cluster, python: str) -> dict[str, str]:
    return java_environment(cluster.temporary) | {"PYSPARK_PYTHON": python}


@pytest.fixture(scope="module")
def session(cluster: Cluster, bare_python: str) -> Iterator[Session]:
    """One driver for the commands of this module; the cluster has no room for a second one."""
    # One executor is killed in a run, two in those of the night, and a task that fails for good is
    # given up the sooner. Spark's own number is 4.
    tries = "4" if seeds.is_deep() else "2"
    conf = {"spark.task.maxFailures": tries}
    made = Session(cluster.master, environment(cluster, bare_python), **conf)
    yield made
    made.close()
    wait_until(cluster.is_quiet)


# --- kills ---------------------------------------------------------------------------------


@pytest.fixture
def killing(large_store: Path, tmp_path: Path) -> Iterator[tuple[list[str], Path]]:
    """Options for :func:`large_store`, which must stay as it is, and a directory for results."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "broker.conf").write_text(LARGE_CONF)
    before = golden_data.state(large_store)
    yield ["--store", str(large_store), "--broker-conf", str(tmp_path / "broker.conf")], work
    assert golden_data.state(large_store) == before


def test_a_driver_and_an_executor_are_killed(
    cluster: Cluster,
    bare_python: str,
    large_store: Path,
    killing: tuple[list[str], Path],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """The driver's death leaves its staging, which the rerun removes; the executor's, while files
    are written, only costs time. The first test here: it comes before the session."""
    source, work = killing
    built, staging = work / "built", work / "built.rmqctl-new"
    command = ["rebuild", "all", *source, "--output", str(built)]

    def driver_killed() -> bool:
        """Whether it was before the end: this process may have had to wait for a core."""
        driver = subprocess.Popen(
            [sys.executable, "-m", "rmqctl", *command, "--master", cluster.master],
            cwd=ROOT,
            env=environment(cluster, bare_python),
        )
        is_writing = (staging / "consumequeue").exists
        wait_until(lambda: driver.poll() is not None or is_writing(), seconds=600)
        driver.kill()
        driver.wait(60)
        wait_until(cluster.is_quiet)
        return not built.exists()

    in_time(driver_killed, built)
    session: Session = request.getfixturevalue("session")
    left = staging / "left"
    left.touch()

    def is_writing() -> bool:
        return not left.exists() and (staging / "consumequeue").exists()

    def executor_killed() -> bool:
        session.begin(*command)
        wait_until(lambda: built.exists() or is_writing(), session.process, 600)
        os.kill(wait_until(lambda: cluster.executors(busy=True))[0], signal.SIGKILL)
        is_in_time = not built.exists()
        code, out, err = session.answer()
        assert (code, err) == (0, ""), out
        return is_in_time

    in_time(executor_killed, built)
    assert_rebuilt_alike(large_store, parse_broker_conf(LARGE_CONF), built, tmp_path / "large")
    assert [path.name for path in work.iterdir()] == ["built"]


def in_time(killed: Callable[[], bool], built: Path) -> None:
    """Kills until it was before the end of what builds a directory."""
    for _ in range(9):
        if killed():
            return
        shutil.rmtree(built)
    pytest.fail("it was over before, each time")


def _messages(root: Path, config: MessageStoreConfig) -> list[tuple[int, str, str]]:
    """What :func:`_exported` must give."""
    rows = engine_rows("commitlog", root, config)
    return [
        (row["physical_offset"], row["msg_id"], row["topic"])
        for row in rows
        if row["status"] != "damage"
    ]


# --- results -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["basic", "damaged"])
def test_the_commands_say_and_write_what_the_engine_does(
    session: Session, golden: Golden, tmp_path: Path, name: str
) -> None:
    is_damaged, root = name == "damaged", golden("basic")
    if is_damaged:
        root = golden_data.copy_tree(root, tmp_path / "damaged")
        golden_data.apply_damage(root, golden_data.damage_case("hole")["ops"])
    config, conf = golden_data.broker_conf("basic"), tmp_path / "broker.conf"
    conf.write_text(golden_data.broker_conf_text("basic"))
    source = ["--store", str(root), "--broker-conf", str(conf)]

    code, text, err = session.run("verify", *source, "--format", "ndjson")
    *rows, summary = [json.loads(line) for line in text.splitlines()]
    findings, expected = verdict(root, config)
    assert sorted(row["code"] for row in rows) == sorted(one.code for one in findings)
    assert {_finding(row) for row in rows} == {_finding(one._asdict()) for one in findings}
    assert summary == {"type": "summary"} | expected.row()
    assert (code, err) == (int(not expected.is_clean), "")

    to = tmp_path / "out"
    code, text, err = session.run("export", *source, "--to", str(to), "--format=ndjson")
    assert (code, err) == (int(is_damaged), ""), text
    assert _exported(to) == _messages(root, config)

    if is_damaged:
        built = tmp_path / "built"
        code, text, err = session.run("rebuild", "all", *source, "--output", str(built))
        assert (code, err) == (1, ""), text
        assert_rebuilt_alike(root, config, built, tmp_path / "engine")


def _finding(row: dict[str, Any]) -> str:
    return json.dumps(
        {k: v for k, v in row.items() if k not in ("type", "command")}, sort_keys=True, default=str
    )


def _exported(directory: Path) -> list[tuple[int, str, str]]:
    return sorted(
        (row["physical_offset"], row["msg_id"], unquote(path.parent.parent.name)[6:])
        for path in directory.rglob("part-*")
        for row in map(json.loads, path.read_text().splitlines())
    )


def assert_rebuilt_alike(
    root: Path, config: MessageStoreConfig, built: Path, scratch: Path
) -> None:
    expected = Path(f"{scratch}-expected")
    in_process.rebuild_to(in_process.plan_rebuild(root, config, "all"), expected)
    queues = golden_data.tree_content(expected / "consumequeue")
    assert golden_data.tree_content(built / "consumequeue") == queues
    assert golden_data.index_contents(built / "index") == golden_data.index_contents(
        expected / "index"
    )
    assert {path.name for path in built.iterdir()} == {"consumequeue", "index"}


#: Appends what is new in a store to another one; with a word more it stops after its first batch.
_FOLLOW = """
import time
from rmqctl.spark import RocketMQDataSource
root, new, checkpoint, *stop = arguments
spark.dataSource.register(RocketMQDataSource)
source = spark.readStream.format("rocketmq").option("maxOffsetsPerTrigger", "9")
rows = source.option("columns", "topic,queue_id,body").load(root)
query = rows.writeStream.format("rocketmq").option("checkpointLocation", checkpoint)
query = query.trigger(availableNow=True).start(new)
while stop and query.isActive and not query.lastProgress:
    time.sleep(0.05)
if stop:
    query.stop()
query.awaitTermination()
"""


def run_until_connected(session: Session, *arguments: str) -> Answer:
    """What the last of five runs answers, or the first that is not too late."""
    for _ in range(4):
        answer = session.run(*arguments)
        if TOO_LATE not in answer[2]:
            return answer
    return session.run(*arguments)


def test_a_stream_is_stopped_and_goes_on(session: Session, tmp_path: Path) -> None:
    """Nor has the process that says how far its source is rmqctl of its own."""
    root, new = tmp_path / "store", tmp_path / "new"
    places = [str(root), str(new), str(tmp_path / "checkpoint")]
    for first, last, stop in ((0, 40, ["stop"]), (40, 60, [])):
        with MessageStore(root, writable=True, create=True) as store:
            store.put_messages([MessageExtBrokerInner("t", b"%d" % n) for n in range(first, last)])
        answer = run_until_connected(session, "-c", _FOLLOW, *places, *stop)
        assert answer == (0, "", ""), answer[2]
    assert [int(row["body"]) for row in engine_rows("commitlog", new)] == list(range(60))


# --- bad input: one line, with the next step -----------------------------------------------


def assert_told(answer: Answer, text: str) -> None:
    code, out, err = answer
    assert (code, len(err.splitlines())) == (5, 1), (out, err)
    assert text in err


def test_a_package_is_missing_on_the_nodes(
    session: Session, golden: Golden, tmp_path: Path
) -> None:
    python = python_without(tmp_path / "venv", "rmqctl", "formats", "isal")
    answer = session.run("verify", "--store", str(golden("basic")), python=python)
    assert_told(answer, "the Python of its executors has no module isal. Install what rmqctl needs")


def test_the_nodes_have_no_such_python(session: Session, golden: Golden) -> None:
    answer = session.run("verify", "--store", str(golden("basic")), python="/no/such/python")
    assert_told(answer, "a node has no Python /no/such/python. Set PYSPARK_PYTHON")


def blind_python(directory: Path, python: str, hidden: Path) -> str:
    """A Python for executors on whose node a directory is empty: a mount namespace of its own."""
    try_it = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", str(hidden)]
    if subprocess.run(try_it, capture_output=True).returncode != 0:
        pytest.skip("no right to make a mount namespace here")
    program = directory / "blind-python"
    inner = f'mount -t tmpfs none {hidden} && exec {python} "$@"'
    program.write_text(f"#!/bin/sh\nexec unshare -rm sh -c '{inner}' sh \"$@\"\n")
    program.chmod(0o755)
    return str(program)


def test_the_nodes_do_not_see_store_or_output(
    session: Session, bare_python: str, tmp_path: Path
) -> None:
    """What a task would write on such a node must not be missed in silence."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    # Few tasks: each is tried more than once, by a Python of its own.
    with MessageStore(tmp_path / "store", writable=True, create=True) as small:
        small.put_messages([MessageExtBrokerInner("t", b"body")])
    copy = golden_data.copy_tree(tmp_path / "store", hidden / "store")
    store = ["--store", str(tmp_path / "store")]
    python = blind_python(tmp_path, bare_python, hidden)
    for words in (
        ["verify", "--store", str(copy)],
        ["rebuild", "queues", *store, "--output", str(hidden / "built")],
        ["export", *store, "--to", str(hidden / "exported")],
    ):
        code, _, err = session.run(*words, python=python)
        assert (code, len(err.splitlines())) == (5, 1), err
        assert "a worker of Spark does not see" in err
        assert "under the same path" in err or "sees under" in err
    assert [path.name for path in hidden.iterdir()] == ["store"]
