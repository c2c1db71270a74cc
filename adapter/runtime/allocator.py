"""Settings of the C library's allocator."""

import contextlib
import ctypes

_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of mallopt(3)."""
LARGE_BYTES = 128 * 1024
"""glibc's own threshold at the start."""


def return_large_blocks() -> None:
    """Have freed blocks of LARGE_BYTES and more returned to the system at once.

    Without it glibc raises its threshold to the largest block that was ever freed. Buffers of connections (256 KiB) and
    parts of answers then come from the heap, which grows by the holes between them: 125 of 250 MiB after minutes of
    reconnections. Other C libraries have no such function, and need none.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
