"""A real standalone cluster on the loopback address: the engine's results, and clear errors.

Its executors run a Python that has what rmqctl needs, but not rmqctl: that must come from the
driver.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from rmqctl.engine.config import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.message import MessageExtBrokerInner
from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations import rebuild as in_process
from rmqctl.operations.verify import verify
from tests import golden_data
from tests.conftest import Golden
from tests.test_spark.conftest import (
    ROOT,
    Cluster,
    engine_rows,
    java_environment,
    python_without,
    run_several,
    wait_until,
)

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]


def environment(cluster: Cluster, python: str) -> dict[str, str]:
    return java_environment(cluster.temporary) | {"PYSPARK_PYTHON": python}


def start(cluster: Cluster, python: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rmqctl", *arguments, "--master", cluster.master],
        cwd=ROOT,
        env=environment(cluster, python),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_commands_say_and_write_what_the_engine_does(
    cluster: Cluster, bare_python: str, golden: Golden, tmp_path: Path
) -> None:
    damaged = golden_data.copy_tree(golden("basic"), tmp_path / "damaged")
    golden_data.apply_damage(damaged, golden_data.damage_case("hole")["ops"])
    stores = {"basic": golden("basic"), "damaged": damaged, "crash": golden("crash")}
    confs: dict[str, MessageStoreConfig] = {}
    lines = []
    for name, root in stores.items():
        base = "basic" if name == "damaged" else name
        confs[name] = golden_data.broker_conf(base)
        conf = tmp_path / f"{name}.conf"
        conf.write_text(golden_data.broker_conf_text(base))
        source = ["--store", str(root), "--broker-conf", str(conf)]
        lines.append(["rebuild", "all", *source, "--output", str(tmp_path / f"{name}-built")])
        lines.append(["verify", *source, "--format", "ndjson"])
        lines.append(["export", *source, "--to", str(tmp_path / f"{name}-out"), "--format=ndjson"])
    answers = iter(run_several(cluster.master, environment(cluster, bare_python), lines))
    for name, root in stores.items():
        is_damaged = name == "damaged"
        code, text, err = next(answers)
        assert (code, err) == (int(is_damaged), ""), text
        assert_rebuilt_alike(root, confs[name], tmp_path / f"{name}-built", tmp_path / name)

        code, text, err = next(answers)
        *rows, summary = [json.loads(line) for line in text.splitlines()]
        *findings, expected = verify(root, confs[name])
        assert sorted(row["code"] for row in rows) == sorted(one.code for one in findings)
        assert {_finding(row) for row in rows} == {_finding(one._asdict()) for one in findings}
        assert summary == {"type": "summary"} | expected.row()
        assert (code, err) == (int(not expected.is_clean), "")

        code, text, err = next(answers)
        walked = engine_rows("commitlog", root, confs[name])
        messages = [row for row in walked if row["status"] != "damage"]
        assert (code, err) == (int(is_damaged), ""), text
        assert _exported(tmp_path / f"{name}-out") == sorted(
            (row["physical_offset"], row["msg_id"], row["topic"]) for row in messages
        )
    wait_until(cluster.is_quiet)


def _finding(row: dict[str, Any]) -> str:
    return json.dumps({k: v for k, v in row.items() if k != "type"}, sort_keys=True, default=str)


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


CONF = "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\nmaxIndexNum=20001\n"


@pytest.fixture(scope="session")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that takes a cluster of two cores some seconds: parts of one mebibyte."""
    root = tmp_path_factory.mktemp("large") / "store"
    with MessageStore(root, parse_broker_conf(CONF), writable=True, create=True) as store:
        messages = (
            MessageExtBrokerInner(
                f"t{n % 7}", b"x" * 100, n % 3, properties={"KEYS": f"k{n} l{n % 100}"}
            )
            for n in range(100_000)
        )
        assert all(bulk.refused is None for bulk in store.append_stream(messages, flush=False))
    return root


def test_a_driver_and_both_executors_are_killed(
    cluster: Cluster, bare_python: str, large_store: Path, tmp_path: Path
) -> None:
    """The driver's death leaves its staging, which the rerun removes; the executors' deaths, one
    while the log is scanned and one while files are written, only cost time."""
    conf, output = tmp_path / "broker.conf", tmp_path / "output"
    conf.write_text(CONF)
    arguments = ["rebuild", "all", "--store", str(large_store), "--broker-conf", str(conf)]
    arguments += ["--output", str(output)]
    before = golden_data.state(large_store)
    building = tmp_path / "output.rmqctl-new"

    driver = start(cluster, bare_python, *arguments)
    wait_until((building / "consumequeue").exists, driver)
    driver.send_signal(signal.SIGKILL)
    driver.communicate(timeout=60)
    assert not output.exists()
    wait_until(cluster.is_quiet)

    driver = start(cluster, bare_python, *arguments)
    os.kill(wait_until(lambda: cluster.executors(busy=True), driver)[0], signal.SIGKILL)
    wait_until((building / "consumequeue").exists, driver)
    os.kill(wait_until(lambda: cluster.executors(busy=True), driver)[-1], signal.SIGKILL)
    out, err = driver.communicate(timeout=300)
    assert (driver.returncode, err) == (0, ""), out
    assert_rebuilt_alike(large_store, parse_broker_conf(CONF), output, tmp_path / "large")
    assert {path.name for path in tmp_path.iterdir()} == {
        "broker.conf",
        "output",
        "large-expected",
    }
    assert golden_data.state(large_store) == before
    wait_until(cluster.is_quiet)


# --- bad input: one line, with the next step -----------------------------------------------


#: The first failure is told at once, and few tasks are started.
HASTE = ("--conf", "spark.task.maxFailures=1")


def assert_told(done: subprocess.Popen[str], text: str) -> None:
    out, err = done.communicate(timeout=200)
    assert (done.returncode, len(err.splitlines())) == (5, 1), (out, err)
    assert text in err


def test_a_package_is_missing_on_the_nodes(
    cluster: Cluster, golden: Golden, tmp_path: Path
) -> None:
    python = python_without(tmp_path / "venv", "rmqctl", "formats", "isal")
    done = start(cluster, python, "verify", "--store", str(golden("basic")), *HASTE)
    assert_told(done, "the Python of its executors has no module isal. Install what rmqctl needs")


def test_the_nodes_have_no_such_python(cluster: Cluster, golden: Golden) -> None:
    done = start(cluster, "/no/such/python", "verify", "--store", str(golden("basic")), *HASTE)
    assert_told(done, "a node has no Python /no/such/python. Set PYSPARK_PYTHON")


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
    cluster: Cluster, bare_python: str, golden: Golden, tmp_path: Path
) -> None:
    """What a task would write on such a node must not be missed in silence."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    copy = golden_data.copy_tree(golden("basic"), hidden / "store")
    store = ["--store", str(golden("basic"))]
    python = blind_python(tmp_path, bare_python, hidden)
    lines = [
        ["verify", "--store", str(copy)],
        ["rebuild", "queues", *store, "--output", str(hidden / "built")],
        ["export", *store, "--to", str(hidden / "exported")],
    ]
    answers = run_several(
        cluster.master,
        environment(cluster, python),
        lines,
        **{"spark.task.maxFailures": "1"},
    )
    for code, _, err in answers:
        assert (code, len(err.splitlines())) == (5, 1), err
        assert "a worker of Spark does not see" in err
        assert "under the same path" in err or "sees under" in err
    assert [path.name for path in hidden.iterdir()] == ["store"]
    wait_until(cluster.is_quiet)
