"""The state of torch's random number generator on the CPU, and whether a job asks for it."""

import functools

import torch

from . import _digest, _layout

_asked = False


def listen():
    """From now on, whether this process asks for the state is known. A job that keeps it does."""
    if getattr(torch.get_rng_state, "_listens", False):
        return
    real = torch.get_rng_state

    @functools.wraps(real)
    def get_rng_state():
        global _asked
        _asked = True
        return real()

    get_rng_state._listens = True
    torch.get_rng_state = torch.random.get_rng_state = get_rng_state


def was_asked_for() -> bool:
    return _asked


def digest() -> str:
    state = torch.default_generator.get_state()
    return _digest.digest_runs(state, _layout.local_runs(state.shape)).hex()
