"""What to do about the system's refusals that have a reason of their own: limits of the process,
and a disk that fails."""

import errno
import os

DISK_STEP = (
    "See `dmesg` for the disk. If it fails, copy the store to another one with a tool that goes on "
    "behind read errors, such as ddrescue, and run `rmqctl salvage --store COPY --output DIR`."
)
#: What helps, by the system's words.
_STEPS = {
    os.strerror(errno.EMFILE): "Raise the limit of open files (`ulimit -n`).",
    os.strerror(errno.ENFILE): "Raise the system's limit of open files (`sysctl fs.file-max`).",
    os.strerror(errno.ENOMEM): (
        "Raise the limit of memory (`ulimit -v`) or of maps (`sysctl vm.max_map_count`)."
    ),
    os.strerror(errno.EFBIG): (
        "Raise the limit of file sizes (`ulimit -f`), or take a file system for larger files."
    ),
    os.strerror(errno.EIO): DISK_STEP,
}


def system_step(reason: object, otherwise: str) -> str:
    """The next step where the system has refused something.

    :param reason: the system's words.
    :param otherwise: the step if the reason was another one.
    """
    return _STEPS.get(str(reason), otherwise)
