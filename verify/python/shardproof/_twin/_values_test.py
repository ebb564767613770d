"""Tensors of ranks, kept in parts; complex ones as pairs of real numbers."""

import torch

from .._holdings import _layout
from . import _between, _gradients, _one_step, _stage, _step_values, _values
from ._step_events import Part


class Held:
    """As a Holding, of a rank that has the rows from `first` on."""

    kind, requires_grad = "parameter", True

    def __init__(self, full, first, count):
        width = full.shape[1]
        self.local, self.shape = full[first : first + count], full.shape
        self.runs, self.dtype = [_layout.Run(first * width, count * width)], full.dtype


def parts_of(full) -> list[Part]:
    return [_step_values._part(Held(full, *rows)) for rows in ((0, 2), (2, 1))]


NUMBERS = torch.complex(torch.arange(6.0), -torch.arange(6.0) / 8).view(3, 2)


def test_complex_parts_are_pairs_and_make_up_a_complex_whole():
    parts = parts_of(NUMBERS)
    assert [part.local.dtype for part in parts] == [torch.float32] * 2
    assert parts[1].local.tolist() == [4.0, -0.5, 5.0, -0.625]
    assert torch.equal(_values.whole(parts), NUMBERS)
    assert torch.equal(_values.cut(NUMBERS, parts[1]), parts[1].local)
    assert _values.place_of(parts[1], 3) == 5


def test_an_imaginary_part_that_is_off_is_seen():
    (part, _), expected = parts_of(NUMBERS), NUMBERS.clone()
    stage = _stage.Stage("stepped@1")
    assert _between._difference(stage, part, expected, None, 0.0) == {}
    expected[0, 1] += 1e-3j
    said = _between._difference(stage, part, expected, None, 0.0)
    assert (said["index"], said["differing"]) == (1, 1)


def test_complex_parameters_are_stepped_and_have_gradients():
    values, grads = {"w": NUMBERS}, {"w": NUMBERS.conj()}
    groups = [({"lr": 0.5}, ["w"])]
    after, _ = _one_step.take(torch.optim.AdamW, groups, {}, values, grads, {})
    wide, _ = _one_step.take_wide(torch.optim.AdamW, groups, {}, values, grads, {})
    assert (after["w"].dtype, wide["w"].dtype) == (torch.complex64, torch.complex128)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(3, 2, dtype=torch.complex64))

    model = Model()
    batch = _gradients.Batch({}, 1, None, True, None, dtypes={"w": torch.complex64})
    own = _gradients.PlainModel(model, None)._set(batch, {"w": NUMBERS}, {}, wide=True)
    assert torch.equal(own.w.detach(), NUMBERS.to(torch.complex128))
    assert _gradients._half_ulp(torch.complex64) == _gradients._half_ulp(torch.float32)
    near = _gradients._near(NUMBERS, 1e-6, torch.Generator().manual_seed(0))
    assert near.dtype == torch.complex64 and 0 < (near - NUMBERS).abs().max() < 1e-4
