"""The state of torch's random number generator on the CPU, and whether a job asks for it."""

import torch

from .._digests import _digest
from .._holdings import _layout
from . import _hooks

_asked = False


def listen():
    """From now on, whether this process asks for the state is known. A job that keeps it does."""

    def asks(arguments, named):
        global _asked
        _asked = True

    _hooks.listen(torch, "get_rng_state", before=asks)


def was_asked_for() -> bool:
    return _asked


def digest() -> str:
    state = torch.default_generator.get_state()
    return _digest.digest_runs(state, _layout.local_runs(state.shape)).hex()
