"""Checks whether pyarrow is installed. It is imported only for that."""

from __future__ import annotations

import shlex
import sys

from rmqctl.errors import ArrowMissing

#: The oldest version that will do, as in pyproject.toml.
LEAST = 22


def check_arrow() -> None:
    """:raises ArrowMissing: pyarrow is not installed, or is too old. The error has the command that
    installs it here."""
    command = f"{shlex.quote(sys.executable)} -m pip install 'pyarrow>={LEAST}'"
    try:
        import pyarrow
    except ImportError as error:
        reason = f"{error.name or 'pyarrow'} is not installed"
        raise ArrowMissing(reason=reason, command=command) from error
    found: str = pyarrow.__version__
    if int(found.partition(".")[0]) < LEAST:
        reason = f"version {found} is older than {LEAST}"
        raise ArrowMissing(reason=reason, command=command)
