"""The names of the views of ``sql``. Checks the names in a query before Spark is started, which
takes seconds."""

from __future__ import annotations

import re
from typing import NamedTuple

from rmqctl.errors import UsageError

#: The views that are structures of the data source. The view ``queues`` is made from the stores.
VIEWS = {"messages": "commitlog", "units": "queue", "index_items": "index"}
NAMES = (*VIEWS, "queues")

_TOKEN = re.compile(
    r"""(?P<passed>\s+|--[^\n]*|/\*.*?\*/|[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|`(?P<quoted>(?:[^`]|``)*)`|(?P<word>[A-Za-z_]\w*)|(?P<other>.)""",
    re.DOTALL,
)
#: Words after which FROM may be followed by something else, or which define names in the query.
_NOT_KNOWN = frozenset({"WITH", "EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY", "DISTINCT"})
#: Words that may follow FROM or JOIN, and are not names.
_NO_NAMES = frozenset({"LATERAL", "VALUES", "TABLE", "STREAM", "ONLY", "SELECT", "UNNEST"})


class _Word(NamedTuple):
    """A word of a query. ``keyword`` is empty if it cannot be a keyword."""

    text: str
    keyword: str


def check_views(query: str) -> None:
    """Checks the plain names after FROM and JOIN. Queries that are too complex for this, or that
    may define names, are left to Spark.

    :raises UsageError: a name is not a view.
    """
    words = list(_words(query))
    keywords = {word.keyword for word in words}
    if not words or words[0].keyword != "SELECT" or keywords & _NOT_KNOWN:
        return
    for number, word in enumerate(words[:-1]):
        if word.keyword not in ("FROM", "JOIN"):
            continue
        name = words[number + 1]
        behind = words[number + 2].text if number + 2 < len(words) else ""
        is_plain = re.fullmatch(r"\w+", name.text, re.ASCII) and not name.text.isdigit()
        if not is_plain or name.keyword in _NO_NAMES or behind in (".", "("):
            continue
        if name.text.lower() not in NAMES:
            raise no_view(name.text)


def no_view(name: str) -> UsageError:
    """The error for a name that is not a view."""
    return UsageError(reason=f"there is no view {name}: there are {', '.join(NAMES)}.")


def _words(query: str) -> list[_Word]:
    """The words of a query, without blanks, comments and strings."""
    words = []
    for found in _TOKEN.finditer(query):
        if found["quoted"] is not None:
            words.append(_Word(found["quoted"].replace("``", "`"), ""))
        elif found["passed"] is None:
            words.append(_Word(found[0], found[0].upper() if found["word"] else ""))
    return words
