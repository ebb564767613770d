"""Puts a subject's collectives on record, in the order in which this rank makes them.

Every collective of `torch.distributed`, of DTensor, FSDP and DCP too, is an operator of the
namespace `c10d` (or `_c10d_functional`) when it reaches the dispatcher, which a TorchDispatchMode
sees.
"""

import functools
import threading

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
# Not collectives: waiting for one, or for a single peer.
_OTHERS = {"wait_tensor", "send", "recv_", "recv_any_source_", "monitored_barrier_"}


class CollectiveRecorder(TorchDispatchMode):
    """Writes each collective before it runs, numbered within its group.

    before: called with the operation's name, before it is on record; also: with its name and dtype.
    """

    def __init__(self, writer, before=lambda op: None, also=lambda op, dtype: None):
        super().__init__()
        self._writer = writer
        self._before = before
        self._also = also
        self._next: dict[tuple[int, ...], int] = {}
        self._called = threading.local()

    def listen(self):
        """Leaves out what a future calls once it is done: on which thread that happens is chance,
        and no mode reaches others than this one."""
        original = torch._C.Future.then

        @functools.wraps(original)
        def then(future, callback):
            def called(done):
                within = self._is_called()
                self._called.inside = True
                try:
                    return callback(done)
                finally:
                    self._called.inside = within

            return original(future, called)

        torch._C.Future.then = then

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Whether torch.compile compiles as it would without this mode, and not at all otherwise.
        What is compiled calls its collectives as operators, too."""
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        is_one = func.namespace in _NAMESPACES and func._opname not in _OTHERS
        if is_one and not self._is_called():
            self._before(func._opname.strip("_"))
            self._record(func, args, kwargs)
        return func(*args, **kwargs)

    def _is_called(self):
        return getattr(self._called, "inside", False)

    def _record(self, func, args, kwargs):
        op = func._opname.strip("_")
        named = dict(kwargs)
        for argument, value in zip(func._schema.arguments, args, strict=False):
            named[argument.name] = value
        ranks = tuple(_ranks_of(named))
        sequence = self._next.get(ranks, 0)
        self._next[ranks] = sequence + 1
        # Of a gather and a scatter the root alone has all the tensors: what counts is one rank's.
        own = {"gather": "input_tensors", "scatter": "output_tensors"}.get(op)
        tensors = [t for value in ([named[own]] if own in named else named.values())
                   for t in _tensors_in(value)]  # fmt: skip
        root = named.get("root_rank", named.get("src", -1))
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
        self._also(op, dtype)
        self._writer.collective(
            sequence=sequence,
            op=op,
            root=root if isinstance(root, int) else -1,
            dtype=dtype,
            count=sum(tensor.numel() for tensor in tensors),
            **({} if len(ranks) in (0, dist.get_world_size()) else {"group": list(ranks)}),
        )


def _tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors_in(part)]
    return []


def _ranks_of(named) -> list[int]:
    """Global ranks of the group that takes part; [] if that cannot be told."""
    group = named.get("process_group", named.get("group_name"))
    try:
        if isinstance(group, str):
            group = dist.distributed_c10d._resolve_process_group(group)
        elif group is not None and not isinstance(group, dist.ProcessGroup):
            group = dist.ProcessGroup.unbox(group)
        return dist.get_process_group_ranks(group)
    except (RuntimeError, ValueError, AttributeError, KeyError, TypeError):
        return []
