"""What a build makes of the kernel's sources, and of a machine where it cannot."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rmqctl import kernel

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a kernel that was built some time ago; no cargo is found."""
    (tmp_path / "rmqctl/kernel").mkdir(parents=True)
    (tmp_path / "rmqctl/kernel/_kernel.abi3.so").write_bytes(b"old")
    monkeypatch.delenv(kernel.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo"))
    return tmp_path


def put_cargo(directory: Path, script: str) -> None:
    directory.mkdir(parents=True)
    (directory / "cargo").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "cargo").chmod(0o755)


def module_of(project: Path) -> list[str]:
    return [path.name for path in (project / "rmqctl/kernel").iterdir()]


def test_without_cargo_there_is_no_kernel_and_no_old_one(hatch_build: Any, project: Path) -> None:
    with pytest.raises(hatch_build.NotBuilt, match="not on PATH, nor in"):
        hatch_build.build(project)
    assert module_of(project) == []


def test_a_cargo_that_fails_leaves_no_kernel_and_what_it_said(
    hatch_build: Any, project: Path
) -> None:
    put_cargo(project / "cargo/bin", "echo no registry answers >&2; exit 101")
    with pytest.raises(hatch_build.NotBuilt, match="cargo build failed; see build/kernel"):
        hatch_build.build(project)
    assert module_of(project) == []
    assert (project / hatch_build.LOG).read_text() == "no registry answers\n"


def test_a_cargo_that_hangs_is_given_up(
    hatch_build: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_cargo(project / "bin", "exec /bin/sleep 60")
    monkeypatch.setattr(hatch_build, "MOST_SECONDS", 0.1)
    with pytest.raises(hatch_build.NotBuilt, match="timed out"):
        hatch_build.build(project)
    assert module_of(project) == []


def test_what_cargo_makes_becomes_the_module(hatch_build: Any, project: Path) -> None:
    made = '"$CARGO_TARGET_DIR/release"'
    put_cargo(
        project / "cargo/bin",
        f'/bin/mkdir -p {made} && echo "$RMQCTL_KERNEL_SOURCES" > {made}/lib_kernel.so',
    )
    (project / "rmqctl/kernel/Cargo.toml").write_text("one")
    hatch_build.build(project)
    module = project / "rmqctl/kernel/_kernel.abi3.so"
    first = module.read_text().strip()
    assert first == hatch_build.sources_digest(project)
    (project / "rmqctl/kernel/Cargo.toml").write_text("two")
    assert hatch_build.sources_digest(project) != first


def test_the_pure_engine_can_be_chosen_when_building(
    hatch_build: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_cargo(project / "bin", "exit 0")
    monkeypatch.setenv(kernel.VARIABLE, "pure")
    with pytest.raises(hatch_build.NotBuilt, match="RMQCTL_KERNEL=pure"):
        hatch_build.build(project)
    assert module_of(project) == []


def test_it_was_built_from_the_sources_beside_it(compiled: ModuleType, hatch_build: Any) -> None:
    assert hatch_build.sources_digest(ROOT) == compiled.SOURCES, (
        "install again: python3 dev.py test, or pip install -e '.[dev]'"
    )


def test_a_package_whose_commands_cannot_be_loaded_has_no_manual(
    hatch_build: Any, project: Path
) -> None:
    (project / "rmqctl/__init__.py").touch()
    with pytest.raises(hatch_build.NotBuilt, match=r"rmqctl\.reference\.man` failed: .*"):
        hatch_build.write_manual(project)
