"""Which backend the scanner runs on, and what it hands to it."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmqctl import kernel
from rmqctl.engine.scan.backend import PURE, WindowReader, backends, chosen
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.compiled import CompiledBackend
from rmqctl.engine.scan.plain import PlainWanted
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.scan.topics import TopicTable
from rmqctl.engine.scan.tuning import ScanTuning
from rmqctl.kernel import Kernel
from tests.test_engine.test_scanner import build_log, damage, random_spec, write


class Recorder:
    """The pure backend by another name; notes what was asked of it."""

    name = "recorder"

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def reader(
        self,
        topics: TopicTable,
        tuning: ScanTuning,
        *,
        check: bool,
        properties: bool,
        plain: PlainWanted | None = None,
    ) -> WindowReader:
        assert plain is None
        self.asked.append((topics, tuning, check, properties))
        return PURE.reader(topics, tuning, check=check, properties=properties)


def use(monkeypatch: pytest.MonkeyPatch, found: Kernel) -> None:
    """As if that were what a build has left."""
    monkeypatch.delenv(kernel.VARIABLE, raising=False)
    monkeypatch.setattr(kernel, "usable", lambda: found)


def test_without_a_compiled_module_the_pure_backend_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Kernel(None, "it was not built"))
    assert chosen() is PURE
    assert list(backends()) == ["pure"]


def test_a_compiled_backend_is_chosen_and_tested_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Kernel(SimpleNamespace(Scanner=object), ""))  # type: ignore[arg-type]
    assert isinstance(chosen(), CompiledBackend)
    assert list(backends()) == ["pure", "compiled"]
    monkeypatch.setenv(kernel.VARIABLE, "pure")
    assert chosen() is PURE
    assert list(backends()) == ["pure", "compiled"]


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("properties", [False, True])
def test_a_scanner_hands_everything_to_its_backend(
    tmp_path: Path, chance: random.Random, check: bool, properties: bool
) -> None:
    files = build_log([random_spec(chance) for _ in range(20)], 1 << 16)
    log = write(tmp_path, damage(files, []), 1 << 16)
    backend, tuning = Recorder(), ScanTuning(batch_records=7)
    scan = Scanner(log, check=check, properties=properties, tuning=tuning, backend=backend)
    batches = [entry for entry in scan.scan() if isinstance(entry, Batch)]
    assert [len(batch) for batch in batches] == [7, 7, 6]
    assert backend.asked == [(scan.topics, tuning, check, properties)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("check", [False, True])
def test_a_record_over_the_end_of_a_window_is_no_batch_of_its_own(
    tmp_path: Path, chance: random.Random, check: bool, threads: int
) -> None:
    backend = backends().get(CompiledBackend.name)
    if backend is None:
        pytest.skip("no compiled kernel here")
    records = [random_spec(chance) for _ in range(400)]
    log = write(tmp_path, damage(build_log(records, 1 << 20), []), 1 << 20)
    window = 1 << 13
    tuning = ScanTuning(window_bytes=(window, window), threads=threads)
    entries = list(Scanner(log, check=check, tuning=tuning, backend=backend).scan())
    sizes = [len(entry) for entry in entries if isinstance(entry, Batch)]
    assert sum(sizes) == 400
    assert len(sizes) > 10
    assert min(sizes[:-1]) > 1  # the last one has what is left
    log.close()


def test_a_record_longer_than_a_window_is_read(tmp_path: Path, chance: random.Random) -> None:
    records = [random_spec(chance) | {"body": bytes(5000)} for _ in range(9)]
    log = write(tmp_path, damage(build_log(records, 1 << 16), []), 1 << 16)
    tuning = ScanTuning(window_bytes=(1 << 10, 1 << 10))
    for backend in backends().values():
        found = Scanner(log, tuning=tuning, backend=backend).scan()
        assert sum(len(entry) for entry in found if isinstance(entry, Batch)) == 9, backend.name
    log.close()
