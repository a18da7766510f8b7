"""Which backend the scanner runs on, and what it hands to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rmqctl import kernel
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.scan.backend import PURE, ScanBackend, backends, chosen
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.scan.tuning import ScanTuning
from tests.test_engine.test_scanner import build_log, damage, random_spec, write


class Recorder:
    """The pure backend by another name; notes what was asked of it, and the tuning."""

    name = "recorder"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tunings: set[ScanTuning] = set()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.asked.append(name)
            self.tunings.update(one for one in arguments if isinstance(one, ScanTuning))
            return getattr(PURE, name)(*arguments, **options)

        return call


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test asks anew whether there is a compiled module."""
    monkeypatch.delenv("RMQCTL_PURE", raising=False)
    kernel._compiled.cache_clear()
    yield
    kernel._compiled.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, backend: object) -> None:
    """As if there were a compiled module."""
    module = ModuleType(kernel.COMPILED)
    module.backend = backend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, kernel.COMPILED, module)


def test_without_a_compiled_module_the_pure_backend_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, kernel.COMPILED, None)
    assert chosen() is PURE
    assert list(backends()) == ["pure"]


def test_a_compiled_backend_is_chosen_and_tested_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Recorder()
    install(monkeypatch, compiled)
    assert chosen() is compiled
    assert list(backends()) == ["pure", "recorder"]


@pytest.mark.parametrize(("value", "is_pure"), [("1", True), ("0", False), ("", False)])
def test_the_environment_refuses_it(
    value: str, is_pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, Recorder())
    monkeypatch.setenv("RMQCTL_PURE", value)
    assert (chosen() is PURE) == is_pure


def test_a_compiled_module_that_does_not_load_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every ModuleNotFoundError says that there is none."""
    (tmp_path / "compiled.py").write_text("import no_such_module_anywhere\n")
    monkeypatch.setattr(kernel, "__path__", [str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        chosen()


def test_a_scanner_hands_everything_to_its_backend(tmp_path: Path, chance: Any) -> None:
    files = build_log([random_spec(chance) for _ in range(20)], 1 << 16)
    log: CommitLog = write(tmp_path, damage(files, []), 1 << 16)
    backend, tuning = Recorder(), ScanTuning(batch_records=7)
    given: ScanBackend = backend
    batches = [
        entry
        for entry in Scanner(log, check=True, tuning=tuning, backend=given).scan()
        if isinstance(entry, Batch)
    ]
    assert [len(batch) for batch in batches] == [7, 7, 6]
    assert set(backend.asked) == {"chain", "read_fields", "properties", "body_crcs"}
    assert backend.tunings == {tuning}
