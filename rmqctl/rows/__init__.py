"""What every row holds: each type of row is declared here once, field by field.

Commands build their rows as plain dicts of these types, and mypy compares the names and types of
fields. The reference pages and the columns of the Spark source follow from the declarations: a new
field of a row is a line here and one where the row is built.

Nothing here knows a store. Programs that only print rows need no import of this at run time.
"""

from collections.abc import Mapping
from typing import Any

#: Any row; its ``type`` says which.
Row = Mapping[str, Any]
