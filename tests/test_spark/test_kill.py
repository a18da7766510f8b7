"""Ctrl-C and kill -9 in the middle: what was there stays, and a rerun completes.

Whatever ends the driver, its Java and Python processes end soon after it, and take their temporary
files with them. Executors on other nodes are killed in test_cluster.py.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from tests import golden_data
from tests.conftest import Golden
from tests.test_spark.conftest import (
    ROOT,
    STREAM,
    Session,
    java_environment,
    verdict,
    wait_until,
    why_not,
)

pytestmark = [
    pytest.mark.xdist_group("spark-processes"),
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]


class Run:
    """A Python process with temporary files of its own, and what it starts."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.temporary = directory / "temporary"
        self.temporary.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=java_environment(self.temporary) | {"RMQCTL_DEBUG": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A run in the background ignores Ctrl-C, and hands that down.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    def wait_for(self, what: Callable[[], object]) -> None:
        wait_until(what, self.process)

    def killed(self, number: int) -> None:
        """Sends a signal, and waits until nothing runs any more; no temporary file is left."""
        assert self.is_killed(number), "it was over before"

    def is_killed(self, number: int) -> bool:
        """As :meth:`killed`; false where it came to its end before the signal reached it."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=200)
        expected = 130 if number == signal.SIGINT else -number
        assert (self.process.returncode in (0, expected), err) == (True, ""), out
        wait_until(lambda: not self.living())
        left: list[Path] = []

        def is_clean() -> bool:
            left[:] = self.temporary.rglob("*")
            return not left

        try:
            wait_until(is_clean, seconds=60)
        except AssertionError:
            pytest.fail(f"left behind: {left}")
        return self.process.returncode == expected

    def living(self) -> list[int]:
        """Processes of its session."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It has ended.
            if int(fields[3]) == self.process.pid and fields[0] != "Z":
                found.append(int(path.parent.name))
        return found


def command(directory: Path, *arguments: str) -> Run:
    return Run(directory, "-m", "rmqctl", *arguments, "--master", "local[2]")


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """``again("export", …)``: runs what was killed to its end, and gives what it prints. Nobody
    kills these, so that one session does for all."""
    session = Session("local[2]", java_environment(tmp_path_factory.mktemp("java")))

    def run(*words: str) -> str:
        code, out, err = session.run(*words)
        assert (code, err) == (0, ""), out
        return out

    yield run
    session.close()


def ctrl_c_and_kill(*every_night: signal.Signals) -> pytest.MarkDecorator:
    """Of the signals those that each run of the tests sends, too: a driver is ten seconds of
    processor time."""
    marks = dict.fromkeys(every_night, pytest.mark.nightly)
    return pytest.mark.parametrize(
        "number",
        [
            pytest.param(signal.SIGINT, id="ctrl-c", marks=marks.get(signal.SIGINT, ())),
            pytest.param(signal.SIGKILL, id="kill-9", marks=marks.get(signal.SIGKILL, ())),
        ],
    )


# That Ctrl-C leaves no staging the export's shows, and of a build the engine's own tests.
@ctrl_c_and_kill(signal.SIGINT)
def test_rebuild_in_place(
    copy_store: Callable[[str], Path], tmp_path: Path, again: Callable[..., str], number: int
) -> None:
    root = copy_store("basic")
    conf = tmp_path / "broker.conf"
    conf.write_text(golden_data.broker_conf_text("basic"))
    before = golden_data.tree_content(root)
    arguments = ["rebuild", "all", "--store", str(root), "--broker-conf", str(conf)]
    arguments += ["--in-place", "--yes"]
    run = command(tmp_path, *arguments)
    run.wait_for((root / "rmqctl-new").exists)
    run.killed(number)
    after = golden_data.tree_content(root)
    if number == signal.SIGINT:
        assert not (root / "rmqctl-new").exists()
    assert {k: v for k, v in after.items() if not k.startswith("rmqctl-new")} == before
    if number == signal.SIGKILL:
        again(*arguments)
        assert not (root / "rmqctl-new").exists()
        queues = golden_data.tree_content(root / "consumequeue")
        assert queues == {
            name.removeprefix("consumequeue/"): value
            for name, value in before.items()
            if name.startswith("consumequeue/")
        }


@pytest.mark.parametrize("seconds", [0.5, 1.5], ids=["early", "late"])
def test_ctrl_c_while_java_starts(golden: Golden, tmp_path: Path, seconds: float) -> None:
    """Java that was left alone then would never end. The moments are within its start on most
    machines; on any, nothing may be left."""
    run = command(tmp_path, "verify", "--store", str(golden("basic")))
    # PySpark makes a directory for Java's answer when it starts it.
    run.wait_for(lambda: list(run.temporary.iterdir()))
    try:
        run.process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    run.killed(signal.SIGINT)


# That a rerun takes over the staging of what was killed the import's and the build's show.
@ctrl_c_and_kill(signal.SIGKILL)
def test_export(golden: Golden, tmp_path: Path, again: Callable[..., str], number: int) -> None:
    work = tmp_path / "work"
    work.mkdir()
    to = work / "to"
    arguments = ["export", "--store", str(golden("basic")), "--to", str(to), "--format", "ndjson"]
    arguments += ["--columns", "physical_offset"]
    run = command(tmp_path, *arguments)
    run.wait_for((work / "to.rmqctl-new").exists)
    run.killed(number)
    assert not to.exists()
    if number == signal.SIGINT:
        assert list(work.iterdir()) == []
        return
    again(*arguments)
    assert [path.name for path in work.iterdir()] == ["to"]
    lines = [line for path in to.rglob("part-*") for line in path.read_text().splitlines()]
    assert len(set(lines)) == len(lines) == len(golden_data.expected("basic")["message"])


def test_import(tmp_path: Path, again: Callable[..., str]) -> None:
    source, work = tmp_path / "messages.ndjson", tmp_path / "work"
    rows = [{"topic": f"t{n % 3}", "queue_id": 0, "body": str(n)} for n in range(5000)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    work.mkdir()
    store = work / "store"
    arguments = ["import", "--store", str(store), "--from", str(source), "--input", "ndjson"]
    arguments += ["--master", "local[*]"]
    run = command(tmp_path, *arguments)
    run.wait_for((work / "store.rmqctl-new").exists)
    run.killed(signal.SIGKILL)
    assert not store.exists()
    again(*arguments)
    assert [path.name for path in work.iterdir()] == ["store"]
    findings, summary = verdict(store)
    assert (findings, summary.records) == ([], len(rows))


_STREAM = f"""
import sys
from rmqctl.spark.session import session
arguments = sys.argv[1:]
with session.session("local[2]", {{"spark.sql.shuffle.partitions": "2"}}) as spark:
    exec({STREAM!r})
"""


# In each run test_stream.py begins batches again, and goes on from a checkpoint.
@pytest.mark.nightly
def test_stream(golden: Golden, tmp_path: Path, again: Callable[..., str]) -> None:
    """Killed between two batches or within one: started again, it gives every row once."""
    root, out, checkpoint = golden("basic"), tmp_path / "out", tmp_path / "checkpoint"
    arguments = [str(root), str(out), str(checkpoint)]
    run = Run(tmp_path, "-c", _STREAM, *arguments)
    run.wait_for((checkpoint / "offsets" / "1").exists)
    run.killed(signal.SIGKILL)
    assert len(list((checkpoint / "commits").glob("[0-9]*"))) < 9
    found = json.loads(again("-c", STREAM, *arguments))
    with MessageStore(root, golden_data.broker_conf("basic")) as store:
        places = [
            entry.physical_offset
            for entry in store.commit_log.walk()
            if type(entry).__name__ == "Record"
        ]
    assert found == [[place, "unchecked"] for place in places]
