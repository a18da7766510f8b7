"""Spark Connect: the commands and the data source on a server that has no rmqctl of its own."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import golden_data
from tests.conftest import Golden
from tests.test_spark.conftest import java_environment, run_several, wait_until, why_not

pytest.importorskip("grpc", reason="pip install 'rmqctl[test]'")

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]


@pytest.fixture
def server(tmp_path: Path, bare_python: str) -> Iterator[str]:
    """The URL of a Connect server on the loopback address."""
    import pyspark

    (tmp_path / "temporary").mkdir()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path / "temporary" / "warehouse"),
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    name = "org.apache.spark.sql.connect.service.SparkConnectServer"
    environment = java_environment(tmp_path / "temporary")
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
        found = wait_until(lambda: re.search(pattern, log.read_text()), process)
        yield f"sc://127.0.0.1:{found[1]}"
    finally:
        process.terminate()
        process.wait(30)


def test_the_commands_run_on_a_connect_server(server: str, golden: Golden, tmp_path: Path) -> None:
    root = golden("basic")
    conf = tmp_path / "broker.conf"
    conf.write_text(golden_data.broker_conf_text("basic"))
    source = ["--store", str(root), "--broker-conf", str(conf)]
    query = "SELECT count(*) AS n, min(physical_offset) AS low FROM messages"
    lines = [
        ["sql", *source, query, "--format", "ndjson"],
        ["verify", *source, "-q"],
        ["export", *source, "--to", str(tmp_path / "out"), "--columns", "msg_id"],
        ["rebuild", "queues", *source, "--output", str(tmp_path / "built")],
    ]
    answers = run_several(server, java_environment(tmp_path / "temporary"), lines)
    assert [(code, err) for code, _, err in answers] == [(0, "")] * 4
    row = json.loads(answers[0][1].splitlines()[0])
    messages = len(golden_data.expected("basic")["message"])
    assert (row["n"], row["low"]) == (messages, 0)
    assert f"messages={messages}" in answers[2][1]
    queues = golden_data.tree_content(root / "consumequeue")
    assert golden_data.tree_content(tmp_path / "built" / "consumequeue") == queues
