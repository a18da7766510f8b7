"""Limits of a process, and what raises them."""

import errno
import os

#: What helps where not the disk refused, but a limit of this process: by the system's words.
_LIMITS = {
    os.strerror(errno.EMFILE): "Raise the limit of open files (`ulimit -n`).",
    os.strerror(errno.ENFILE): "Raise the system's limit of open files (`sysctl fs.file-max`).",
    os.strerror(errno.ENOMEM): (
        "Raise the limit of memory (`ulimit -v`) or of maps (`sysctl vm.max_map_count`)."
    ),
    os.strerror(errno.EFBIG): (
        "Raise the limit of file sizes (`ulimit -f`), or take a file system for larger files."
    ),
}


def system_step(reason: object, otherwise: str) -> str:
    """The next step where the system has refused something.

    :param reason: the system's words.
    :param otherwise: the step if no limit of this process was the reason.
    """
    return _LIMITS.get(str(reason), otherwise)
