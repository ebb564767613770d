"""What this process holds at a stage, and what of it the model and its optimizer account for."""

from collections.abc import Mapping

import torch

from .._holdings import _optimizer
from . import _holders, _pages, _watcher
from ._storage import local_parts, storage_of

# The first that has a storage counts it. "other": what Python comes to and none of these is.
KINDS = ("parameter", "buffer", "gradient", "optimizer", "other")
_SLACK_BYTES = 4 << 20  # by which what is not accounted for may change until others are looked for


class StageMemory:
    """Of one writer of evidence."""

    def __init__(self, writer, watch):
        self._writer, self._watch = writer, watch
        self._who = None
        if watch.tracer is not None:
            from ._who import Who

            self._who = Who(watch.tracer)
        self._peak = self._fields = None
        self._beside = self._others = None  # what was not accounted for, and "other", at a look
        self._shared = None  # what was held when proportional shares were read, and these

    def take(self):
        """First of all at a stage: what is done to observe it is not to be counted."""
        self._peak = self._watch.take()
        self._fields = self._host()

    def record(self, stage: str, step: int, tensors, optimizer):
        """tensors: Holdings of the model, before their bytes are read."""
        storages = _storages(tensors, optimizer)
        sums, fields = _sums(storages), {"stage": stage, "step": step, **self._fields}
        if found := devices():
            fields["devices"] = found
        beside = self._not_in(sums)
        if self._who is not None or found or self._is_new(beside):
            others = _holders.foreign(set(storages))
            self._beside, self._others = beside, _sums({
                tensor.untyped_storage().data_ptr(): ("other", str(tensor.device), nbytes)
                for tensor, nbytes in others.values()
            })  # fmt: skip
            if self._who is not None:
                fields["who"] = self._who.told(others)
        fields["tensors"] = [*sums, *self._others]
        self._writer.held(**fields)

    def _not_in(self, sums) -> tuple[int, int, int]:
        """What this process holds beside those tensors, of each kind of memory."""
        own = sum(each.get("anonymous_bytes", 0) for each in sums)
        fields = self._fields
        return fields["anonymous_bytes"] - own, fields["shared_bytes"], fields["file_bytes"]

    def _is_new(self, beside) -> bool:
        """Whether other tensors may have come or gone since they were looked for, which takes long:
        all objects of Python are gone through."""
        if self._beside is None:
            return True
        return any(abs(a - b) > _SLACK_BYTES for a, b in zip(beside, self._beside, strict=True))

    def go_on(self):
        self._watch.go_on()

    def _host(self) -> dict:
        watch, peak = self._watch, self._peak
        status = _watcher.contents("status")
        of = lambda name: _watcher.field(status, name)
        fields = {
            "time_ms": round(watch.elapsed_ms(), 3), "anonymous_bytes": of(b"RssAnon"),
            "shared_bytes": of(b"RssShmem"), "file_bytes": of(b"RssFile"),
            "locked_bytes": of(b"VmLck") + of(b"VmPin"),
        }  # fmt: skip
        if (pinned := pinned_bytes()) is not None:
            fields["pinned_bytes"] = pinned
        if proportional := self._proportional(fields):
            fields["proportional"] = proportional
        if not watch.failure:
            fields["peak"] = {
                "anonymous_bytes": peak.anonymous, "shared_bytes": peak.shared,
                "time_ms": round(peak.time_ms, 3),
                "interval_ms": round(_watcher.INTERVAL_S * 1000, 3),
            }  # fmt: skip
            if peak.dump:
                fields["peak"]["stacks_bytes"] = peak.dumped_at
                fields["peak"]["stacks"] = watch.stacks_of(peak)
        return fields

    def _proportional(self, fields) -> dict:
        """This process's share of each page. The kernel goes through all pages to tell, so it is
        asked where there is shared memory, which others may have come to, or files have changed;
        else what came is this process's own."""
        now = {name: fields[name] for name in ("anonymous_bytes", "shared_bytes", "file_bytes")}
        if self._shared is not None:
            before, shares = self._shared
            came = {name: now[name] - before[name] for name in now}
            common = now["shared_bytes"], abs(came["file_bytes"])
            if shares and max(common) <= _SLACK_BYTES:
                own = max(0, shares["anonymous_bytes"] + came["anonymous_bytes"])
                return {**shares, "anonymous_bytes": own}
        self._shared = now, _proportional()
        return self._shared[1]


def _proportional() -> dict:
    """Shares by which the sum over processes counts a page once."""
    try:
        rollup = _watcher.contents("smaps_rollup")
    except OSError:
        return {}
    if b"\nPss_Anon:" not in rollup:
        return {}
    of = lambda name: _watcher.field(rollup, name)
    return {
        "anonymous_bytes": of(b"Pss_Anon"), "shared_bytes": of(b"Pss_Shmem"),
        "file_bytes": of(b"Pss_File"),
    }  # fmt: skip


def pinned_bytes() -> int | None:
    """Host memory that CUDA has locked for this process; None if it was not asked for any."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None
    stats = getattr(torch.cuda, "host_memory_stats", dict)()
    return stats.get("allocated_bytes.current")


def devices() -> list[dict]:
    """What is allocated on each device that this process has used; nothing without one."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        kind, count, stats_of = "cuda", torch.cuda.device_count(), torch.cuda.memory_stats
    else:
        accelerator = getattr(torch, "accelerator", None)
        is_there = getattr(torch._C, "_accelerator_isAllocatorInitialized", lambda: False)
        if accelerator is None or not is_there() or not hasattr(accelerator, "memory_stats"):
            return []
        kind = accelerator.current_accelerator().type
        count, stats_of = accelerator.device_count(), accelerator.memory_stats
    found = []
    for number in range(count):
        try:
            stats = stats_of(number)
        except (RuntimeError, NotImplementedError):  # an allocator that does not count
            return []
        of = lambda name, stats=stats: int(stats.get(name, 0))
        if of("reserved_bytes.all.peak"):
            found.append({
                "device": f"{kind}:{number}",
                "allocated_bytes": of("allocated_bytes.all.current"),
                "reserved_bytes": of("reserved_bytes.all.current"),
                "peak_allocated_bytes": of("allocated_bytes.all.peak"),
                "peak_reserved_bytes": of("reserved_bytes.all.peak"),
            })  # fmt: skip
    return found


def _storages(tensors, optimizer) -> dict[int, tuple[str, str, int]]:
    """Of each storage of the model and its optimizer, by address: whose, where, how many bytes."""
    found = {}

    def add(kind, tensor):
        storage = storage_of(tensor)
        if storage is not None:
            found.setdefault(storage.data_ptr(), (kind, str(tensor.device), storage.nbytes()))

    for kind in KINDS[:2]:
        for held in tensors:
            if held.kind == kind and held.local is not None and not held.is_meta:
                add(kind, held.local)
    for held in tensors:
        owner = held.owner
        if held.kind == "parameter" and isinstance(owner, torch.Tensor) and owner.is_leaf:
            for part in local_parts(owner.grad):
                add("gradient", part)
    for part in _of_optimizer(optimizer):
        add("optimizer", part)
    return found


def _of_optimizer(optimizer):
    """All tensors of its state, and parameters of its own, such as copies in FP32."""
    for each in _optimizer.optimizers_in(optimizer):
        inner = getattr(each, "optim", None)
        for one in [each, inner] if isinstance(inner, torch.optim.Optimizer) else [each]:
            for state in list(one.state.values()):
                yield from _within(state)
            for group in getattr(one, "param_groups", []):
                for parameter in group.get("params", []):
                    yield from local_parts(parameter)
                    yield from local_parts(getattr(parameter, "grad", None))


def _within(value, depth=3):
    if isinstance(value, torch.Tensor):
        yield from local_parts(value)
    elif depth and isinstance(value, Mapping | list | tuple):
        for each in list(value.values() if isinstance(value, Mapping) else value):
            yield from _within(each, depth - 1)


def _sums(storages) -> list[dict]:
    """By whose they are and where: all bytes, and of those on the host what is anonymous memory."""
    sums = {}
    for address, (kind, device, nbytes) in storages.items():
        one = sums.setdefault((kind, device), {"of": kind, "device": device, "bytes": 0})
        one["bytes"] += nbytes
        if device == "cpu":
            one.setdefault("anonymous_bytes", 0)
            one["anonymous_bytes"] += _anonymous(address, nbytes)
    return [sums[key] for key in sorted(sums, key=lambda key: (KINDS.index(key[0]), key[1]))]


def _anonymous(address: int, nbytes: int) -> int:
    try:
        return _pages.resident_bytes(address, nbytes)[0]
    except OSError:
        return nbytes
