"""Who chooses the kernel, what is said where it is missing, and what its bugs become."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from formats import layouts
from rmqctl import kernel
from rmqctl.kernel import Kernel
from rmqctl.kernel.errors import KernelChoiceError, KernelMissing
from tests.test_cli.conftest import Cli

MISSING = Kernel(None, "it was not built")


def test_without_a_kernel_the_pure_engine_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_load", lambda: MISSING)
    monkeypatch.delenv(kernel.VARIABLE, raising=False)
    assert kernel.scanner() is None
    assert kernel.description() == "pure (no compiled kernel: it was not built)"


def test_what_was_not_built_is_missing_and_what_cannot_be_loaded_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "__path__", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "rmqctl.kernel._kernel", raising=False)
    assert kernel._load.__wrapped__() == MISSING
    (tmp_path / "_kernel.abi3.so").write_bytes(b"of another machine")
    module, problem = kernel._load.__wrapped__()
    assert module is None
    assert "_kernel.abi3.so" in problem


def test_a_kernel_is_used_where_it_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = kernel._record_versions()
    module = SimpleNamespace(INTERFACE=kernel._INTERFACE, VERSIONS=versions, Scanner=object)
    monkeypatch.setattr(kernel, "_load", lambda: Kernel(module, ""))  # type: ignore[arg-type]
    for wanted, found in (("", object), ("compiled", object), ("pure", None)):
        monkeypatch.setenv(kernel.VARIABLE, wanted)
        assert kernel.scanner() is found
    assert kernel.description() == "pure (RMQCTL_KERNEL=pure)"


def test_an_older_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows other records, or is spoken to otherwise."""
    monkeypatch.delenv(kernel.VARIABLE, raising=False)
    for interface, versions in ((0, kernel._record_versions()), (kernel._INTERFACE, ())):
        module = SimpleNamespace(INTERFACE=interface, VERSIONS=versions, Scanner=object)
        monkeypatch.setattr(kernel, "_load", lambda module=module: Kernel(module, ""))
        assert kernel.scanner() is None
        assert "built from other sources" in kernel.description()


def test_a_new_version_of_the_record_is_not_read_by_a_kernel_that_does_not_know_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = SimpleNamespace(
        INTERFACE=kernel._INTERFACE, VERSIONS=kernel._record_versions(), Scanner=object
    )
    monkeypatch.setattr(kernel, "_load", lambda: Kernel(module, ""))  # type: ignore[arg-type]
    monkeypatch.delenv(kernel.VARIABLE, raising=False)
    assert kernel.scanner() is object
    monkeypatch.setitem(layouts.TAIL, 0xDAA320AF, next(iter(layouts.TAIL.values())))
    assert kernel.scanner() is None


def test_a_kernel_that_was_asked_for_and_is_missing_is_an_error(
    monkeypatch: pytest.MonkeyPatch, store: Path, cli: Cli
) -> None:
    monkeypatch.setattr(kernel, "_load", lambda: MISSING)
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    with pytest.raises(KernelMissing, match="it was not built"):
        kernel.scanner()
    done = cli("verify", store=store)
    assert (done.code, done.out) == (2, "")
    assert "error: RMQCTL_KERNEL=compiled, but the compiled kernel cannot be used" in done.err
    monkeypatch.setenv(kernel.VARIABLE, "rust")
    with pytest.raises(KernelChoiceError, match="'rust'"):
        kernel.scanner()
    assert cli("verify", store=store).code == 2


def test_version_names_the_engine_when_it_is_asked_to(
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv(kernel.VARIABLE, "pure")
    monkeypatch.setattr(kernel, "_load", lambda: MISSING)
    assert len(cli("--version").out.splitlines()) == 1
    assert "engine: pure (no compiled kernel: it was not built)" in cli("--version", "-v").out


def test_a_panic_is_a_bug_with_its_place(
    compiled: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    store: Path,
    cli: Cli,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fill(*_: object, **__: object) -> None:
        compiled.panic()

    methods = {"__init__": lambda *_, **__: None, "clear": lambda _: None, "plain": fill}
    monkeypatch.setattr(kernel, "scanner", lambda: type("Broken", (), methods))
    done = cli("verify", store=store)
    assert done.code == 70
    assert "error: a bug in rmqctl: KernelPanic: a panic that was asked for at src/" in done.err
    assert "panicked" not in capfd.readouterr().err
