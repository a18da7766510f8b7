"""What is looked at before a start has been through anything: rmqctl's own errors, or an answer."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

from rmqctl.errors import RmqctlError
from rmqctl.operations.doctor import checkpoint
from rmqctl.operations.doctor.lint import Limits, Summary, lint
from rmqctl.operations.doctor.simulatestart import simulate_start
from rmqctl.operations.doctor.startrows import rows, summary_row
from tests.golden_data import state
from tests.seeds import times
from tests.test_operations.small_store import CONFIG, make_small_store

BORDERS = [0, 1, 19, 20, 91, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
NAMES = ("x", "-5", "0" * 20, "9" * 20, f"{1 << 39:020d}")
STORES = 40


def ruin(root: Path, chance: random.Random) -> None:
    """Does one thing to a file, or puts one beside it."""
    path = chance.choice(sorted(path for path in root.rglob("*") if path.is_file()))
    data = bytearray(path.read_bytes())
    kind = chance.choice(("bit", "field", "noise", "cut", "gone", "swap", "stranger"))
    at = chance.randrange(max(len(data), 1))
    if kind == "bit" and data:
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "field":
        data[at : at + 8] = chance.choice(BORDERS).to_bytes(8, "big")[: len(data) - at]
    elif kind == "noise":
        data[at : at + 40] = chance.randbytes(len(data[at : at + 40]))
    elif kind == "cut":
        del data[at:]
    elif kind == "swap":
        other = chance.choice(sorted(root.rglob("0*")))
        if other.is_file():
            data, mine = bytearray(other.read_bytes()), data
            other.write_bytes(mine)
    if kind == "gone":
        path.unlink()
    else:
        target = path.with_name(chance.choice(NAMES)) if kind == "stranger" else path
        target.write_bytes(data)


def test_no_store_is_too_ruined(tmp_path: Path, chance: random.Random) -> None:
    sound = make_small_store(tmp_path / "sound")
    for number in range(times(STORES)):
        root = shutil.copytree(sound, tmp_path / "store")
        for _ in range(chance.choice((1, 1, 2, 5))):
            ruin(root, chance)
        if chance.random() < 0.5:
            (root / "abort").touch()
        before = state(root)
        for version in ("4.9.3", "5.3.3"):
            with suppress(RmqctlError):
                done = simulate_start(root, CONFIG, version=version, percent=50, at=number)
                assert list(rows(done)) and summary_row(done)["messages_lost"] >= 0
        with suppress(RmqctlError):
            assert list(checkpoint.rows(checkpoint.show(root, CONFIG)))
            list(lint(root, CONFIG, Summary(), Limits(None, None)))
        assert state(root) == before
        shutil.rmtree(root)
