"""The fixture `shardproof`: what a test has in hand on its rank."""

import contextlib
import ctypes
import os
import pathlib

import shardproof

_EVIDENCE = "evidence"


class Ranks:
    """This rank of a test's. Everything of the module `shardproof` is found here too, so that a
    test may write `shardproof.check(model)` whichever of the two it has.

    rank, world: which of how many this is. backend: of the process group. scratch: a pathlib.Path
    to an empty directory that all ranks of this test share, and no other test.
    """

    def __init__(self, job):
        self._job = job
        self.rank, self.world, self.backend = job.rank, job.world, job.backend
        self._undo = contextlib.ExitStack()

    def __repr__(self):
        return f"<rank {self.rank} of {self.world}>"

    def __getattr__(self, name):
        return getattr(shardproof, name)

    @property
    def scratch(self) -> pathlib.Path:
        return pathlib.Path(self._job.scratch)

    def barrier(self):
        """Waits until all ranks are here."""
        import torch.distributed as dist

        dist.barrier()

    def observe(self, stage, model=None, **what):
        """Records what this rank has in hand, as `shardproof.observe`, for this test alone. When
        the test has passed, `shardproof report` judges it, and findings fail the test."""
        from .._observing import _script

        if not self._job.observed:
            _script.end_session()
            self._undo.callback(_script.end_session)
            what.setdefault("to", os.path.join(self._job.scratch, _EVIDENCE))
            self._job.observed = True
        _script.observe(stage, model, **what)

    def equal(self, model, reference, *, optimizer=None, **how):
        """Raises on all ranks alike, with rank, tensor and element, if the model does not hold the
        values, dtypes and shapes that `reference` returned. Call it on every rank.

        how: as of `shardproof.check`; strict is True unless it says otherwise, so that a tensor
        that only one of both has is an error.
        """
        how.setdefault("strict", True)
        return shardproof.check(model, optimizer=optimizer, against=reference.path, **how)

    def poison(self):
        """From here to the test's end, fresh memory of torch on the CPU holds junk instead of what
        is there by luck, such as the right values of the model before.

        \\raises RuntimeError if this torch has no such switch.
        """
        flag = _junk_fill()
        self._undo.callback(setattr, flag, "value", flag.value)
        flag.value = True

    def end(self):
        """Puts back what the test has asked for."""
        self._undo.close()


def _junk_fill():
    try:
        library = ctypes.CDLL("libc10.so")
        return ctypes.c_bool.in_dll(library, "FLAGS_caffe2_cpu_allocator_do_junk_fill")
    except (OSError, ValueError) as error:
        raise RuntimeError(
            f"shardproof.poison: this torch cannot fill fresh memory with junk: {error}"
        ) from error
