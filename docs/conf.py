"""How Sphinx makes a site of the pages; `python3 dev.py docs` lays them out (build.py) and runs it.

Why Sphinx and these packages: docs/decisions/0003-runtime-dependencies.md
"""

import os
from pathlib import Path

from rmqctl import __version__

project = "rmqctl"
author = copyright = "the rmqctl contributors"
version = release = __version__

extensions = ["myst_parser", "sphinx_copybutton"]
# Headings get the names that a forge gives them, so one link holds in both.
myst_heading_anchors = 6
# Code blocks show files and sessions of every kind: what a lexer makes of them is no error.
suppress_warnings = ["misc.highlighting_failure"]
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = f"rmqctl {version}"
html_show_sourcelink = html_copy_source = html_show_sphinx = False
html_static_path = [str(Path(__file__).parent / "_static")]
html_css_files = ["site.css"]
templates_path = [str(Path(__file__).parent / "_templates")]
#: The versions whose sites lie beside this one, which say so to whoever builds them all.
VERSIONS = os.environ.get("RMQCTL_DOCS_VERSIONS", "").split()
html_context = {"versions": VERSIONS}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "versions.html",
        "sidebar/scroll-end.html",
    ]
}
