"""Chooses between the compiled kernel, which has the hot loops, and the pure engine.

The kernel gives the same results as :mod:`rmqctl.engine.scan` gives with numpy, several times
faster. It is built if cargo is found (``docs/decisions/0015-a-compiled-kernel.md``). Without it
everything runs on the pure engine. ``RMQCTL_KERNEL=compiled`` requires the kernel, and
``RMQCTL_KERNEL=pure`` refuses it.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from formats import layouts
from rmqctl import lostpages
from rmqctl.kernel.errors import KernelChoiceError, KernelMissing

if TYPE_CHECKING:
    from types import ModuleType

    from rmqctl.kernel import _kernel

VARIABLE = "RMQCTL_KERNEL"
#: The version of the interface to the kernel. src/python/mod.rs has the same number.
_INTERFACE = 25


class Kernel(NamedTuple):
    """The compiled module; or None, and why there is none."""

    module: ModuleType | None
    problem: str


def module() -> ModuleType | None:
    """The compiled module (``_kernel.pyi``); None if the pure engine must be used.

    :raises KernelMissing: ``RMQCTL_KERNEL`` requires the kernel, and there is none.
    :raises KernelChoiceError: ``RMQCTL_KERNEL`` has an unknown value.
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
    """The kernel's scanner; None if the pure engine must be used. Raises as :func:`module`."""
    kernel = module()
    return None if kernel is None else kernel.Scanner


def usable() -> Kernel:
    """The kernel, if it can be used at all, whatever ``RMQCTL_KERNEL`` says."""
    kernel = _load()
    if kernel.module is not None:
        module = kernel.module
        if module.INTERFACE != _INTERFACE or _record_versions() != module.VERSIONS:
            return Kernel(None, "it was built from other sources than these")
    return kernel


def description() -> str:
    """Which engine scans, in some words.

    :raises KernelMissing: as :func:`module`.
    :raises KernelChoiceError: as :func:`module`.
    """
    if scanner() is not None:
        return "compiled"
    problem = usable().problem
    return f"pure (no compiled kernel: {problem})" if problem else f"pure ({VARIABLE}=pure)"


def _record_versions() -> tuple[tuple[int, int, int, int, int], ...]:
    """For each version of records its magic code, and the size (bytes) and the largest value of the
    two length fields behind the body: those of topic and properties."""
    return tuple(
        (code, topic.size, topic.limit, properties.size, properties.limit)
        for code, (topic, properties, *_) in layouts.TAIL.items()
    )


@cache
def _load() -> Kernel:
    try:
        module = import_module("rmqctl.kernel._kernel")
    except ModuleNotFoundError:
        return Kernel(None, "it was not built")
    except ImportError as error:  # It was built for another machine.
        return Kernel(None, str(error))
    if module.INTERFACE == _INTERFACE:
        lostpages.begin(module)
    return Kernel(module, "")
