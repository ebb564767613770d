"""An attribute is used if code that the model runs reads it."""

import importlib
import types

import pytest
from torch import nn

from .._holdings import _model
from . import _code

FILE = """
import torch
from torch import nn

class Kind(torch.Tensor):
    def copied(tensor):
        return tensor.of_its_own_kind

class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        for name in ("read", "of_another", "of_its_own_kind", "never"):
            setattr(self.weight, name, 1)

    def forward(self, x):
        return x * self.weight.read

class Another(nn.Module):
    def forward(self, x):
        return x * self.weight.of_another
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    path = tmp_path / "twin_code_reader.py"
    path.write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module("twin_code_reader")


def test_only_what_the_model_runs_counts(module):
    model = nn.Sequential(module.Reader())
    plain = types.SimpleNamespace(model=model, optimizer=None)
    found = _code.uses(plain, _model.tensors_of(model))
    assert found == {"read": "twin_code_reader.py:17"}
