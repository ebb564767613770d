"""Where threads of a job are: what faulthandler writes of them, in few words."""

import functools
import os
import re
import sysconfig
import threading

from .._package import is_ours

_FRAMES_MAX = 24
_OTHERS_MAX = 3
_THREAD = re.compile(r"^(?:Current t|T)hread (0x[0-9a-f]+)")
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
# Where threads wait that have nothing to do.
_WAITING = ("threading.py", "selectors.py", "queue.py", "connection.py", "socketserver.py",
            "concurrent/futures/thread.py")  # fmt: skip


@functools.cache
def _roots() -> tuple[str, ...]:
    return sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), os.getcwd()


@functools.lru_cache(maxsize=4096)
def short(filename: str) -> str:
    """A file's name without the place that Python, its packages or the job lie in."""
    for root in _roots():
        if filename.startswith(root + os.sep):
            return filename[len(root) + 1 :]
    return os.sep.join(filename.split(os.sep)[-2:]).lstrip(os.sep)


def frame_text(filename: str, line: int, function: str = "") -> str:
    return f"{short(filename)}:{line} {function}".rstrip()


def stacks_in(dump: bytes, skipped: set[int]) -> list[list[str]]:
    """dump: of faulthandler. skipped: threads by identity, which are not told of.

    \\returns the frames of the main thread, then those of others that do not wait; in each the
    innermost frame comes first. Frames of Shardproof's own, and of what runs a script, are left
    out.
    """
    stacks, frames = {}, None
    for line in dump.decode("utf-8", "replace").splitlines():
        if thread := _THREAD.match(line):
            frames = stacks.setdefault(int(thread[1], 16), [])
        elif frames is not None and (frame := _FRAME.match(line)):
            filename, number, function = frame.groups()
            if not is_ours(filename) and not filename.startswith("<"):
                frames.append(frame_text(filename, int(number), function))
    main = threading.main_thread().ident
    others = [
        frames
        for thread, frames in stacks.items()
        if thread not in (main, *skipped) and frames and not _waits(frames[0])
    ]
    found = [stacks.get(main, []), *others[:_OTHERS_MAX]]
    return [frames[:_FRAMES_MAX] for frames in found if frames]


def _waits(frame: str) -> bool:
    return frame.rpartition(":")[0].endswith(_WAITING)
