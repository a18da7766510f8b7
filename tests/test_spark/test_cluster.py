"""A real standalone cluster on the loopback address: the engine's results, and clear errors.

Its executors run a Python that has what rmqctl needs, but not rmqctl: that must come from the
driver.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.operations.mend import rebuild as in_process
from tests import golden_data
from tests.conftest import Golden
from tests.test_spark.conftest import (
    ROOT,
    STREAM,
    Answer,
    Cluster,
    Session,
    engine_rows,
    java_environment,
    python_without,
    verdict,
    wait_until,
)
from tests.test_spark.test_encode import kept_of

pytestmark = [pytest.mark.xdist_group("spark-cluster"), pytest.mark.slow]


def environment(cluster: Cluster, python: str) -> dict[str, str]:
    return java_environment(cluster.temporary) | {"PYSPARK_PYTHON": python}


@pytest.fixture(scope="module")
def session(cluster: Cluster, bare_python: str) -> Iterator[Session]:
    """One driver for the commands of this module; the cluster has no room for a second one."""
    made = Session(cluster.master, environment(cluster, bare_python))
    yield made
    made.close()
    wait_until(cluster.is_quiet)


CONF = "mappedFileSizeCommitLog=524288\nmaxHashSlotNum=1000\nmaxIndexNum=6001\n"
MESSAGES = 12_000


@pytest.fixture(scope="session")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that takes a cluster of two cores some seconds: parts of half a mebibyte."""
    root = tmp_path_factory.mktemp("large") / "store"
    with MessageStore(root, parse_broker_conf(CONF), writable=True, create=True) as store:
        messages = (
            MessageExtBrokerInner(
                f"t{n % 7}", b"%d" % n + b"x" * 100, n % 3, properties={"KEYS": f"k{n} l{n % 100}"}
            )
            for n in range(MESSAGES)
        )
        assert all(bulk.refused is None for bulk in store.append_stream(messages, flush=False))
    return root


# --- kills ---------------------------------------------------------------------------------


@pytest.fixture
def killing(large_store: Path, tmp_path: Path) -> Iterator[tuple[list[str], Path]]:
    """Options for :func:`large_store`, which must stay as it is, and a directory for results."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "broker.conf").write_text(CONF)
    before = golden_data.state(large_store)
    yield ["--store", str(large_store), "--broker-conf", str(tmp_path / "broker.conf")], work
    assert golden_data.state(large_store) == before


def killed(cluster: Cluster, session: Session, place: Path, *moments: Callable[[], Any]) -> str:
    """What the running command says on stdout when at each of some moments an executor is killed;
    the place is what it makes at its end."""
    for number, moment in enumerate(moments):
        # The session may have to start first.
        wait_until(moment, session.process, 600)
        busy = wait_until(lambda: cluster.executors(busy=True), session.process, 600)
        os.kill(busy[-number], signal.SIGKILL)
    assert not place.exists(), "it was over before"
    code, out, err = session.answer()
    assert (code, err) == (0, ""), out
    return out


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
    assert_rebuilt_alike(large_store, parse_broker_conf(CONF), built, tmp_path / "large")
    assert [path.name for path in work.iterdir()] == ["built"]


def in_time(killed: Callable[[], bool], built: Path) -> None:
    """Kills until it was before the end of what builds a directory."""
    for _ in range(9):
        if killed():
            return
        shutil.rmtree(built)
    pytest.fail("it was over before, each time")


@pytest.mark.nightly
def test_executors_are_killed_in_every_job(
    cluster: Cluster,
    session: Session,
    large_store: Path,
    killing: tuple[list[str], Path],
    golden: Golden,
    tmp_path: Path,
) -> None:
    """In the middle of whatever job, their deaths only cost time."""
    (source, work), config = killing, parse_broker_conf(CONF)
    conf = source[2:]
    built, exported, imported = work / "built", work / "exported", work / "imported"

    # While the log is scanned, and while files are written.
    session.begin("rebuild", "all", *source, "--output", str(built))
    is_writing = (work / "built.rmqctl-new" / "consumequeue").exists
    killed(cluster, session, built, lambda: True, is_writing)
    assert_rebuilt_alike(large_store, config, built, tmp_path / "large")

    session.begin("export", *source, "--to", str(exported), "--format=ndjson")
    killed(cluster, session, exported, lambda: [*work.glob("exported.rmqctl-new/**/part-*")])
    assert _exported(exported) == _messages(large_store, config)

    session.begin(
        "import", "--store", str(imported), *conf, "--from", str(exported), "--input=ndjson"
    )
    killed(cluster, session, imported, lambda: [*work.glob("imported.rmqctl-new/rmqctl-runs/*")])
    assert kept_of(imported, config) == kept_of(large_store, config)
    findings, summary = verdict(imported, config)
    assert (findings, summary.records) == ([], MESSAGES)

    root, checkpoint = golden("basic"), work / "checkpoint"
    session.begin("-c", STREAM, str(root), str(work / "stream"), str(checkpoint))
    offsets = checkpoint / "offsets"
    out = killed(cluster, session, offsets / "9", (offsets / "1").exists)
    messages = _messages(root, golden_data.broker_conf("basic"))
    assert json.loads(out) == [[offset, "unchecked"] for offset, _, _ in messages]
    names = {"built", "exported", "imported", "checkpoint", "stream"}
    assert {path.name for path in work.iterdir()} == names


#: Commands whose executors are kept busy by the large store. What else is killed is above.
COMMANDS = {
    "verify": "verify --store {root} --broker-conf {conf} --format ndjson",
    "sql": "sql --store {root} --broker-conf {conf} --format ndjson {query}",
    "in-place": "rebuild all --store {root} --broker-conf {conf} --in-place --yes",
    "import": "import --store {to} --broker-conf {conf} --from {lines} --input ndjson",
}
QUERY = "SELECT topic, count(*) AS n, max(physical_offset) AS last FROM messages GROUP BY topic"


@pytest.mark.nightly
@pytest.mark.parametrize("name", COMMANDS)
def test_executors_are_killed_at_any_moment(
    cluster: Cluster,
    session: Session,
    large_store: Path,
    tmp_path: Path,
    chance: random.Random,
    name: str,
) -> None:
    """Two in each run of a command: it answers and writes what it does when nobody dies."""
    root, places = golden_data.copy_tree(large_store, tmp_path / "store"), count()
    conf, lines = tmp_path / "broker.conf", tmp_path / "lines.ndjson"
    conf.write_text(CONF)
    if name == "import":
        lines.write_text("".join(json.dumps(_line(n)) + "\n" for n in range(MESSAGES)))

    def begin() -> Path:
        """Starts the command, which may write there."""
        to = tmp_path / f"made{next(places)}"
        values = {"root": root, "conf": conf, "to": to, "lines": lines, "query": QUERY}
        session.begin(*(word.format(**values) for word in COMMANDS[name].split()))
        return to

    def outcome(to: Path) -> object:
        """What it answers, and what the store and the other place hold then."""
        code, out, err = session.answer()
        assert (code, err) == (0, ""), out
        # What is kept of before an in-place rebuild is named after the time.
        text = sorted(re.sub(r'"seconds":[^,}]*|made\d+|(?<=rmqctl-old-)\d+', "", out).splitlines())
        if name == "import":
            return text, kept_of(to, parse_broker_conf(CONF))
        held = [[_queues(one), _items(one)] for one in (root, to)]
        return text, held, {one.partition("-old-")[0] for one in os.listdir(root)}

    started = time.monotonic()
    expected = outcome(begin())
    usual = time.monotonic() - started
    for _ in range(20):
        to, killed = begin(), kill(cluster, session, chance, usual)
        assert outcome(to) == expected
        if killed:
            return
    pytest.fail("it was always over before an executor could be killed")


def kill(cluster: Cluster, session: Session, chance: random.Random, usual: float) -> set[int]:
    """Kills up to two executors at some moments of a command that usually takes so many seconds.

    A task is tried four times, and an executor that dies counts as its failure.
    """
    killed: set[int] = set()
    while len(killed) < 2:
        time.sleep(chance.random() * usual / 2)
        busy = wait_until(
            lambda: session.is_answered() or set(cluster.executors(busy=True)) - killed,
            session.process,
        )
        if session.is_answered():
            break
        one = chance.choice(sorted(busy))
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            break  # Its application is over.
        killed.add(one)
    return killed


def _line(number: int) -> dict[str, Any]:
    body = f"{number} " + "x" * 100
    place = {"topic": f"t{number % 7}", "queue_id": number % 3}
    return place | {"body": body, "born_timestamp": number}


def _queues(root: Path) -> object:
    return golden_data.tree_content(root / "consumequeue")


def _items(root: Path) -> object:
    return golden_data.index_contents(root / "index") if (root / "index").exists() else None


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
    # Few tasks: each is tried four times, by a Python of its own.
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
