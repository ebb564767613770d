"""How much memory of this process is backed by pages, and by which."""

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


def resident_bytes(address: int, length: int, pages_max: int = 16) -> tuple[int, int]:
    """Of [address, address + length), what is resident: anonymous memory, and pages of files or
    shared memory. Of more than pages_max pages, so many are looked at, evenly spread.

    \\raises OSError if the kernel does not tell.
    """
    if length <= 0:
        return 0, 0
    page = mmap.PAGESIZE
    first, count = address // page, (address + length - 1) // page - address // page + 1
    fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if count <= pages_max:
            entries = memoryview(os.pread(fd, count * _ENTRY_BYTES, first * _ENTRY_BYTES)).cast("Q")
        else:
            numbers = [first + count * (2 * i + 1) // (2 * pages_max) for i in range(pages_max)]
            data = [os.pread(fd, _ENTRY_BYTES, number * _ENTRY_BYTES) for number in numbers]
            entries = memoryview(b"".join(data)).cast("Q")
    finally:
        os.close(fd)
    here = [entry for entry in entries if entry & (_PRESENT | _SWAPPED)]
    elsewhere = sum(1 for entry in here if entry & _FILE_OR_SHARED)
    if not entries:
        return 0, 0
    return (
        length * (len(here) - elsewhere) // len(entries),
        length * elsewhere // len(entries),
    )
