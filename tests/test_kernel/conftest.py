"""The compiled module of this checkout, and the file that builds it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rmqctl import kernel
from tests.test_cli import conftest as command_line

cli, store = command_line.cli, command_line.store

ROOT = Path(__file__).parents[2]


@pytest.fixture
def compiled() -> ModuleType:
    """The compiled module of this checkout."""
    module = kernel.usable().module
    if module is None:
        pytest.skip(f"no compiled kernel: {kernel.usable().problem}")
    return module


class FakeHook:
    """What hatchling's hook is to hatch_build.py: a class with parameters."""

    def __class_getitem__(cls, _: object) -> type[FakeHook]:
        return cls


@pytest.fixture
def hatch_build(monkeypatch: pytest.MonkeyPatch) -> Any:
    """hatch_build.py, without hatchling, which only a build has."""
    names = ["hatchling", "builders", "hooks", "plugin", "interface"]
    for number in range(len(names)):
        monkeypatch.setitem(sys.modules, ".".join(names[: number + 1]), ModuleType("hatchling"))
    monkeypatch.setattr(sys.modules[".".join(names)], "BuildHookInterface", FakeHook, raising=False)
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delitem(sys.modules, "hatch_build", raising=False)
    import hatch_build

    return hatch_build
