"""The types of rows: each is declared here once, field by field.

Commands build their rows as plain dicts of these types, and mypy compares the names and types of
the fields. The reference pages and the columns of the Spark source are made from the declarations.
So a new field takes one line here, and one where the row is built.

Nothing here reads a store. Code that only prints rows need not import this at run time.
"""

from collections.abc import Mapping
from typing import Any

#: Any row; its ``type`` says which.
Row = Mapping[str, Any]
