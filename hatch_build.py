"""Builds the compiled kernel into the package where cargo is found, and the manual pages.

Called by hatchling for every wheel, an editable one too. Where cargo or anything that it needs is
missing, the package is built without: rmqctl then runs on its pure engine, and says so where it is
asked (`rmqctl --version -v`). `RMQCTL_KERNEL=compiled` makes a kernel that cannot be built an
error, `RMQCTL_KERNEL=pure` leaves it out. Why so: docs/decisions/0015-a-compiled-kernel.md
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNEL = Path("rmqctl") / "kernel"
MODULE = KERNEL / "_kernel.abi3.so"
TARGET = Path("build") / "kernel"
MANUAL = Path("build") / "man"
LOG = TARGET / "cargo.log"
#: A build takes half a minute; a registry that does not answer must not keep anybody much longer.
MOST_SECONDS = 600


class NotBuilt(Exception):
    """Why there is no kernel, or no manual, in some words."""


class KernelHook(BuildHookInterface[Any]):
    """hatchling's hook; its name is hatchling's."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        if version != "editable":
            self._add_manual(build_data)
        try:
            build(Path(self.root))
        except NotBuilt as problem:
            if os.environ.get("RMQCTL_KERNEL") == "compiled":
                sys.exit(f"hatch_build.py: no compiled kernel: {problem}")
            self.app.display_warning(f"rmqctl is built without its compiled kernel: {problem}")
            return
        if version != "editable":
            build_data["artifacts"].append(f"/{MODULE}")
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"cp311-abi3-{platform}"

    def _add_manual(self, build_data: dict[str, Any]) -> None:
        """The manual pages, where the commands that they tell of can be loaded."""
        try:
            directory = write_manual(Path(self.root))
        except NotBuilt as problem:
            self.app.display_warning(f"rmqctl is built without manual pages: {problem}")
            return
        build_data["shared_data"][str(directory)] = "share/man/man1"


def write_manual(root: Path) -> Path:
    """Writes the manual pages into a directory of their own; :raises NotBuilt: they cannot be."""
    directory = root / MANUAL
    shutil.rmtree(directory, ignore_errors=True)
    command = [sys.executable, "-m", "rmqctl.reference.man", str(directory)]
    done = subprocess.run(
        command,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise NotBuilt(f"`python -m rmqctl.reference.man` failed: {done.stderr.strip()[-300:]}")
    return directory


def build(root: Path) -> None:
    """Builds the kernel, and puts it where Python finds it; what stood there is old and goes.

    :raises NotBuilt: and no kernel is there.
    """
    (root / MODULE).unlink(missing_ok=True)
    if os.environ.get("RMQCTL_KERNEL") == "pure":
        raise NotBuilt("RMQCTL_KERNEL=pure")
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotBuilt("this Python does not have CPython's stable interface")
    cargo = find_cargo()
    if cargo is None:
        raise NotBuilt("cargo is not on PATH, nor in ~/.cargo/bin")
    (root / TARGET).mkdir(parents=True, exist_ok=True)
    with (root / LOG).open("wb") as log:
        try:
            done = subprocess.run(
                [cargo, "build", "--release", "--locked", "--manifest-path", "Cargo.toml"],
                cwd=root / KERNEL,
                env=environment(root, cargo),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=MOST_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotBuilt(f"{error}; see {LOG}") from error
    if done.returncode:
        raise NotBuilt(f"cargo build failed; see {LOG}")
    # Renamed into its place: a Python that has the old one mapped keeps it.
    new = (root / MODULE).with_suffix(".new")
    shutil.copyfile(root / TARGET / "release" / "lib_kernel.so", new)
    new.replace(root / MODULE)


def find_cargo() -> str | None:
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    return shutil.which("cargo") or shutil.which("cargo", path=str(home / "bin"))


def environment(root: Path, cargo: str) -> dict[str, str]:
    """What cargo sees: the caller's environment, the Python that asks, and where to build."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(cargo).parent)])
    return os.environ | {
        "PATH": path,
        "CARGO_TARGET_DIR": str(root / TARGET),
        "PYO3_PYTHON": sys.executable,
        "PYO3_BUILD_EXTENSION_MODULE": "1",
        "RMQCTL_KERNEL_SOURCES": sources_digest(root),
    }


def sources_digest(root: Path) -> str:
    """What the kernel is built from, in a few digits: the module keeps them (`SOURCES`)."""
    digest = hashlib.sha256()
    for path in sorted([*(root / KERNEL).glob("Cargo.*"), *(root / KERNEL / "src").rglob("*.rs")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
