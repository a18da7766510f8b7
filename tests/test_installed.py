"""What a message says to install works from where rmqctl came."""

from __future__ import annotations

import json
import re
import shlex
import sys
from importlib import metadata, util
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqctl import installed

ROOT = Path(__file__).parents[1]
PIP = f"{shlex.quote(sys.executable)} -m pip install"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment of pip's, whatever this one is."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(util, "find_spec", lambda name: object())


@pytest.mark.parametrize(
    ("direct", "told"),
    [
        (None, "'rmqctl[spark]'"),
        ("{broken", "'rmqctl[spark]'"),
        ("[]", "'rmqctl[spark]'"),
        ({"url": ROOT.as_uri(), "dir_info": {"editable": True}}, f"-e '{ROOT}[spark]'"),
        ({"url": ROOT.as_uri(), "dir_info": {}}, f"'{ROOT}[spark]'"),
        ({"url": "file:///no/such%20clone", "dir_info": {}}, "'.[spark]'"),
        (
            {"url": "https://x/r.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            "'rmqctl[spark] @ git+https://x/r.git@ab12'",
        ),
        (
            {"url": "https://x/rmqctl-1-py3-none-any.whl", "archive_info": {}},
            "'rmqctl[spark] @ https://x/rmqctl-1-py3-none-any.whl'",
        ),
    ],
)
def test_from_where_it_came(direct: object, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = direct if isinstance(direct, str | None) else json.dumps(direct)
    found = SimpleNamespace(read_text=lambda name: text)
    monkeypatch.setattr(metadata, "distribution", lambda name: found)
    assert installed.install_command("spark") == f"{PIP} {told}"


def test_a_clone_that_was_never_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    assert installed.install_command("codecs") == f"{PIP} '{ROOT}[codecs]'"


@pytest.mark.parametrize(
    ("mark", "told"),
    [
        ("pipx_metadata.json", "pipx install --force"),
        ("uv-receipt.toml", "uv tool install --force"),
    ],
)
def test_into_a_tool_of_its_own(mark: str, told: str) -> None:
    Path(sys.prefix).mkdir()
    (Path(sys.prefix) / mark).touch()
    assert installed.install_command("spark").startswith(f"{told} ")


def test_without_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    told = installed.install_command("spark")
    assert told.startswith(f"uv pip install --python {shlex.quote(sys.executable)} ")


def test_no_page_or_message_names_a_package_that_no_index_has() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "rmqctl").rglob("*.py")]
    for path in pages:
        text = path.read_text("utf-8")
        assert not re.search(r"(pip|pipx|uv)\b[^`\n]* install[^`\n]*rmqctl\[", text), path
        for extra in re.findall(r"install '\.\[([\w-]+)\]'", text):
            assert f"\n{extra} = " in (ROOT / "pyproject.toml").read_text("utf-8"), path
