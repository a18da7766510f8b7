"""A headless browser, for the tests of the HTML pages that rmqctl writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str:
    """The path of the browser. Without one the test is skipped; with RMQCTL_BROWSER=require (as in
    CI) it fails."""
    found = [path for name in BROWSERS if (path := shutil.which(name))]
    if not found:
        reason = f"there is no browser to open the page with: {', '.join(BROWSERS)}"
        if os.environ.get("RMQCTL_BROWSER") == "require":
            pytest.fail(reason)
        pytest.skip(reason)
    return found[0]


def opened(browser: str, path: Path, *options: str) -> str:
    """The document that the browser makes of a page."""
    command = [
        browser,
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        f"--user-data-dir={path.parent / 'profile'}",
        *options,
    ]
    # The browser keeps settings in the home directory, or else in the working directory.
    environment = os.environ | {"HOME": str(path.parent)}
    done = subprocess.run(
        [*command, "--dump-dom", path.as_uri()],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    return done.stdout


def with_script(text: str, script: str) -> str:
    """The page with a script of the test added. The page's own policy would refuse it."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    return text.replace("</body>", f"<script>{script}</script></body>")
