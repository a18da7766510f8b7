"""The benchmark's check of ratios: what it lets pass, and the table that it writes."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

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
