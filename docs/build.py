"""The documentation as a site, in build/site: `python3 dev.py docs`.

The pages stand in the repository so that a forge shows them. For the site they are laid out anew:

- The order is that of ``docs/README.md``: there is no second list to forget a page in.
- The first page is the project's README with that list behind it.
- CHANGELOG, CONTRIBUTING, SECURITY and LICENSE, which lie outside of ``docs``, become pages, and
  links lead where they lead in the repository. One that leads nowhere fails the build, and so does
  a page that is in no list.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SOURCES, SITE = ROOT / "build" / "site-sources", ROOT / "build" / "site"
#: Files of the repository's top, and the pages that they become.
OUTSIDE = {
    "README.md": "index.md",
    "docs/README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
}
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def lay_out() -> None:
    """Every page as Sphinx reads it, in build/site-sources."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    for path in sorted(DOCS.rglob("*.md")):
        name = path.relative_to(DOCS).as_posix()
        if name != "README.md":
            _write(name, with_links(path.read_text("utf-8"), f"docs/{name}", name))
    for source, name in OUTSIDE.items():
        if name == "index.md":
            continue
        text = (ROOT / source).read_text("utf-8")
        if not source.endswith(".md"):
            text = f"# {source.capitalize()}\n\n```text\n{text}```\n"
        _write(name, with_links(text, source, name))
    overview = (DOCS / "README.md").read_text("utf-8")
    readme = (ROOT / "README.md").read_text("utf-8")
    # The README's own, shorter list of pages makes room for the whole one.
    readme = re.sub(r"\n## Documentation\n.*?(?=\n## )", "\n", readme, flags=re.DOTALL)
    overview_page = with_links(overview, "docs/README.md", "index.md")
    _write(
        "index.md",
        with_links(readme, "README.md", "index.md")
        + overview_page.replace("# Documentation\n", "\n## Documentation\n", 1)
        + "".join(_toctree(*section) for section in sections(overview)),
    )


def _write(name: str, text: str) -> None:
    path = SOURCES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def sections(overview: str) -> list[tuple[str, list[str]]]:
    """The sections of ``docs/README.md`` and the pages that each lists, in its order; a page that
    stands twice belongs to the first."""
    found: list[tuple[str, list[str]]] = []
    seen: set[str] = set()
    for line in overview.splitlines():
        heading = re.fullmatch(r"\*\*(.+)\*\*", line)
        if heading is not None:
            found.append((heading[1], []))
        elif found and re.match(r"(-|\d+\.) ", line):
            for target in re.findall(r"\]\(([^)#]+)\)", line):
                pages = [page for page in _pages(target) if page not in seen]
                seen.update(pages)
                found[-1][1].extend(pages)
    project = [page for page in OUTSIDE.values() if page != "index.md"]
    return [*found, ("Project", project)]


def _pages(target: str) -> list[str]:
    """A page, or those of a directory, its README first."""
    if "://" in target or target.startswith("../"):
        return []
    if not target.endswith("/"):
        return [target]
    names = sorted(path.name for path in (DOCS / target).glob("*.md"))
    return [target + name for name in sorted(names, key=lambda name: name != "README.md")]


def _toctree(caption: str, pages: list[str]) -> str:
    lines = "\n".join(page.removesuffix(".md") for page in pages)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n"


def with_links(markdown: str, source: str, place: str) -> str:
    """The links of a file ``source`` of the repository, for a page ``place`` of the site."""

    def moved(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if (ROOT / path / "README.md").is_file():
            path = f"{path}/README.md"
        page = OUTSIDE.get(path, path.removeprefix("docs/"))
        return before + posixpath.relpath(page, posixpath.dirname(place) or ".") + after

    return _LINK.sub(moved, markdown)


def main(arguments: list[str]) -> int:
    from sphinx.cmd.build import main as sphinx

    lay_out()
    # Whole, as a page that is gone must not stay; a warning fails it, all of them are told first.
    shutil.rmtree(SITE, ignore_errors=True)
    strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet"]
    places = ["--conf-dir", str(DOCS), "--doctree-dir", str(ROOT / "build" / "site-trees")]
    return sphinx([*strict, *places, "-b", "html", str(SOURCES), str(SITE), *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
