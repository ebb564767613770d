"""What a job has set is not in the way of a call, and is there again after it."""

import gc

import pytest
import torch

from shardproof._digests import _called


def test_a_default_device_of_the_caller_changes_nothing():
    made = _called.by_job(lambda: torch.zeros(1).device.type)
    with torch.device("meta"):
        assert made() == "cpu"
        assert torch.zeros(1).is_meta


def test_cycles_are_searched_for_again_after_a_call_if_they_were_before():
    @_called.by_job
    def fail():
        assert not gc.isenabled()
        raise ValueError

    for is_collecting in (True, False):
        (gc.enable if is_collecting else gc.disable)()
        try:
            with pytest.raises(ValueError):
                fail()
            assert gc.isenabled() == is_collecting
        finally:
            gc.enable()
