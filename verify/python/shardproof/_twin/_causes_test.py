"""Gradients that a job has scaled by itself, as by clipping by hand."""

import pytest
import torch

from . import _causes, _stage, _step_by_step
from ._gradients import Gradients
from ._step_by_step_test import parts_of

NAMES = ("a", "b", "c")
GRADS = {name: torch.arange(1.0, 9.0).view(4, 2) * (1 + at) for at, name in enumerate(NAMES)}


def judged(*of_rank, off=1e-7):
    """of_rank: of each rank, by name, its rows of the gradient, or None. off: what rounding may
    change."""
    mean = {name: grad.double() for name, grad in GRADS.items()}
    expected = Gradients([mean] * 2, [], dict.fromkeys(NAMES, off), 2, 1.0, 2**-24,
                         exact_of_rank=[mean] * 2)  # fmt: skip
    placed = {name: parts_of(grad) for name, grad in GRADS.items()}
    parts = [
        {name: (grad, placed[name][rank]) for name, grad in own.items()}
        for rank, own in enumerate(of_rank)
    ]
    stage = _stage.Stage("stepped@1")
    return _causes.judged(stage, expected, None, parts, [[], []]), expected


def own(rank, factor):
    return {name: factor * parts_of(grad)[rank].local for name, grad in GRADS.items()}


def test_what_is_wrong_besides_a_factor_of_all_is_named_alone():
    wrong = own(1, 0.25)
    wrong["b"] = wrong["b"].roll(1)
    found, _ = judged(own(0, 0.25), wrong)
    assert [(each["tensor"], each["ranks"]) for each in found] == [("b", [1])]


def test_ranks_that_clip_each_by_a_norm_of_its_own_are_all_named():
    found, _ = judged(own(0, 0.5), own(1, 0.25))
    assert {rank for each in found for rank in each["ranks"]} == {0, 1}
    assert "by different factors: 0.5, 0.25" in found[0]["cause"]


@pytest.mark.parametrize("factors", [(0.5, 0.25), (1.0, 0.9), (1.2, 1.0)])
def test_factors_of_ranks_are_told_apart_where_elements_are_far_off(factors):
    found, _ = judged(*(own(rank, factor) for rank, factor in enumerate(factors)), off=20.0)
    words = ", ".join(f"{factor:.6g}" for factor in factors)
    assert [each["ranks"] for each in found] == [[0, 1]] and words in found[0]["what"]


def rounded(tensors, seed):
    """As computing them in few bits makes them."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor * (1 + 0.01 * torch.randn(tensor.shape, generator=generator))
        for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("factor", [1.0, 1.3, 0.7, None])
def test_a_tensor_in_bf16_is_off_where_no_element_is(factor):
    """factor: what rank 1 multiplies one gradient by; None where it has none."""
    line = torch.linspace(-1, 1, 64, dtype=torch.float64).view(8, 8)
    exact = {name: line * (2 + at) for at, name in enumerate(NAMES)}
    mean = rounded(exact, 1)
    off = {name: 16 * float((mean[name] - exact[name]).abs().max()) for name in NAMES}
    expected = Gradients([mean] * 2, [], off, 2, 1.0, 2**-9, exact_of_rank=[exact] * 2)
    seen = rounded(exact, 2)
    parts = [{name: (parts_of(grad)[rank].local, parts_of(grad)[rank])
              for name, grad in seen.items()} for rank in range(2)]  # fmt: skip
    grad, part = parts[1]["b"]
    parts[1]["b"] = None if factor is None else grad * factor, part
    found = _causes.judged(_stage.Stage("stepped@1"), expected, None, parts, [[], []])
    assert [(each["tensor"], each["ranks"]) for each in found] == [("b", [1])] * (factor != 1.0)


def test_a_factor_of_all_ranks_is_not_told_apart_where_elements_are_far_off():
    assert judged(own(0, 0.5), own(1, 0.5), off=20.0)[0] == []


def test_a_rank_that_has_next_to_nothing_tells_no_factor():
    assert judged({"b": None, "c": None}, own(1, 0.5), off=20.0)[0] == []


def test_a_gradient_that_is_not_there_was_not_rounded():
    found, _ = judged(dict.fromkeys(NAMES), dict.fromkeys(NAMES))
    assert "there is none" in found[0]["what"] and not found[0]["cause"]


@pytest.mark.parametrize(
    ("scaled", "is_told"),
    [
        ([(0.5, 1.0)], False),
        ([(0.5, 1.0), (0.4, 1.0), (0.9, 1.004)], False),  # clipped to one norm
        ([(0.5, 1.0), (0.5, 1.7)], False),  # divided by one number
        ([(0.5, 1.0), (0.4, 1.1)], True),
    ],
)
def test_clipping_makes_one_norm_and_a_mean_one_factor(scaled, is_told):
    assert bool(_step_by_step._unlike_scales([[(*each, 1e-6) for each in scaled]])) == is_told
    assert not _step_by_step._unlike_scales([[(*each, 0.2) for each in scaled]]), "in few bits"


@pytest.mark.parametrize(
    ("others", "is_told"),
    [
        ([(0.5, 4.0), (0.4, 3.0)], False),  # with 3 and 4: one norm of all
        ([(0.5, 4.0), (0.4, 4.0)], True),
        ([(0.4, 4.0), (0.5, 3.0)], True),  # not by one factor in a step
        ([(0.5, 4.0)], True),
    ],
)
def test_clipping_by_hand_makes_one_norm_of_all_optimizers(others, is_told):
    of_each = [[(*each, 1e-6) for each in own] for own in ([(0.5, 3.0), (0.4, 4.0)], others)]
    assert bool(_step_by_step._unlike_scales(of_each)) == is_told


def test_how_gradients_were_scaled_is_kept():
    found, expected = judged(own(0, 0.25), own(1, 0.25))
    norm = torch.cat([grad.reshape(-1) for grad in GRADS.values()]).norm().item()
    assert found == [] and expected.scaled_to[:2] == pytest.approx((0.25, norm / 4))
