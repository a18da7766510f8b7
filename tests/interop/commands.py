"""rmqctl as a process on a store that an engine writes too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import processes
from tests.interop.engine import Row
from tests.interop.stores import conf_text


def only(version: str) -> pytest.MarkDecorator:
    """A test of what the other version does in another way, or has not."""
    group = pytest.mark.xdist_group(f"interop-{version}")
    return pytest.mark.parametrize("version", [pytest.param(version, marks=group)], indirect=True)


class Rmqctl:
    """Runs commands on the store at ``root`` with a ``broker.conf`` of these settings."""

    def __init__(self, root: Path, values: Row) -> None:
        conf = root.with_name(root.name + ".broker.conf")
        conf.write_text(conf_text(values), "utf-8")
        self._here = ["--store", str(root), "--broker-conf", str(conf), "--format", "ndjson"]

    def __call__(self, *arguments: str, code: int = 0) -> list[Row]:
        """The rows of a command that ends with ``code``; the last is the summary, if it has one."""
        done = processes.run("rmqctl", *arguments, *self._here)
        assert done.returncode == code, done.stdout[-2000:] + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]
