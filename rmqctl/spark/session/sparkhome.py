"""Makes a copy, of links, of Spark's directory for local sessions, without the zip of PySpark.

Spark puts ``python/lib/pyspark.zip`` of ``SPARK_HOME`` first on the import path of its Python
processes. Python does not cache compiled modules of a zip. So each of the five to eight processes
that a first query starts would compile PySpark again, which takes half a second of processor time.
The workers of a local session run this Python, which has the same PySpark, compiled, among its
packages.
"""

from __future__ import annotations

import os
import site
from pathlib import Path

from rmqctl.engine.files.owndirectory import OwnDirectory

#: The part of Spark's directory that is Python: the zip, and PySpark's sources.
_LEFT_OUT = "python"
#: The directories of links that this process has, by path.
_links: dict[str, OwnDirectory] = {}


def links_to_spark() -> str | None:
    """Makes a new directory of links to everything in Spark's directory except its Python. Call
    :func:`remove_links` when Java has ended. None if workers might not find this PySpark without
        the zip, or if ``SPARK_HOME`` is set. Directories that killed processes have left are
        removed first."""
    home = _own_spark()
    if home is None:
        return None
    own = OwnDirectory("rmqctl-spark-home-")
    links = str(own.path)
    _links[links] = own
    try:
        for entry in home.iterdir():
            # Java reads nothing of PySpark's packages.
            if entry.is_dir() and entry.name != _LEFT_OUT and not (entry / "__init__.py").exists():
                Path(links, entry.name).symlink_to(entry)
    except BaseException:
        remove_links(links)
        raise
    return links


def remove_links(links: str) -> None:
    """Removes a directory that :func:`links_to_spark` has made, and no other one."""
    own = _links.pop(links, None)
    if own is not None:
        own.remove()


def _own_spark() -> Path | None:
    """The directory of the Spark that came with PySpark, if every start of this Python finds
    PySpark and py4j; else None."""
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
