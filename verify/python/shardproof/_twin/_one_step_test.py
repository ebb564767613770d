"""An optimizer that steps alone, on whole tensors."""

import torch

from . import _one_step


def test_an_optimizer_steps_alone():
    values = {"w": torch.ones(3)}
    groups = [({"lr": 0.5, "momentum": 0.5}, ["w"])]
    state = {"w": {"momentum_buffer": torch.full((3,), 2.0)}}
    after, kept = _one_step.take(torch.optim.SGD, groups, {}, values, {"w": torch.ones(3)}, state)
    assert after["w"].tolist() == [0.0] * 3
    assert kept["w"]["momentum_buffer"].tolist() == [2.0] * 3


def test_a_sparse_gradient_steps_what_it_has_alone():
    """SparseAdam takes no other, and leaves the moments of other rows as they are."""
    values, groups = {"w": torch.ones(3, 2)}, [({"lr": 0.5}, ["w"])]
    grad = torch.tensor([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
    sparse = _one_step.as_sparse(grad, torch.tensor([[0, 1]]))  # one of them has a gradient of 0
    for take in (_one_step.take, _one_step.take_wide):
        after, kept = take(torch.optim.SparseAdam, groups, {}, values, {"w": sparse}, {})
        assert [bool(row.eq(1).all()) for row in after["w"]] == [True, False, True]
        assert set(kept["w"]) == {"step", "exp_avg", "exp_avg_sq"}


class Listed(torch.optim.Optimizer):
    """Has the last gradients in a list, which it steps by, and numbers in a dict."""

    def __init__(self, params, lr=1.0):
        super().__init__(params, {"lr": lr})

    def step(self):
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state["last"][state["seen"]["steps"] % 2].copy_(parameter.grad)
            state["seen"]["steps"] += 1
            parameter.data.sub_(sum(state["last"]), alpha=self.param_groups[0]["lr"])


def test_an_optimizer_steps_alone_from_what_lies_in_lists_and_dicts():
    state = {"last": [torch.zeros(3), torch.full((3,), 2.0)], "seen": {"steps": 4}}
    flat = dict(_one_step.flat(state))
    assert list(flat) == ["last[0]", "last[1]", "seen[steps]"]
    values, groups = {"w": torch.ones(3)}, [({"lr": 0.5}, ["w"])]
    after, kept = _one_step.take(Listed, groups, {}, values, {"w": torch.ones(3)}, {"w": flat})
    assert after["w"].tolist() == [-0.5] * 3
    assert kept["w"]["last[0]"].tolist() == [1.0] * 3
    assert kept["w"]["seen[steps]"] == 5


def test_a_step_in_f64_has_no_narrower_part():
    """Muon's products are of bf16: how far others may be from them is what F64 shows."""
    torch.manual_seed(0)
    values, grads = {"w": torch.randn(6, 4)}, {"w": torch.randn(6, 4)}
    groups = [({"lr": 0.5}, ["w"])]
    after, _ = _one_step.take(torch.optim.Muon, groups, {}, values, grads, {})
    wide, _ = _one_step.take_wide(torch.optim.Muon, groups, {}, values, grads, {})
    assert wide["w"].dtype == torch.float64
    assert 1e-4 < (after["w"] - wide["w"]).abs().max() < 1e-1
