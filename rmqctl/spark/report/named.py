"""Which columns a query names. Spark does not tell a Python source; the plan of a query does.

So a query is planned once over everything, and then made again over the columns that it names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqctl.rows.columns import STRUCTURES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def over_named_columns(
    build: Callable[[DataFrame], DataFrame],
    structure: str,
    scanned: Callable[[list[str]], DataFrame],
) -> DataFrame:
    """What ``build`` makes of a scan of those columns of a structure that it names.

    It is called twice. What it makes of all columns stays where the plan is out of reach (Spark
    Connect), and where it cannot do with fewer: it asks for one that its plan does without, as
    behind a condition that is false.
    """
    offered = [column.name for column in STRUCTURES[structure]]
    result = build(scanned(offered))
    named = named_columns(result)
    if named is None or named.issuperset(offered):
        return result
    # A count needs a column, too: a narrow one.
    wanted = [name for name in offered if name in named] or offered[:1]
    try:
        narrow = build(_in_their_places(scanned(wanted), offered))
    except Exception:
        # All columns were enough for it, so nothing else can be wrong than that some are not there.
        return result
    return narrow if narrow.schema == result.schema else result


def _in_their_places(rows: DataFrame, offered: list[str]) -> DataFrame:
    """Rows with something for each column that they lack, of a name that nobody asks for: who takes
    columns by number gets the ones that are meant."""
    from pyspark.sql import functions

    there = set(rows.columns)
    return rows.select(
        *(
            functions.col(name) if name in there else functions.lit(None).alias(f"({name})")
            for name in offered
        )
    )


def named_columns(result: DataFrame) -> set[str] | None:
    """Every column name in the optimised plan, in small letters, for a query may write them as it
    likes, but those that the source only offers; None where the plan is out of reach (Spark
    Connect)."""
    frame = getattr(result, "_jdf", None)
    if frame is None:
        return None
    names: set[str] = set()
    nodes = [frame.queryExecution().optimizedPlan()]
    while nodes:
        node = nodes.pop()
        inner = node.subqueries()
        nodes += [inner.apply(n) for n in range(inner.size())]
        children = node.children()
        if children.isEmpty():
            continue
        named = [node.references().toSeq()]
        if node.nodeName() in ("Project", "Aggregate"):
            named.append(node.output())  # Others pass on what they get, asked for or not.
        for attributes in named:
            names.update(attributes.apply(n).name() for n in range(attributes.size()))
        nodes += [children.apply(n) for n in range(children.size())]
    return {name.lower() for name in names.union(result.columns)}
