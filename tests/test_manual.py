"""The manual pages say what ``--help`` says, and are what man takes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rmqctl.cli.command import EXIT_CODES
from rmqctl.cli.main import cli
from rmqctl.reference import man
from tests.test_cli.test_manners import commands

ROOT = Path(__file__).parents[1]
PAGES = man.pages()


def plain(page: str) -> str:
    """A page without roff's escapes."""
    page = re.sub(r"\\\[u([0-9A-F]{4,6})\]", lambda found: chr(int(found[1], 16)), page)
    for escape, char in ((r"\-", "-"), (r"\(aq", "'"), (r"\(dq", '"'), (r"\(ti", "~"), (r"\&", "")):
        page = page.replace(escape, char)
    return page.replace(r"\(ga", "`").replace(r"\(ha", "^").replace(r"\e", "\\")


def test_every_command_has_a_page_with_its_options_and_examples() -> None:
    found = {".".join(["-".join(["rmqctl", *path]), "1"]): one for path, one in commands(cli)}
    found["rmqctl.1"] = cli
    assert set(PAGES) == {name for name, command in found.items() if not command.hidden}
    for name, page in PAGES.items():
        command, text = found[name], plain(page)
        for param in command.params:
            if param.param_type_name == "option" and not getattr(param, "hidden", False):
                assert all(option in text for option in param.opts), (name, param.opts)
        for example in getattr(command, "examples", ()):
            assert example in text, (name, example)
        assert "\\fB-h, --help\\fR" in text and ".SH EXIT STATUS" in text


def test_the_first_page_has_what_all_share() -> None:
    text = plain(PAGES["rmqctl.1"])
    assert all(f"\\fB{code}\\fR\n{told}" in text for code, told in EXIT_CODES.items())
    assert ".SS Inspect (never writes)\n.TP\n" in text and "rmqctl-walk (1)" in text
    assert "~/.config/rmqctl/config.toml" in text
    sources = [path.read_text("utf-8") for path in (ROOT / "rmqctl").rglob("*.py")]
    # Neither those that only the build and the shell know.
    variables = {name for text in sources for name in re.findall(r'"(RMQCTL_[A-Z_]+)"', text)}
    assert variables and all(name in text for name in variables)


def test_a_page_is_ascii_and_no_text_is_a_request() -> None:
    for name, page in PAGES.items():
        assert page.isascii(), name
        for line in page.splitlines():
            known = (".TH ", ".SH ", ".SS ", ".PP", ".TP", ".EX", ".EE", ".BR ")
            assert not line.startswith("'") and (line[:1] != "." or line.startswith(known)), line
    assert man._text(".hidden\n'quoted") == "\\&.hidden \\(aqquoted"
    assert man._escaped("a-b … \\ 'x'") == "a\\-b \\[u2026] \\e \\(aqx\\(aq"


def test_man_renders_them_without_a_word(tmp_path: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    assert man.main([str(tmp_path / "man1")]) == 0
    pages = sorted((tmp_path / "man1").iterdir())
    assert len(pages) == len(PAGES)
    line = [groff, "-ww", "-man", "-Tutf8", "-P-c", *map(str, pages)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    shown = re.sub(".\x08", "", done.stdout)  # Bold is a character struck twice.
    assert "rmqctl walk commitlog [OPTIONS]" in shown
    assert "\n       rmqctl queues --store DIR\n" in shown
