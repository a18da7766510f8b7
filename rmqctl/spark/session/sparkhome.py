"""Spark's directory as a local session is to see it: without the zip of PySpark's sources.

Spark puts ``python/lib/pyspark.zip`` of ``SPARK_HOME`` in front of all that its Python processes
import. Python keeps nothing compiled in a zip: each of the five to eight processes that a first
query starts would compile PySpark anew, half a second of processor time. The workers of a local
session are this Python, which has the same PySpark, compiled, among its own packages.
"""

from __future__ import annotations

import os
import site
from pathlib import Path

from rmqctl.engine.files.owndirectory import OwnDirectory

#: What of it is Python: the zip and PySpark's sources.
_LEFT_OUT = "python"
#: The directories of links that this process has, by path.
_links: dict[str, OwnDirectory] = {}


def links_to_spark() -> str | None:
    """A new directory of links to what Spark consists of but for its Python, for
    :func:`remove_links` when Java has ended; None where workers might not find this PySpark without
    the zip, or somebody has chosen ``SPARK_HOME``. What a kill of both has left goes first."""
    home = _own_spark()
    if home is None:
        return None
    own = OwnDirectory("rmqctl-spark-home-")
    links = str(own.path)
    _links[links] = own
    try:
        for entry in home.iterdir():
            # Packages of PySpark have nothing that Java reads.
            if entry.is_dir() and entry.name != _LEFT_OUT and not (entry / "__init__.py").exists():
                Path(links, entry.name).symlink_to(entry)
    except BaseException:
        remove_links(links)
        raise
    return links


def remove_links(links: str) -> None:
    """Removes a directory of :func:`links_to_spark`; of others nothing."""
    own = _links.pop(links, None)
    if own is not None:
        own.remove()


def _own_spark() -> Path | None:
    """The Spark that came with PySpark, when any start of this Python finds PySpark and py4j."""
    import py4j
    import pyspark

    if "SPARK_HOME" in os.environ:
        return None
    known = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        known.append(site.getusersitepackages())
    places = [Path(module.__path__[0]) for module in (pyspark, py4j)]
    if not all(str(place.parent) in known for place in places):
        return None
    home = places[0]
    return home if (home / "bin").is_dir() and (home / "jars").is_dir() else None
