"""torch.cuda on a machine without a GPU, as far as a framework needs it that asks for nothing else.

Streams and events do nothing, since what a CPU does is done when a call returns. So orders of
streams that are wrong on a GPU do not show here. Every rank says on its stdout, which is kept with
the evidence, that this stood in for CUDA.
"""

import contextlib
import types

import torch


class _Stream:
    """A stream or an event: every method does nothing, and returns one where one is expected."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: self

    def query(self):
        return True


def _nothing(*_, **__):
    return None


def install(current=0):
    """current: what torch.cuda.current_device() returns; "cpu" for a framework that moves tensors
    there.

    \\raises RuntimeError on a machine that has a GPU: there nothing is to be stood in for.
    """
    if torch.cuda.is_available():
        raise RuntimeError("this machine has a GPU, so CUDA needs no stand-in")
    stream, cuda = _Stream(), torch.cuda
    cuda.current_device = lambda: current
    cuda.Stream = cuda.Event = _Stream
    cuda.current_stream = cuda.default_stream = lambda *_: stream
    cuda.stream = cuda.device = lambda *_: contextlib.nullcontext()
    cuda.set_device = cuda.synchronize = cuda.empty_cache = cuda.manual_seed = _nothing
    cuda.memory_allocated = cuda.memory_reserved = cuda.max_memory_allocated = lambda *_: 0
    cuda.get_device_properties = lambda *_: types.SimpleNamespace(
        total_memory=1 << 40, name="stand-in"
    )
    cuda.nvtx.range_push = cuda.nvtx.range_pop = _nothing
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *_: torch.get_rng_state()
    torch.Tensor.record_stream = _nothing
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self
    print("torch.cuda is a stand-in on the CPU: streams and events do nothing", flush=True)
