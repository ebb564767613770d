"""What each function of ours that a job calls is wrapped in."""

import contextlib
import functools
import gc

import torch


def by_job(function):
    """Tensors that the function makes are on the CPU, whatever default device its caller has set.
    Python does not search for cycles meanwhile: our records have none, and their number would have
    it go through every object of the job in the midst of a call."""

    @functools.wraps(function)
    def called(*arguments, **named):
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            with _host():
                return function(*arguments, **named)
        finally:
            if is_collecting:
                gc.enable()

    return called


def _host():
    if torch.get_default_device().type == "cpu":  # else each operation of torch takes longer
        return contextlib.nullcontext()
    return torch.device("cpu")
