"""Runs rmqctl as a process on a store of the engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import processes
from tests.interop.engine import Row
from tests.interop.stores import conf_text


def only(version: str) -> pytest.MarkDecorator:
    """Marks a test for one version, of what the other version does differently or does not have."""
    group = pytest.mark.xdist_group(f"interop-{version}")
    return pytest.mark.parametrize("version", [pytest.param(version, marks=group)], indirect=True)


class Rmqctl:
    """Runs commands on the store at ``root``, with these settings as its ``broker.conf``."""

    def __init__(self, root: Path, values: Row) -> None:
        conf = root.with_name(root.name + ".broker.conf")
        conf.write_text(conf_text(values), "utf-8")
        self._here = ["--store", str(root), "--broker-conf", str(conf), "--format", "ndjson"]

    def __call__(self, *arguments: str, code: int = 0) -> list[Row]:
        """The rows that a command prints; it must end with ``code``. The last row is the summary,
        if the command has one."""
        done = processes.run("rmqctl", *arguments, *self._here)
        assert done.returncode == code, done.stdout[-2000:] + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]
