"""Writes every file that follows from the code: the pages of ``docs/reference``, the layouts.

``python -m rmqctl.reference`` writes them, ``--check`` only compares and exits with 1 on a
difference. What follows from the schemas alone, ``python -m formats.generate`` writes too.
"""

import argparse
import sys
from pathlib import Path

from formats import generate
from rmqctl.reference import api, findings, rows

PAGES = generate.ROOT / "docs" / "reference"


def generated_files() -> dict[Path, str]:
    """The text of every generated file by its path."""
    pages = {"api.md": api.page(), "findings.md": findings.page(), **rows.pages()}
    return generate.generated_files() | {PAGES / name: text for name, text in pages.items()}


def main(arguments: list[str] | None = None) -> int:
    """Writes the generated files, or compares them; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m rmqctl.reference", description="Write what follows from the code."
    )
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args(arguments).check
    return generate.write_or_compare(generated_files(), "rmqctl.reference", check=check)


if __name__ == "__main__":
    sys.exit(main())
