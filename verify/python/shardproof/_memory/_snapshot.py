"""The largest allocations at the peak, of what CUDA's allocator remembers of them."""

from .._package import is_ours
from ._stacks import frame_text

_FRAMES_MAX = 24


class _Block:
    """frames: where it was allocated, as far as that is known."""

    def __init__(self, size, frames=()):
        self.size, self.frames = size, frames


def at_peak(snapshot: dict, after_us: int = 0) -> tuple[list[dict], int]:
    """snapshot: of torch.cuda.memory._snapshot(). after_us: events up to then belong to an earlier
    stage. \\returns of each device the allocations that were live when they came to most, those of
    one stack together, the largest first; and the time of the last event.

    It goes back from what is live now, so it does not matter how much of the history is kept.
    """
    found, last_us = [], after_us
    for device, events in enumerate(snapshot.get("device_traces", [])):
        last_us = max([last_us, *(event.get("time_us", 0) for event in events)])
        back = [event for event in reversed(events) if event.get("time_us", last_us) > after_us]
        live = _live(snapshot, device)
        most = _most(back, sum(block.size for block in live.values()), dict(live))
        for event in back[:most]:
            _undo(event, live)
        at_most = list(live.values())
        for event in back[most:]:  # their stacks stand where they were allocated
            _undo(event, live)
        found += _by_stack(at_most, device)
    return sorted(found, key=lambda each: -each["bytes"]), last_us


def _most(back, now, live) -> int:
    """After how many events undone most was live."""
    most, at = now, 0
    for number, event in enumerate(back, 1):
        now += _undo(event, live)
        if now > most:
            most, at = now, number
    return at


def _live(snapshot, device) -> dict[int, _Block]:
    """By address: what is allocated now."""
    live = {}
    for segment in snapshot.get("segments", []):
        if segment.get("device") != device:
            continue
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                live[block.get("address", address)] = _Block(block["size"], block.get("frames", ()))
            address += block["size"]
    return live


def _undo(event, live) -> int:
    """\\returns by how many bytes more were live before the event."""
    at = event.get("addr")
    if event["action"] == "alloc":
        block = live.pop(at, None)
        if block is None:
            return 0
        block.frames = block.frames or event.get("frames", ())
        return -block.size
    if event["action"] == "free_requested" and at not in live:
        live[at] = _Block(event["size"])
        return event["size"]
    return 0


def _by_stack(blocks, device) -> list[dict]:
    sums = {}
    for block in blocks:
        stack = tuple(
            frame_text(frame["filename"], frame["line"], frame["name"])
            for frame in block.frames
            if frame["filename"].endswith(".py") and not is_ours(frame["filename"])
        )[:_FRAMES_MAX]
        size, count = sums.get(stack, (0, 0))
        sums[stack] = (size + block.size, count + 1)
    return [
        {"by": "device", "bytes": size, "count": count, "what": f"cuda:{device} at its peak",
         "stack": list(stack)}
        for stack, (size, count) in sums.items()
    ]  # fmt: skip
