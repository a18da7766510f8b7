"""Stands between a store and ``fdatasync``."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def patch_fdatasync(
    patch: pytest.MonkeyPatch, force: Callable[[Path, Callable[[], None]], None]
) -> None:
    """Calls ``force`` with the path of each file that is to be forced to disk, and what does it."""
    real = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        force(Path(os.readlink(f"/proc/self/fd/{descriptor}")), lambda: real(descriptor))

    patch.setattr(os, "fdatasync", fdatasync)


def fail_fdatasync(patch: pytest.MonkeyPatch, structure: str) -> list[Path]:
    """The disk fails for the files of one structure, a directory of the store. Returns the paths
    that it is asked for, as they come."""
    asked: list[Path] = []

    def fail(path: Path, force: Callable[[], None]) -> None:
        if structure not in path.parts:
            force()
            return
        asked.append(path)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    patch_fdatasync(patch, fail)
    return asked
