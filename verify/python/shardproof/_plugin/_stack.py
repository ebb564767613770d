"""What ranks have printed, and where they were: text of files that they leave."""

import dataclasses
import os
import re
import signal

SIGNAL = signal.SIGRTMIN + 6  # has a rank write the stacks of its threads, whatever it waits for

_KEPT_BYTES = 64 << 10
_THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)")
_FRAME = re.compile(r'\s+File "(.*)", line (\d+)(?: in (.*))?')
_OF_PYTEST = re.compile(r'File "(<string>|.*/(_pytest|pluggy)/.*|.*/shardproof/_plugin/\w+\.py)"')
_WRAPPERS = ("c10d_logger.py", "/shardproof/_plugin/_worker.py")


@dataclasses.dataclass(frozen=True)
class Frame:
    file: str
    line: int
    function: str

    def __str__(self):
        return f"{os.path.basename(self.file)}:{self.line} in {self.function}"


def frames(stack: str, thread: int) -> list[Frame]:
    """Of that thread (threading.Thread.ident), innermost first."""
    found, is_it = [], False
    for line in stack.splitlines():
        if begins := _THREAD.match(line):
            is_it = int(begins[1], 16) == thread
        elif is_it and (frame := _FRAME.match(line)):
            found.append(Frame(frame[1], int(frame[2]), frame[3] or "?"))
    return found


def is_of_crash(text: str) -> bool:
    """Whether Python has written there where it crashed."""
    return "Fatal Python error: " in text


def shown(stack: str) -> str:
    """Without what pytest and this plugin have called to come to the test."""
    lines = stack.splitlines(keepends=True)
    return "".join(line for line in lines if not _OF_PYTEST.search(line))


def where(stack: str, thread: int, test_file: str) -> str:
    """The line of the test that it was at, and the function that this waited in."""
    found = frames(stack, thread)
    if not found:
        return "in an unknown place: it wrote no stack"
    inner = next((each for each in found if not each.file.endswith(_WRAPPERS)), found[0])
    own = next((each for each in found if each.file == test_file), None)
    if own is None:
        return f"at {inner}"
    if own is inner:
        return f"at {own}"
    return f"at {own}, within {inner}"


def printed(file: str) -> str:
    """All of a file, or its begin and its end."""
    try:
        size = os.path.getsize(file)
        with open(file, "rb") as opened:
            if size <= 2 * _KEPT_BYTES:
                return opened.read().decode(errors="replace")
            begin = opened.read(_KEPT_BYTES)
            opened.seek(size - _KEPT_BYTES)
            end = opened.read()
    except OSError:
        return ""
    left_out = f"\n[{size - 2 * _KEPT_BYTES:,} of {size:,} bytes are left out]\n"
    return begin.decode(errors="replace") + left_out + end.decode(errors="replace")
