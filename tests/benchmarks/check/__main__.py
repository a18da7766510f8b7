"""Compares the ratios of one run of ``peer`` with those in ``ratios.json``.

``python tests/benchmarks/check RESULTS``, where RESULTS is the file that ``peer --results`` wrote,
fails when a ratio of rmqctl to the real engine is lower than the one in ``ratios.json`` by more
than the margin. With ``--write`` the run's ratios replace those in ``ratios.json``, and the table
in ``docs/explanation/performance.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
RATIOS = Path(__file__).resolve().parent / "ratios.json"
PAGE = ROOT / "docs/explanation/performance.md"
BEGIN, END = "<!-- ratios: python tests/benchmarks/check --write -->", "<!-- end of ratios -->"
#: The heading that follows the table.
BEFORE = "## Repeat it"
#: By how much a ratio may be lower: other work on the machine slows both sides, but not alike.
MARGIN = 0.35

Line = dict[str, Any]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("results", type=Path)
    arguments.add_argument("--margin", type=float, default=MARGIN)
    arguments.add_argument("--write", action="store_true")
    options = arguments.parse_args()
    found = json.loads(options.results.read_text("utf-8"))
    if options.write:
        RATIOS.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        PAGE.write_text(with_table(PAGE.read_text("utf-8"), found), "utf-8")
        return 0
    if not RATIOS.exists():
        sys.exit(f"check: nothing is written down in {RATIOS}: run it with --write once.")
    fallen = list(lower(found, json.loads(RATIOS.read_text("utf-8")), options.margin))
    for told in fallen:
        print(told)
    print(f"{len(fallen)} ratios are lower than written down by more than {options.margin:.0%}")
    return int(bool(fallen))


def lower(found: dict[str, Any], written: dict[str, Any], margin: float) -> list[str]:
    """What has become slower, of the lines that are in both."""
    told = []
    now = {_key(line): line for line in found["lines"]}
    for before in written["lines"]:
        line = now.get(_key(before))
        for kind in ("process", "warm") if line is not None else ():
            old, new = before[kind], line[kind] if line else None
            if old is not None and new is not None and new < old * (1 - margin):
                name = " ".join(map(str, _key(before)))
                told.append(f"{name}, {kind}: {new:.2f}, written down {old:.2f}")
    return told


def _key(line: Line) -> tuple[str, int, str]:
    return line["line"], line["body"], line["engine"]


def with_table(page: str, found: dict[str, Any]) -> str:
    """The page with the table of these ratios between its marks; a page without marks gets both in
    front of :data:`BEFORE`."""
    if BEGIN not in page:
        page = page.replace(BEFORE, f"{BEGIN}{END}\n\n{BEFORE}", 1)
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        sys.exit(f"check: {PAGE} has no place for the table, {BEFORE!r} or {END!r}")
    return f"{before}{BEGIN}\n\n{table(found)}\n{END}{after}"


def table(found: dict[str, Any]) -> str:
    """The ratios as a table, with a row for each job and size of bodies."""
    rows: dict[tuple[str, int], dict[str, Line]] = {}
    for line in found["lines"]:
        rows.setdefault((line["line"], line["body"]), {})[line["engine"]] = line
    lines = [
        f"{found['messages']:,} messages, RocketMQ {found['version']}, medians of {found['runs']}; "
        "rmqctl's rate as a multiple of the engine's, and things a second warm.",
        "",
        "| work | bytes of a body | process, pure | process, compiled | warm, pure "
        "| warm, compiled | a second, warm |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, body), engines in rows.items():
        best = engines.get("compiled") or engines["pure"]
        cells = [_shown(engines.get(e), kind) for kind in ("process", "warm") for e in _ENGINES]
        size = f"{body:,}" if body else "–"
        lines.append(f"| {name} | {size} | {' | '.join(cells)} | {best['warm_rate']:,.0f} |")
    return "\n".join(lines) + "\n"


_ENGINES = ("pure", "compiled")


def _shown(line: Line | None, kind: str) -> str:
    return "–" if line is None or line[kind] is None else f"{line[kind]:.2f}"


if __name__ == "__main__":
    sys.exit(main())
