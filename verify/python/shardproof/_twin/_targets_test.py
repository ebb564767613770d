"""Losses that are sums over targets, which a job divides by their number."""

import dataclasses

import pytest
import torch

from ._step_by_step_test import FIRST, MEAN, SECOND, gradients, judged
from ._targets import Targets


@pytest.mark.parametrize(
    ("own", "loss", "counts"),
    [
        ([("sum", 4), ("sum", 3)], lambda parts: parts[0] + parts[1], (0, 7)),
        ([("sum", 4)], lambda parts: parts[0] / 4, (0, 0)),  # which the job divides by itself
        ([("mean", 4)], lambda parts: parts[0], (4, 0)),
        ([("none", 4)], lambda parts: parts[0].sum(), (0, 0)),
    ],
)
def test_of_how_many_targets_a_loss_is_the_sum(own, loss, counts):
    targets, parts = Targets(), []
    targets.begin()
    for reduction, count in own:
        labels = torch.tensor([1] * count + [-100])
        logits = torch.arange(2.0).expand(count + 1, 2)
        parts.append(torch.nn.functional.cross_entropy(logits, labels, reduction=reduction))
        targets.took(parts[-1], None, (logits, labels), {"reduction": reduction})
    assert targets.counts(float(loss(parts))) == counts


def test_losses_of_each_sample_by_itself_are_left_alone():
    """As those of differential privacy are, within a loss and outside of one."""
    targets = Targets()

    def loss(logits, label):
        result = torch.nn.functional.cross_entropy(logits[None], label[None])
        targets.took(result, None, (logits[None], label[None]), {})
        return result

    of_each = torch.func.vmap(torch.func.grad(loss))
    for begin in (lambda: None, targets.begin):
        begin()
        assert of_each(torch.randn(3, 4), torch.tensor([0, 1, 2])).shape == (3, 4)
    assert targets.counts(1.0) == (0, 0)


@pytest.mark.parametrize(
    ("number", "weight", "says"),
    [
        (1, 2 / 82, ""),  # over all targets of two ranks, each of which takes part in a mean
        (2, 4 / 82, ""),
        (2, 2 / 82, "82 each, where 41 (82 / 2 ranks) makes their mean: they were divided by"),
        (2, 4 / 41, "summed over the ranks"),
        (2, 4 / 100, None),
    ],
)
def test_losses_that_are_sums_over_targets_are_divided_by_their_number(number, weight, says):
    """As num_items_in_batch of Transformers is; with the ranks, where these are averaged."""
    sums = dataclasses.replace(gradients(FIRST, SECOND), number=number, targets=82)
    found, stage = judged(MEAN.float(), dataclasses.replace(sums, weight=weight))
    said = ": ".join(text for one in found for text in (one["what"], one["cause"]))
    assert bool(said) == bool(says) and (says or "") in said
    assert bool(stage.left_out) == (says is None)
