"""How rmqctl was installed, and the command that adds an extra of it in the same place.

It may come from a clone, from a wheel, from a repository or from an index, with pip, pipx or uv;
what pip notes of that (``direct_url.json``, PEP 610) is what a message names.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata, util
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import unquote, urlsplit

_TOP = Path(__file__).parents[1]


def install_command(extra: str) -> str:
    """The command line that installs rmqctl with an extra where this one runs."""
    options, target = _target(extra)
    return " ".join([_installer(), *options, quote(target)])


def _installer() -> str:
    """What installs into this environment."""
    python = quote(sys.executable or "python3")
    if (Path(sys.prefix) / "pipx_metadata.json").exists():
        return "pipx install --force"
    if (Path(sys.prefix) / "uv-receipt.toml").exists():
        return "uv tool install --force"
    if util.find_spec("pip") is None:
        return f"uv pip install --python {python}"
    return f"{python} -m pip install"


def _target(extra: str) -> tuple[list[str], str]:
    """Options, and what is to be installed: the same rmqctl from where it came."""
    direct = _direct_url()
    url, name = str(direct.get("url", "")), f"rmqctl[{extra}]"
    if "vcs_info" in direct:
        vcs = direct["vcs_info"]
        return [], f"{name} @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    if not url.startswith("file:"):
        return [], f"{name} @ {url}" if url else name
    path = Path(unquote(urlsplit(url).path))
    if not path.exists():
        # It was removed since; a clone of it will do.
        return [], f".[{extra}]"
    editable = direct.get("dir_info", {}).get("editable", False)
    return ["-e"] if editable else [], f"{path}[{extra}]"


def _direct_url() -> dict[str, Any]:
    """Where this rmqctl was installed from; empty for one of an index."""
    here = {"url": _TOP.as_uri(), "dir_info": {}}
    try:
        found = metadata.distribution("rmqctl").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return here  # It runs from a clone as it is.
    try:
        direct = json.loads(found or "{}")
    except ValueError:
        direct = {}
    return direct if isinstance(direct, dict) else {}
