"""The benchmark's ratios: of which rounds they are, what the check lets pass, and its table."""

from __future__ import annotations

import itertools
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.peer.turns import in_turns, ratio

CHECK = Path(__file__).parents[1] / "benchmarks" / "check" / "__main__.py"


@pytest.fixture(scope="module")
def check() -> dict[str, Any]:
    return runpy.run_path(str(CHECK))


def run(**ratios: float | None) -> dict[str, Any]:
    lines = [
        {"line": name, "body": 100, "engine": engine, "process": ratio, "warm": 1.0, "warm_rate": 9}
        for name, ratio in ratios.items()
        for engine in ("pure", "compiled")
    ]
    return {"version": "4.9.3", "messages": 10, "runs": 3, "lines": lines}


def test_a_ratio_that_has_fallen_is_named(check: dict[str, Any]) -> None:
    lower = check["lower"]
    assert lower(run(put=1.0, pull=2.0), run(put=1.2, pull=2.0), 0.3) == []
    told = lower(run(put=1.0), run(put=2.0, gone=5.0), 0.3)
    assert told == [f"put 100 {e}, process: 1.00, written down 2.00" for e in ("pure", "compiled")]
    assert lower(run(put=None), run(put=2.0), 0.3) == []


def test_the_table_stands_between_its_marks(check: dict[str, Any]) -> None:
    page = f"before\n{check['BEGIN']}\nold\n{check['END']}\nbehind\n"
    once = check["with_table"](page, run(put=1.5))
    assert "| put | 100 | 1.50 | 1.50 | 1.00 | 1.00 | 9 |" in once and "old" not in once
    assert once.startswith("before\n") and once.endswith("\nbehind\n")
    assert check["with_table"](once, run(put=1.5)) == once
    first = check["with_table"]("# Page\n\n## Repeat it\n", run(put=1.5))
    assert first.endswith("<!-- end of ratios -->\n\n## Repeat it\n") and "| put |" in first
    with pytest.raises(SystemExit):
        check["with_table"]("no marks", run(put=1.5))


def test_a_ratio_is_of_what_was_measured_in_the_same_turn() -> None:
    """A machine that is slower from one turn to the next is so for both sides."""
    speed = itertools.count(1)
    asked: list[str] = []

    def side(name: str, seconds: float) -> Callable[[], float]:
        def one() -> float:
            asked.append(name)
            return seconds * (next(speed) + 1 >> 1)

        return one

    seconds = in_turns({"engine": side("engine", 3.0), "own": side("own", 1.5)}, 4)
    assert asked == ["engine", "own"] * 4
    assert seconds == {"engine": [3.0, 6.0, 9.0, 12.0], "own": [1.5, 3.0, 4.5, 6.0]}
    assert ratio(seconds["engine"], seconds["own"]) == 2.0
    # The median of the ratios, not the ratio of the medians; turns of one side alone say nothing.
    assert ratio([4.0, 1.0, 9.0], [1.0, 2.0, 3.0]) == 3.0
    assert ratio([4.0, 1.0, 9.0, 50.0], [1.0, 2.0, 3.0]) == 3.0
