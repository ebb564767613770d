"""Everybody's objects to everybody."""

import contextlib
import datetime
import weakref

import torch.distributed as dist

from ._groups import dist_rank, world


class Gather:
    """Everybody's objects to everybody, through a Gloo group that is made once.

    torch alone keeps the group: dist.destroy_process_group then ends its threads. One that ran on
    would take the interpreter down now and then, by letting go of a tensor while that finalises.
    """

    _groups: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # of a world's: by deadline

    def __init__(self, deadline):
        self.world_size, self.rank = len(world()), dist_rank()
        self._group = self._made(deadline) if self.world_size > 1 else None

    def __call__(self, own):
        if self._group is None:
            return [own]
        gathered = [None] * self.world_size
        with self._deadline_named():
            dist.all_gather_object(gathered, own, group=self._group)
        return gathered

    def _made(self, deadline):
        made = self._groups.setdefault(dist.group.WORLD, weakref.WeakValueDictionary())
        group = made.get(deadline)
        if group is None:
            timeout = datetime.timedelta(seconds=deadline)
            with self._deadline_named():
                group = made[deadline] = dist.new_group(backend="gloo", timeout=timeout)
        return group

    @contextlib.contextmanager
    def _deadline_named(self):
        try:
            yield
        except RuntimeError as error:
            raise TimeoutError(
                f"shardproof.check: rank {self.rank}: not every rank called check in time: {error}"
            ) from error
