"""``fleet --state``, killed at any place of its way: in the end there is one row a store."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import processes

#: Dies at the Nth row that it keeps: before its file is begun, in the middle of it, when it is
#: written and has not its name, or when it has.
DYING = """
import io, os, signal, sys
from rmqctl.arrow import rowfiles
from rmqctl.cli.main import run

place, left = sys.argv[1], int(sys.argv[2])
write = rowfiles.pq.write_table
replace = rowfiles.Path.replace

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def dying_write(table, file, **more):
    global left
    left -= 1
    if left == 0 and place == "before":
        die()
    if left == 0 and place == "amid":
        whole = io.BytesIO()
        write(table, whole, **more)
        file.write(whole.getvalue()[: len(whole.getvalue()) // 2])
        file.flush()
        die()
    write(table, file, **more)

def dying_replace(self, path):
    if left == 0 and place == "written":
        die()
    replace(self, path)
    if left == 0 and place == "named":
        die()

rowfiles.pq.write_table = dying_write
rowfiles.Path.replace = dying_replace
sys.exit(run(sys.argv[3:]))
"""
PLACES = ("before", "amid", "written", "named")
NAMES = ("basic", "crash", "delay", "ipv6", "timer", "transaction")


def rows_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_one_row_a_store_after_any_kills(
    golden: Callable[[str], Path], tmp_path: Path, chance: random.Random
) -> None:
    lines = [f"{name}={golden(name)}" for name in NAMES]
    (tmp_path / "list").write_text("\n".join([*lines, f"none={tmp_path}"]) + "\n")
    line = ["fleet", "stats", "--stores", str(tmp_path / "list"), "--jobs", "1"]
    line += ["--format", "ndjson"]
    state = [*line, "--state", str(tmp_path / "state")]
    directory = tmp_path / "state" / "stats"
    places = [*PLACES, chance.choice(PLACES)]
    chance.shuffle(places)
    for place in places:
        known = len(list(directory.glob("*.parquet")))
        left = len(NAMES) - known
        at = chance.randint(1, min(left, 2))
        done = processes.run("-c", DYING, place, str(at), *state)
        assert done.returncode == -signal.SIGKILL, (place, at, done.stderr)
        kept = len(list(directory.glob("*.parquet")))
        assert kept == known + at - (place != "named")
        if kept == len(NAMES):
            break
    last, whole = processes.run("rmqctl", *state), processes.run("rmqctl", *line)
    assert (last.returncode, last.stderr) == (3, "") == (whole.returncode, whole.stderr)
    rows, expected = rows_of(last.stdout), rows_of(whole.stdout)
    assert sum(row["kept"] for row in rows[:-1]) == rows[-1]["kept"] == kept
    for row, other in zip(rows[:-1], expected[:-1], strict=True):
        assert {**row, "seconds": 0, "kept": False} == {**other, "seconds": 0}
    files = sorted(path.name for path in directory.iterdir())
    assert len(files) == len(NAMES) and not any(name.startswith(".") for name in files)

    import pyarrow.parquet as pq

    names = pq.read_table(directory).column("store").to_pylist()
    assert sorted(names) == sorted(NAMES)
    again = rows_of(processes.run("rmqctl", *state).stdout)
    assert again[-1]["kept"] == len(NAMES)
