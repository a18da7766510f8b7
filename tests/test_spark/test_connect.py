"""Spark Connect: the commands and the data source on a server that has no rmqctl of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.spark.session.session import code_zip
from tests import golden_data
from tests.conftest import Golden
from tests.test_spark.conftest import (
    ROOT,
    engine_rows,
    java_environment,
    run_several,
    wait_until,
    why_not,
)

pytest.importorskip("grpc", reason="pip install '.[test]'")

pytestmark = [
    pytest.mark.xdist_group("spark-processes"),
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, spark_home: str, bare_python: str
) -> Iterator[str]:
    """The URL of a Connect server on the loopback address."""
    tmp_path = tmp_path_factory.mktemp("connect")
    (tmp_path / "temporary").mkdir()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.warehouse.dir": str(tmp_path / "temporary" / "warehouse"),
    }
    command = [str(Path(spark_home, "bin", "spark-submit")), "--master", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    name = "org.apache.spark.sql.connect.service.SparkConnectServer"
    environment = java_environment(tmp_path / "temporary") | {"SPARK_HOME": spark_home}
    environment.pop("PYTHONPATH", None)
    log = tmp_path / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--class", name, "spark-internal"],
            cwd=tmp_path / "temporary",
            env=environment | {"PYSPARK_PYTHON": bare_python, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=output,
            stderr=output,
            text=True,
        )
    try:
        pattern = r"Spark Connect server started at: \S*:(\d+)"
        found = wait_until(lambda: re.search(pattern, log.read_text()), process, 600)
        yield f"sc://127.0.0.1:{found[1]}"
    finally:
        process.terminate()
        process.wait(200)


def test_the_commands_run_on_a_connect_server(server: str, golden: Golden, tmp_path: Path) -> None:
    root = golden("basic")
    conf = tmp_path / "broker.conf"
    conf.write_text(golden_data.broker_conf_text("basic"))
    source = ["--store", str(root), "--broker-conf", str(conf)]
    query = "SELECT count(*) AS n, min(physical_offset) AS low FROM messages"
    lines = [
        ["sql", *source, query, "--format", "ndjson"],
        ["verify", *source, "-q"],
        ["stats", *source, "--format", "ndjson"],
        ["export", *source, "--to", str(tmp_path / "out"), "--columns", "msg_id"],
        ["rebuild", "queues", *source, "--output", str(tmp_path / "built")],
    ]
    answers = run_several(server, java_environment(tmp_path), lines)
    assert [(code, err) for code, _, err in answers] == [(0, "")] * 5
    row = json.loads(answers[0][1].splitlines()[0])
    messages = len(golden_data.expected("basic")["message"])
    assert (row["n"], row["low"]) == (messages, 0)
    assert json.loads(answers[2][1].splitlines()[-1])["messages"] == messages
    assert f"messages={messages}" in answers[3][1]
    queues = golden_data.tree_content(root / "consumequeue")
    assert golden_data.tree_content(tmp_path / "built" / "consumequeue") == queues


_OWN_SESSION = """
import json, sys
from pyspark.sql import SparkSession
from rmqctl.spark import RocketMQDataSource, scan, store
url, code, root, new = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
spark.addArtifacts(code, pyfile=True)
spark.dataSource.register(RocketMQDataSource)
source = spark.read.format("rocketmq").option("columns", "physical_offset,topic,body,status")
rows = source.load(root).where("topic = 'TopicA'").orderBy("physical_offset")
read = [[row.physical_offset, bytes(row.body).hex(), row.status] for row in rows.collect()]
where = [("topic", "=", "TopicA")]
scanned = scan(spark, root, columns=["topic", "body"], where=where)
scanned.coalesce(1).write.format("rocketmq").mode("append").save(new)
held = store(root, spark=spark)
told = held.sql("SELECT count(*) AS n FROM messages WHERE topic = 'TopicA'").collect()[0]["n"]
counted = held.stats().summary["messages"]
print(json.dumps([read, scanned.count(), told, counted]))
"""


def test_the_data_source_in_a_session_of_ones_own(
    server: str, golden: Golden, tmp_path: Path
) -> None:
    root, new = golden("basic"), tmp_path / "new"
    arguments = [server, code_zip(str(tmp_path)), str(root), str(new)]
    done = subprocess.run(
        [sys.executable, "-c", _OWN_SESSION, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    rows = [row for row in engine_rows("commitlog", root) if row["topic"] == "TopicA"]
    read = [[row["physical_offset"], row["body"].hex(), row["status"]] for row in rows]
    found, scanned, told, counted = json.loads(done.stdout)
    assert (found, scanned, told) == (read, len(rows), len(rows))
    assert counted == len(golden_data.expected("basic")["message"])
    assert [row["body"] for row in engine_rows("commitlog", new)] == [row["body"] for row in rows]


@pytest.mark.nightly
def test_a_program_is_submitted(
    spark_home: str, bare_python: str, golden: Golden, tmp_path: Path
) -> None:
    """The program of the page, with rmqctl sent along: the Python that runs it has none."""
    page = (ROOT / "docs/how-to/cluster.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "report.py").write_text(program)
    (tmp_path / "temporary").mkdir()
    environment = java_environment(tmp_path / "temporary") | {
        "SPARK_HOME": spark_home,
        "PYSPARK_PYTHON": bare_python,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment.pop("PYTHONPATH", None)
    command = [str(Path(spark_home, "bin", "spark-submit")), "--master", "local[1]"]
    command += ["--conf", "spark.ui.enabled=false", "--py-files", code_zip(str(tmp_path))]
    done = subprocess.run(
        [*command, str(tmp_path / "report.py"), str(golden("basic"))],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=3000,
    )
    assert done.returncode == 0, done.stderr
    topics = Counter(row["topic"] for row in engine_rows("commitlog", golden("basic")))
    assert done.stdout.splitlines() == [f"{name} {topics[name]}" for name in sorted(topics)]
