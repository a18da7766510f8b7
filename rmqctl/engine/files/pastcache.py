"""Bytes that go to the disk from the memory in which they lie, past the system's cache: to copy
them there, page by page, takes half as long as the disk does, and the disk is waited for all the
same.

For large ranges of new files that nobody looks at soon: who reads them first has the disk bring
them. Linux' ``O_DIRECT``, which takes whole blocks of a file that lie as far into a block of
memory.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.engine.files.mappedfile import MappedFile

#: Bytes of a block. A disk takes smaller ones, too; one that takes larger ones only says so.
BLOCK = 4096
#: What is said where a file system, or the memory, is not made for it.
_NOT_SO = (errno.EINVAL, errno.EOPNOTSUPP)


def write_past_cache(
    mapped: MappedFile, position: int, data: bytes | bytearray | memoryview
) -> None:
    """:meth:`~rmqctl.engine.files.mappedfile.MappedFile.write_aside` that takes this way where it
    can, and that one for what is left: the ends of the range that are no whole blocks, or all. As
    after that one nothing is durable before the file is flushed: a disk has a cache of its own, and
    the file's blocks are noted elsewhere.

    :raises OSError: the disk is full, or failed; a part may have been stored.
    """
    with memoryview(data) as view:
        mapped.mark_dirty(position, position + len(view))
        first = min(-position % BLOCK, len(view))
        end = len(view) - (position + len(view)) % BLOCK
        done = first
        if first < end:
            with view[first:end] as blocks:
                done += _write_blocks(mapped.descriptor, position + first, blocks)
        for low, high in ((0, first), (done, len(view))):
            if low < high:
                mapped.write_aside(position + low, view[low:high])


def _write_blocks(descriptor: int, position: int, blocks: memoryview) -> int:
    """How many bytes went past the cache, from the first one on."""
    done = 0
    try:
        # Not the descriptor itself: others, and other ranges, go by way of the cache.
        flags = os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC
        direct = os.open(f"/proc/self/fd/{descriptor}", flags)
    except OSError:
        return done
    try:
        while done < len(blocks):
            done += os.pwrite(direct, blocks[done:], position + done)
    except OSError as error:
        if error.errno not in _NOT_SO:
            raise
    finally:
        os.close(direct)
    return done
