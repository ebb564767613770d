"""How much memory of this process is backed by pages."""

import mmap
import os

_ENTRY_BYTES = 8
_PRESENT = 1 << 63
_SWAPPED = 1 << 62
_FILE_OR_SHARED = 1 << 61


def anonymous_bytes() -> int:
    """Resident anonymous memory of this process."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status: no RssAnon")


def committed_bytes(address: int, length: int) -> int:
    """Bytes of the whole pages within [address, address + length) that are anonymous memory."""
    page = mmap.PAGESIZE
    first, last = -(-address // page), (address + length) // page
    if last <= first:
        return 0
    fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.pread(fd, (last - first) * _ENTRY_BYTES, first * _ENTRY_BYTES)
    finally:
        os.close(fd)
    entries = memoryview(data).cast("Q")
    here = sum(1 for e in entries if e & (_PRESENT | _SWAPPED) and not e & _FILE_OR_SHARED)
    return page * here
