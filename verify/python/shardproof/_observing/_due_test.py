import pytest
import torch

from shardproof._observing import _due


def of(p, update):
    return _due.count(p, {"u": update}, lambda p, of: [of["u"]])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_what_is_certain_changes_the_value_however_it_is_rounded(dtype):
    """An update that is said to change a value does, whether it is added at once or in two."""
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(4096, generator=generator, dtype=torch.float64).to(dtype)
    size = torch.randn(4096, generator=generator, dtype=torch.float64).abs() * 8
    update = (size * p.abs().double() * torch.finfo(dtype).eps).to(dtype)
    found = 0
    for i in range(0, 4096, 8):
        due = of(p[i : i + 8], update[i : i + 8])
        found += due.elements
        if due.elements:
            at = i + due.first
            assert p[at] - update[at] != p[at]
            assert (p[at] - update[at] / 2) - update[at] / 2 != p[at]
    assert found > 500


def test_terms_that_cancel_are_not_certain():
    p = torch.ones(8)
    due = _due.count(p, {}, lambda p, of: [0.1 * p, -0.0999 * p])
    assert due.elements == 0
    assert of(torch.zeros(8), torch.full((8,), 1e-39)).elements == 0  # denormal numbers may be lost
    assert of(torch.tensor([torch.inf, torch.nan]), torch.ones(2)).elements == 0
    assert of(torch.ones(2), torch.tensor([torch.inf, torch.nan])).elements == 0


def test_few_values_are_a_bound_and_the_first_element_is_told():
    p = torch.arange(1.0, 11.0).view(2, 5)
    update = torch.zeros(2, 5)
    update[1] = 0.5
    due = of(p, update)
    assert (due.elements, due.first, due.value, due.change) == (5, 5, 6.0, 0.5)
    assert due.is_bound and not of(p, torch.ones(2, 5)).is_bound


def test_memory_in_another_order_is_read_row_by_row():
    p, update = torch.arange(1.0, 11.0).view(5, 2).t(), torch.zeros(2, 5)
    update[1, 3] = 1
    assert of(p, update).first == 8
    assert of(p, torch.ones(10)).elements == 0  # nobody knows how that lies


def test_a_step_of_ones_own_has_no_formula():
    class Own(torch.optim.AdamW):
        def step(self):
            pass

    class Named(torch.optim.AdamW):
        pass

    parameters = [torch.nn.Parameter(torch.ones(1))]
    assert _due.formula_of(Own(parameters)) is None
    assert not _due.is_of_torch(Own(parameters))
    assert _due.formula_of(Named(parameters)) is _due.formula_of(torch.optim.Adam(parameters))
    assert _due.formula_of(torch.optim.Adadelta(parameters)) is None
    assert _due.is_of_torch(torch.optim.Adadelta(parameters))
