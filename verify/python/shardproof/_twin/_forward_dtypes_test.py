"""In which dtypes a forward pass has tensors, compiled or not."""

import types

import pytest
import torch

from ._forward_dtypes import ForwardDtypes


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)
        self.register_buffer("mask", torch.ones(2))
        self.unused = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.inner(x) * self.mask


@pytest.fixture
def watched():
    """Its hook, which a job keeps, is gone after the test."""
    hooks = torch.nn.modules.module._global_forward_hooks
    before = set(hooks)
    dtypes = ForwardDtypes()
    dtypes.listen()
    yield dtypes
    for each in set(hooks) - before:
        del hooks[each]


def test_those_of_modules_that_ran(watched):
    block = Block()
    block(torch.ones(2))  # no loss
    watched.begin()
    block.half()(torch.ones(2).half())
    assert watched.end(block) == dict.fromkeys(
        ("inner.weight", "inner.bias", "mask"), torch.float16)  # fmt: skip


def test_one_loss_after_the_other_makes_no_code_anew(watched):
    """It would be an error from the ninth on."""
    model = torch.nn.Sequential(*(Block() for _ in range(9)))
    for block in model:
        block.compile(backend="eager", fullgraph=True)
    for _ in range(9):
        watched.begin()
        model(torch.ones(2)).sum().backward()
        assert watched.end(model)["8.inner.weight"] == torch.float32


def test_where_code_is_compiled_the_policy_of_mixed_precision_says_it(watched):
    block = Block()
    block._get_fsdp_state = lambda: types.SimpleNamespace(
        _mp_policy=torch.distributed.fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    )
    block._compiled_call_impl = lambda x: x
    watched.begin()
    block(torch.ones(2))
    dtypes = watched.end(block)
    assert (dtypes["inner.weight"], dtypes["mask"]) == (torch.bfloat16, torch.float32)
