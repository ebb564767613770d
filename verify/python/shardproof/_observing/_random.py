"""The state of torch's random number generator on the CPU, and whether a job asks for it."""

import sys

import torch

from .._digests import _digest
from .._holdings import _layout
from . import _hooks

_asked = False


def listen():
    """From now on, whether this process asks for the state is known. A job that keeps it does.
    Parts of torch, such as activation checkpointing, ask only to put it back."""

    def asks(arguments, named):
        global _asked
        asking = sys._getframe(2).f_globals.get("__name__", "")  # what called what is listened to
        _asked = _asked or not asking.startswith("torch.")

    _hooks.listen(torch, "get_rng_state", before=asks)


def was_asked_for() -> bool:
    return _asked


def digest() -> str:
    state = torch.default_generator.get_state()
    return _digest.digest_runs(state, _layout.local_runs(state.shape)).hex()
