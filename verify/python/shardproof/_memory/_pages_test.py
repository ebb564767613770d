import ctypes
import mmap

from shardproof._memory._pages import committed_bytes

PAGE = mmap.PAGESIZE


def test_pages_count_once_they_are_written():
    memory = mmap.mmap(-1, 8 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert committed_bytes(address, 8 * PAGE) == 0
    memory[0] = 1
    memory[3 * PAGE + 5] = 1
    assert committed_bytes(address, 8 * PAGE) == 2 * PAGE
    assert committed_bytes(address + PAGE, 3 * PAGE) == PAGE


def test_only_whole_pages_count():
    memory = mmap.mmap(-1, 3 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:] = b"x" * (3 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert committed_bytes(address + 1, 3 * PAGE - 2) == PAGE
    assert committed_bytes(address + 1, PAGE) == 0
