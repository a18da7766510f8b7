"""The hot loops, compiled: chosen here, and nowhere else.

The kernel does what :mod:`rmqctl.engine.scan` does with numpy, with the same answers, several times
faster. It is built where cargo is found (``docs/decisions/0015-a-compiled-kernel.md``); without it
everything runs on the pure engine. ``RMQCTL_KERNEL`` is ``compiled`` or ``pure`` for who wants to
be sure of one.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from formats import layouts
from rmqctl.errors import KernelChoiceError, KernelMissing

if TYPE_CHECKING:
    from types import ModuleType

    from rmqctl.kernel import _kernel

VARIABLE = "RMQCTL_KERNEL"
#: How Python and the kernel talk; the kernel's own is in src/python/mod.rs.
_INTERFACE = 21


class Kernel(NamedTuple):
    """The compiled module, or why there is none."""

    module: ModuleType | None
    problem: str


def module() -> ModuleType | None:
    """The compiled module (``_kernel.pyi``); None where the pure engine is to be used.

    :raises KernelMissing: the kernel was asked for, and there is none.
    :raises KernelChoiceError: something else was asked for.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "pure":
        return None
    if wanted not in ("", "compiled"):
        raise KernelChoiceError(variable=VARIABLE, found=wanted)
    kernel = usable()
    if kernel.module is None and wanted:
        raise KernelMissing(variable=VARIABLE, reason=kernel.problem)
    return kernel.module


def scanner() -> type[_kernel.Scanner] | None:
    """The kernel's scanner; None where the pure engine is to be used. Raises as :func:`module`."""
    kernel = module()
    return None if kernel is None else kernel.Scanner


def usable() -> Kernel:
    """The kernel if it can be used at all, whatever was asked for."""
    kernel = _load()
    if kernel.module is not None:
        module = kernel.module
        if module.INTERFACE != _INTERFACE or _record_versions() != module.VERSIONS:
            return Kernel(None, "it was built from other sources than these")
    return kernel


def description() -> str:
    """What scans, in some words.

    :raises KernelMissing: as :func:`module`.
    :raises KernelChoiceError: as :func:`module`.
    """
    if scanner() is not None:
        return "compiled"
    problem = usable().problem
    return f"pure (no compiled kernel: {problem})" if problem else f"pure ({VARIABLE}=pure)"


def _record_versions() -> tuple[tuple[int, int, int, int, int], ...]:
    """Magic codes, and sizes and limits of the two lengths behind a record's body."""
    return tuple(
        (code, topic.size, topic.limit, properties.size, properties.limit)
        for code, (topic, properties, *_) in layouts.TAIL.items()
    )


@cache
def _load() -> Kernel:
    try:
        return Kernel(import_module("rmqctl.kernel._kernel"), "")
    except ModuleNotFoundError:
        return Kernel(None, "it was not built")
    except ImportError as error:  # Built for another machine.
        return Kernel(None, str(error))
