"""Junk in the place of values that a subject calls undefined: what is filled later is right all the
same, and what was right by luck is not any more."""

import torch

# As stages of a subject: what is undefined there, the job has yet to fill.
STAGES = ("loaded", "materialized")

_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def overwrite(undefined: list, others: list):
    """Writes junk over the holdings of `undefined`: bytes 0xff, a NaN that reports call "never
    written", and in the place of integers another value.

    others: holdings that mean something. What shares memory with one of them stays, and so does
    memory that is not this process's alone to write: of files, and of other processes.
    """
    kept = {_storage(held.local) for held in others if _has_memory(held)}
    private = _PrivateMemory()
    done = set()
    for held in undefined:
        if not _has_memory(held) or _storage(held.local) in kept:
            continue
        local = _once(held.local.data)  # .data: no backward waits for it
        place = (local.data_ptr(), local.shape, local.stride())
        if place in done or (local.device.type == "cpu" and not private.holds(local)):
            continue
        done.add(place)
        with torch.no_grad():
            _fill(local)


def _has_memory(held) -> bool:
    return held.local is not None and not held.is_meta and held.local.numel() > 0


def _storage(local) -> int:
    return local.untyped_storage()._cdata


def _once(local):
    """Each element of an expanded tensor once."""
    lengths = zip(local.shape, local.stride(), strict=True)
    return local[tuple(slice(0, 1) if step == 0 else slice(None) for _, step in lengths)]


def _fill(local):
    dtype = local.dtype
    if dtype.is_complex:
        _fill(torch.view_as_real(local))
    elif dtype.is_floating_point:
        local.view(_SIGNED[dtype.itemsize]).fill_(-1)
    elif dtype == torch.bool:
        local.logical_not_()
    else:
        local.view(_SIGNED[dtype.itemsize]).bitwise_not_()


class _PrivateMemory:
    """Mappings of this process that it may write and shares with no file and no other process."""

    def __init__(self):
        self._stretches = []
        with open("/proc/self/maps") as maps:
            for line in maps:
                place, rights = line.split(maxsplit=2)[:2]
                if rights[1] == "w" and rights[3] == "p":
                    low, _, high = place.partition("-")
                    self._stretches.append((int(low, 16), int(high, 16)))

    def holds(self, local) -> bool:
        lengths = zip(local.shape, local.stride(), strict=True)
        last = sum((length - 1) * step for length, step in lengths)
        begin, end = local.data_ptr(), local.data_ptr() + (last + 1) * local.element_size()
        for low, high in self._stretches:  # ascending; neighbours may differ in what they are of
            if low <= begin < high:
                begin = high
            if begin >= end:
                return True
        return False
