"""The page of ``fleet --report``: words of a store are text, it is bounded, it fits any window."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.fleetpage import page
from rmqctl.operations.fleet.looking import VERBS, row
from rmqctl.operations.fleet.stores import FleetStore
from rmqctl.operations.fleet.sums import Sums
from rmqctl.rows import Row
from tests.browser import find_browser, opened, with_script
from tests.test_cli.conftest import NASTY, Cli

SCRIPT = "<script>alert(1)</script>"
HOUR = 3_600_000


def fleet(verb: str, names: list[str]) -> tuple[list[Row], dict[str, Any]]:
    """Rows as of stores that are sound, not sound, and not to be read, by turns."""
    rows: list[Row] = []
    sums = Sums(verb)
    for number, name in enumerate(names):
        path = f"/data/{name}/store"
        store = FleetStore(name, path, path)
        known: dict[str, Any] = dict.fromkeys(VERBS[verb], number)
        known |= {"records": number * 1000, "bytes": number << 20}
        known |= {"first_store_timestamp": number * HOUR, "last_store_timestamp": 1 << 62}
        if "worst" in known:
            known["worst"] = "body-crc-mismatch"
        if number % 3 == 1:
            known["exit_code"] = 1
        elif number % 3 == 2:
            known = {"exit_code": 5, "error": f"cannot read {path}: {SCRIPT}. Run `rmqctl verify`."}
        rows.append(row(store, verb, 0.0, **known))
        sums.add(rows[-1])
    return rows, sums.summary()


@pytest.mark.parametrize("verb", VERBS)
def test_words_of_stores_are_text(verb: str) -> None:
    rows, summary = fleet(verb, [f"{SCRIPT}{NASTY}{number}" for number in range(7)])
    text = page(rows, summary, verb)
    assert "<script" not in text and not set("\x1b\x07\x9b\u202e") & set(text)
    assert "&lt;script&gt;alert(1)" in text and "\\x1b[31mred" in text
    assert "3 of 7 stores are sound, 2 are not, 2 could not be read." in text
    assert "<code>rmqctl verify</code>" in text
    assert "default-src 'none'; style-src 'unsafe-inline'; base-uri" in text
    # Three tables of verify, two of the others, with a row for each store that is meant.
    heads = 3 if verb == "verify" else 2
    assert text.count("<tr>") == heads + 7 + 2 + (2 if verb == "verify" else 0)


def test_a_page_of_very_many_stores_is_bounded() -> None:
    rows, summary = fleet("verify", [f"{'long' * 300}{number}" for number in range(6000)])
    text = page(rows, summary, "verify")
    assert len(text) < 16 << 20
    assert "1,000 more, in the rows of the command." in text


def test_the_command_writes_it(cli: Cli, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "fleet.html"
    done = cli("fleet", "stats", "--stores", store, "--jobs", "1", "--report", path)
    assert (done.code, done.err) == (0, "")
    assert "1 of 1 stores are sound." in path.read_text("utf-8")
    done = cli("fleet", "stats", "--stores", store, "--report", tmp_path / "no" / "fleet.html")
    assert done.code == 5 and "there is no directory for it" in done.err and not done.out


#: This script is the test's: what is wider than the window or its card, and how many rows of tiles
#: there are.
MEASURE = """
const wide = [...document.querySelectorAll('html, section, .tiles div')].filter(
  (one) => one.scrollWidth > one.clientWidth + 1);
const tops = new Set([...document.querySelectorAll('.tiles div')].map((one) => one.offsetTop));
parent.told = [...(parent.told || []), [innerWidth, wide.length ? 'too wide' : 'fits', tops.size,
  document.querySelectorAll('script').length, document.querySelectorAll('img').length].join(' ')];
parent.document.title = parent.told.sort().join(' | ');
"""


def test_a_browser_shows_it_narrow_and_wide(tmp_path: Path) -> None:
    browser, frame = find_browser(), tmp_path / "page.html"
    names = ["broker-a", "x" * 200, NASTY, "<img src=x>", *(f"broker-{n}" for n in range(40))]
    frame.write_text(with_script(page(*fleet("verify", names), "verify"), MEASURE), "utf-8")
    path = tmp_path / "frames.html"
    path.write_text(
        "".join(
            f'<iframe width="{width}" height="900" style="border:0" src="{frame.as_uri()}">'
            "</iframe>"
            for width in (360, 1300)
        )
    )
    shown = opened(
        browser,
        path,
        *("--allow-file-access-from-files", "--disable-web-security", "--window-size=1800,900"),
    )
    found = re.search("<title>(.*?)</title>", shown)
    # The only script is the test's.
    assert found is not None and found[1] == "1300 fits 2 1 0 | 360 fits 4 1 0"
