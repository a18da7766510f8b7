"""Whether pyarrow is there. Imports it only to see."""

from __future__ import annotations

import shlex
import sys

from rmqctl.errors import ArrowMissing

#: The first version that the columns are made with, as pyproject.toml has it.
LEAST = 22


def check_arrow() -> None:
    """:raises ArrowMissing: pyarrow is not installed, or too old; the error has the command that
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
