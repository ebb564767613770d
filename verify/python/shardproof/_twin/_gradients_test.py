"""Gradients of a plain model that is also computed in F64."""

import torch
from torch import nn

from . import _gradients


def test_inputs_of_a_model_in_f64_are_as_wide_as_it():
    model = _gradients.PlainModel(nn.Linear(2, 3), None)
    batch = _gradients.Batch({}, 1, torch.zeros(0), True, None)
    wide = model._set(batch, {}, {}, wide=True)
    assert wide(torch.ones(1, 2)).dtype == torch.float64
    assert wide(input=torch.ones(1, 2)).dtype == torch.float64
    assert model._set(batch, {}, {}, wide=False)(torch.ones(1, 2)).dtype == torch.float32
