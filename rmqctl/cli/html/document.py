"""The HTML document around a page, and writing it to a file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from rmqctl.cli.html.parts import text
from rmqctl.cli.outside import check_place
from rmqctl.engine.files.durable import write_whole
from rmqctl.engine.files.paths import resolved


def document(title: str, body: str, styles: Sequence[str], scripts: Sequence[str] = ()) -> str:
    """A whole page. Its content security policy lets only ``scripts`` run, and nothing be loaded:
    whatever a store holds, nothing of it runs or calls home.

    :param title: text, which is escaped. :param body: HTML. :param styles: style sheets behind the
        common one.
    """
    allowed = f"script-src {' '.join(map(_hash, scripts))}; " if scripts else ""
    styled = "\n".join([part("base.css", __package__), *styles])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; "
        f"{allowed}base-uri 'none'; form-action 'none'\">\n"
        f"<title>{text(title)}</title>\n<style>{styled}</style>\n</head>\n<body>\n{body}"
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body>\n</html>\n"
    )


def part(name: str, package: str | None) -> str:
    """A file that lies beside the modules of a package."""
    return files(package or "").joinpath(name).read_text("utf-8")


def made() -> str:
    """The time at which a page is made, in words."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def write(path: Path, page: str) -> None:
    """Writes a page to a file, which appears when it is whole. A link stays one: its target is
    replaced.

    :raises CannotWrite, StoreReadOnly: it cannot be written.
    """
    check_place(path)
    write_whole(resolved(path), page.encode("utf-8", errors="backslashreplace"))


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
