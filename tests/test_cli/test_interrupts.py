"""Ctrl-C ends a command at once, also where nobody reads what it prints."""

from __future__ import annotations

import array
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.test_cli.conftest import store

__all__ = ["store"]

PAGE = 4096
#: A run in the background ignores Ctrl-C, and hands that down. Of few rows there are many blocks.
START = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from rmqctl.cli import sink; sink._BUFFER_BYTES = 512; "
    "from rmqctl.__main__ import main; main()"
)


def waits_to_write(process: subprocess.Popen[bytes], pipe: int) -> bool:
    """Whether the pipe takes no more, and the process is asleep."""
    inside = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, inside)
    state = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return inside[0] > PAGE // 2 and state == "S"


@pytest.mark.parametrize("form", ["ndjson", "table", "csv"])
@pytest.mark.parametrize("line", [("walk", "commitlog"), ("verify",)], ids=["rows", "findings"])
def test_one_ctrl_c_is_enough_where_nobody_reads(
    store: Path, line: tuple[str, ...], form: str
) -> None:
    if line == ("verify",):
        for queue in (store / "consumequeue/orders").iterdir():
            for file in queue.iterdir():  # Units of no message, one finding each.
                file.write_bytes(bytes(19) + b"\1" + file.read_bytes()[20:])
        for number in range(200):
            (store / "commitlog" / f"foreign-{number}").touch()
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PAGE)
    whole = [sys.executable, "-c", START, *line, "--format", form, "--store", str(store)]
    with subprocess.Popen(whole, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        asleep = 0
        while asleep < 3:
            assert process.poll() is None
            asleep = asleep + 1 if waits_to_write(process, reading) else 0
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 130
        finally:
            process.kill()
        assert process.stderr is not None and b"Traceback" not in process.stderr.read()
    os.close(reading)


def interrupted_by_its_finding(store: Path, form: str) -> list[str]:
    """``verify`` of which the interrupt comes between two findings."""
    (store / "commitlog/foreign").touch()
    stop = (
        "import os; from rmqctl.cli import findings; add = findings.FindingsReport.add; "
        "findings.FindingsReport.add = lambda *a, **k: (add(*a, **k), os.kill(os.getpid(), 2)); "
    )
    code = START.replace("512", "2048").replace(
        "from rmqctl.__main__", stop + "from rmqctl.__main__"
    )
    return [sys.executable, "-c", code, "verify", "--format", form, "--store", str(store)]


def test_what_was_found_is_still_told_to_who_reads(store: Path) -> None:
    done = subprocess.run(
        interrupted_by_its_finding(store, "table"), capture_output=True, timeout=60
    )
    assert done.returncode == 130
    assert b"not finished; so far 1 error: foreign-file" in done.stdout


@pytest.mark.parametrize("form", ["ndjson", "table"])
def test_what_was_found_does_not_wait_for_who_does_not_read(store: Path, form: str) -> None:
    reading, writing = os.pipe()
    os.write(writing, bytes(fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PAGE)))
    line = interrupted_by_its_finding(store, form)
    assert subprocess.run(line, stdout=writing, timeout=20).returncode == 130
    os.close(reading)
    os.close(writing)


def test_ctrl_c_before_a_command_begins_is_quiet() -> None:
    """Between the imports and the command there are some steps."""
    stop = "from rmqctl.cli import main as of; of.run = lambda: signal.raise_signal(2); "
    code = START.replace("from rmqctl.__main__", stop + "from rmqctl.__main__")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_over_a_fleet_ends_with_its_processes(
    store: Path, tmp_path: Path, number: signal.Signals
) -> None:
    shutil.copytree(store, tmp_path / "other")
    stores = tmp_path / "stores.txt"
    stores.write_text(f"{store}\n{tmp_path / 'other'}\n")
    stop = (
        "import os; from rmqctl.cli.commands import fleet; of = fleet._counted; "
        f"told = lambda one: (os.kill(os.getpid(), {int(number)}), one)[1]; "
        "fleet._counted = lambda *a: map(told, of(*a)); "
    )
    code = START.replace("from rmqctl.__main__", stop + "from rmqctl.__main__")
    line = [sys.executable, "-c", code, "fleet", "du", "--stores", str(stores), "--jobs", "2"]
    done = subprocess.run(line, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, b"")


def test_a_ctrl_c_is_enough_where_a_url_does_not_answer() -> None:
    """S3 asks for a minute and a half, Google Cloud for a quarter of an hour."""
    pytest.importorskip("pyarrow.fs", reason="pip install '.[spark]'")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        place = f"127.0.0.1:{server.getsockname()[1]}&scheme=http"
        url = f"s3://a/store?endpoint_override={place}"
        whole = [sys.executable, "-c", START, "fleet", "du", "--stores", url]
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "c"}
        with subprocess.Popen(whole, env=os.environ | keys, stderr=subprocess.PIPE) as process:
            asked, _ = server.accept()
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(60) == 130
            finally:
                process.kill()
            asked.close()
            assert process.stderr is not None and b"Traceback" not in process.stderr.read()
