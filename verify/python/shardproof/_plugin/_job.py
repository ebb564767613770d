"""One test on one rank: its process group, and what is left of it."""

import datetime
import gc
import os
import sys

import torch
import torch.distributed as dist

from . import _fixture, _restore

_GROUP_OUTLIVES_DEADLINE_S = 30.0  # so that the deadline, which names ranks, is met first
_STORE_S = 60.0
_LOOPBACK = "127.0.0.1"


class Job:
    def __init__(self, order, channel):
        self.rank, self.world = order["rank"], order["world"]
        self.backend, self.deadline = order["backend"], order["deadline"]
        self.scratch, self.path = order["scratch"], order["path"]
        self.channel = channel
        self.observed = False
        self._store = None
        self._left = None
        self.fixture = _fixture.Ranks(self)

    def begin(self):
        """Comes together with the other ranks, over the loopback interface alone.

        \\raises whatever torch does for a backend that it does not know.
        """
        dist.Backend(self.backend) if ":" not in self.backend else dist.BackendConfig(self.backend)
        self._store = self._meet()
        os.environ.update(
            RANK=str(self.rank), WORLD_SIZE=str(self.world), LOCAL_RANK=str(self.rank),
            LOCAL_WORLD_SIZE=str(self.world), MASTER_ADDR=_LOOPBACK,
            MASTER_PORT=str(self._store.port),
        )  # fmt: skip
        if "nccl" in self.backend:
            torch.cuda.set_device(self.rank)
        limit = datetime.timedelta(seconds=self.deadline + _GROUP_OUTLIVES_DEADLINE_S)
        dist.init_process_group(
            self.backend, store=self._store, rank=self.rank, world_size=self.world, timeout=limit
        )
        _restore.seed()
        self._left = _restore.Left()

    def _meet(self):
        """The store. Rank 0 has it, and tells the others its port by way of pytest."""
        limit = datetime.timedelta(seconds=_STORE_S)
        if self.rank == 0:
            store = dist.TCPStore(_LOOPBACK, 0, self.world, True, limit, wait_for_workers=False)
            self.channel.send(port=store.port)
            return store
        port = self.channel.receive()["port"]
        return dist.TCPStore(_LOOPBACK, port, self.world, False, limit)

    def end(self) -> list[str]:
        """\\returns what the test has left that no other test should find."""
        self.fixture.end()
        left = self._left.found()
        try:
            while dist.is_initialized():
                dist.destroy_process_group()
        except Exception as error:
            left.append(f"a process group that cannot be destroyed: {error}")
        self._store = None
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)  # of a failure: it keeps what the test had in hand
        gc.collect()
        _forget_meshes()
        return left


def _forget_meshes():
    """DTensor keeps what it has found out of a mesh, with that mesh, for all that are equal to it.
    The next test's is equal and has other process groups."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed.tensor"):
            for value in list(vars(module).values()):
                if not isinstance(value, type) and hasattr(value, "cache_clear"):
                    value.cache_clear()
    try:
        from torch.distributed.tensor.debug import _clear_sharding_prop_cache

        _clear_sharding_prop_cache()
    except ImportError:
        pass
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and sys.modules["torch._dynamo.utils"].counters["frames"]:
        dynamo.reset()


def call(order):
    """Runs a function of a test's module by its name and saves what it gives to order["to"]."""
    from . import _reference

    left = _restore.Left()
    _restore.seed()
    with _restore.kept():
        _reference.make(order)
    if dist.is_initialized():
        dist.destroy_process_group()
    left.found()
