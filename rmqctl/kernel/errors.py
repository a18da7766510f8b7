"""Errors of choosing the kernel."""

from rmqctl.errors import UsageError


class KernelMissing(UsageError):
    """``RMQCTL_KERNEL=compiled`` where there is no compiled kernel."""

    template = (
        "{variable}=compiled, but the compiled kernel cannot be used: {reason}. Unset {variable} "
        "to continue without it, or install rmqctl again where cargo is found."
    )


class KernelChoiceError(UsageError):
    """``RMQCTL_KERNEL`` is neither ``compiled`` nor ``pure``."""

    template = "{variable} is {found!r}. Say compiled or pure, or unset it."
