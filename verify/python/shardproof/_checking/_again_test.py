"""A check against the next manifest: what was right and is right again is not looked at anew, and
whatever has changed is."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn

from shardproof import Manifest, _program, check, seal
from shardproof._checking import _look
from shardproof._checking._check import Mismatch
from shardproof._digests import _together


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(3))
        self.register_buffer("cache", torch.ones(3), persistent=False)
        self.turned = nn.Parameter(torch.randn(4, 6).T)
        self.codes = nn.Parameter(
            torch.tensor([1, 3], dtype=torch.uint8).view(torch.float8_e8m0fnu), requires_grad=False
        )


def step(model):
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(2) if each.dtype == torch.float32 else each.view(torch.uint8).add_(1)
        model.scale += 1


@pytest.fixture
def looks(monkeypatch):
    """A list that grows by 1 where all of a model is described."""
    made, init = [], _look.Own.__init__

    def counted(*arguments):
        made.append(1)
        return init(*arguments)

    monkeypatch.setattr(_look.Own, "__init__", counted)
    return made


def sent(model, version, edit=None):
    held = copy.deepcopy(model)
    if edit:
        edit(held)
    return Manifest.from_json(seal(held, version=version).to_json())


def checked(model, version, **options):
    return check(model, against=sent(model, version), **options)


def test_what_was_right_is_read_and_described_no_more(looks):
    model = Model()
    first = checked(model, 1)
    for version in (2, 3):
        step(model)
        again = checked(model, version)
        assert len(looks) == 1
        assert again.checkpoint == first.checkpoint.replace("version 1", f"version {version}")
        assert (again.comparisons, again.tensors, again.inconclusive, again.held, again.looked_at) \
            == (first.comparisons, first.tensors, (), first.held, first.looked_at)  # fmt: skip


def test_a_mask_that_is_as_it_was_is_right(looks):
    model = Model()
    model.register_buffer("mask", torch.full((3, 3), -math.inf).triu(1), persistent=False)
    for version in (1, 2):
        checked(model, version)
    assert len(looks) == 1
    model.mask[0, 0] = math.inf
    with pytest.raises(Mismatch, match="mask on rank 0: 0 NaN and 4 Inf"):
        checked(model, 3)


def test_what_is_not_compared_is_told_each_time(looks):
    model = Model()
    manifest = seal({name: each for name, each in model.state_dict().items() if name != "scale"})
    for _ in range(2):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            outcome = check(model, against=manifest)
        assert outcome.inconclusive == ("scale (not in the manifest)",)
        assert "scale (not in the manifest)" in str(told[0].message)
    assert len(looks) == 1


WRONG = {
    "a bit": lambda model: model.layers[1].weight.view(torch.int32)[3, 3].bitwise_xor_(1),
    "a bit of what is turned": lambda model: model.turned.view(torch.int32)[5, 3].bitwise_xor_(1),
    "a code": lambda model: model.codes.view(torch.uint8)[1].add_(1),
    "two that are exchanged": lambda model: model.layers[0].load_state_dict(
        {"weight": model.layers[1].weight.clone(), "bias": model.layers[1].bias.clone()}
    ),
    "a buffer": lambda model: model.scale.neg_(),
    "NaN in what is not sent": lambda model: model.cache.fill_(math.nan),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_named_as_by_the_first_check(wrong, looks):
    model = Model()
    checked(model, 1)
    step(model)
    manifest = sent(model, 2)
    with torch.no_grad():
        WRONG[wrong](model)
    with pytest.raises(Mismatch) as second:
        check(model, against=manifest)
    assert len(looks) == 2
    with pytest.raises(Mismatch) as alone:
        check(copy.deepcopy(model), against=manifest)
    assert [each.tensor for each in second.value.findings] == [
        each.tensor for each in alone.value.findings
    ]


def test_a_tensor_that_was_not_loaded_has_the_version_that_it_still_is():
    model, old = Model(), None
    for version in (1, 2, 3):
        manifest = sent(model, version)
        if version == 3:
            with torch.no_grad():
                model.layers[0].bias.copy_(old)
            with pytest.raises(
                Mismatch, match="layers.0.bias on rank 0: it is still that of version 2"
            ):
                check(model, against=manifest)
        else:
            check(model, against=manifest)
        old = model.layers[0].bias.detach().clone()
        step(model)


def replaced(model):
    model.layers[0].weight = nn.Parameter(model.layers[0].weight.detach().clone())
    model.head.weight = model.embed.weight = nn.Parameter(model.embed.weight.detach().clone())
    model.scale = model.scale.clone()


def moved(model):
    model.layers[0].weight.data = model.layers[0].weight.detach().clone()
    model.turned.data = model.turned.detach().T.contiguous().T


def loaded_anew(model):
    for module in model.layers:
        module.weight = nn.Parameter(module.weight.detach().clone())
        module.weight.weight_loader = lambda parameter, loaded: parameter.copy_(loaded)
        module.weight.output_dim = 0


# Weights that are put into new memory at each sync, as engines do: only values are others.
ELSEWHERE = {
    "parameters that are other objects": replaced,
    "memory elsewhere": moved,
    "parameters with loaders of their own": loaded_anew,
}


@pytest.mark.parametrize("change", ELSEWHERE)
def test_a_model_whose_weights_lie_elsewhere_is_described_no_more(change, looks):
    model, first = Model(), []
    for version in (1, 2, 3):
        ELSEWHERE[change](model)
        step(model)
        outcome = checked(model, version)
        first = first or [outcome]
        assert outcome.comparisons == first[0].comparisons
    assert len(looks) == 1
    ELSEWHERE[change](model)
    manifest = sent(model, 4)
    with torch.no_grad():
        model.layers[0].weight[3, 3] += 1
    with pytest.raises(Mismatch, match="layers.0.weight on rank 0"):
        check(model, against=manifest)


def test_two_buffers_that_take_turns_are_both_read(looks):
    """Weights that alternate between two stretches of memory, each a view of a flat one."""
    model, manifests = nn.Module(), []
    flat = [torch.randn(3, 4, 4) for _ in range(2)]
    model.a = nn.Parameter(torch.empty(4, 4), requires_grad=False)
    model.b = nn.Parameter(torch.empty(4, 4), requires_grad=False)

    def point(turn):
        model.a.data, model.b.data = flat[turn][0], flat[turn][1]

    for turn in (0, 1):
        point(turn)
        manifests.append(sent(model, turn))
    for turn in (0, 1):
        point(turn)
        check(model, against=manifests[turn])
    assert len(looks) == 1
    point(0)
    with pytest.raises(Mismatch, match="a on rank 0: it is still that of version 0"):
        check(model, against=manifests[1])


def restrided(model):
    model.layers[0].weight.data = model.layers[0].weight.detach().T.contiguous().T


def offset(model):
    model.layers[0].weight.data = torch.cat([torch.zeros(1, 4), model.layers[0].weight])[1:]


def one_memory(model):
    model.layers[0].weight.data = model.layers[1].weight.data


def overlapping(model):
    flat = torch.randn(7, 4)
    model.layers[0].weight.data, model.layers[1].weight.data = flat[:4], flat[3:]


def untied(model):
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())


def swapped(model):
    model.layers[0], model.layers[1] = model.layers[1], model.layers[0]


def not_saved(model):
    model._non_persistent_buffers_set.add("scale")


# What is changed, and whether all is right with the manifest of the model as it is then.
CHANGED = {
    "memory of another order": restrided,
    "memory within other memory": offset,
    "memory that another has": one_memory,
    "memory that another has a part of": overlapping,
    "no more tied": untied,
    "layers in another order": swapped,
    "one more": lambda model: model.register_buffer("more", torch.ones(2)),
    "one less": lambda model: delattr(model, "scale"),
    "another dtype": lambda model: model.layers[0].half(),
    "another shape": lambda model: setattr(
        model.embed.weight, "data", model.embed.weight.detach().reshape(4, 6)
    ),
    "needs no gradient": lambda model: model.turned.requires_grad_(False),
    "a buffer that is saved no more": not_saved,
    "an attribute": lambda model: setattr(model.turned, "allreduce", False),
    "a module of another class": lambda model: setattr(
        model.layers[0], "__class__", type("Other", (nn.Linear,), {})
    ),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_model_that_is_another_is_looked_at_anew(change, looks):
    model = Model()
    checked(model, 1)
    CHANGED[change](model)
    checked(model, 2)
    assert len(looks) == 2


OTHER = {
    "a tensor more": lambda model: model.register_buffer("more", torch.ones(2)),
    "another shape": lambda model: setattr(model, "scale", torch.ones(4)),
    "another dtype": lambda model: setattr(model, "scale", torch.ones(3).half()),
    "a head that is tied no more": untied,
}


@pytest.mark.parametrize("other", OTHER)
def test_a_manifest_of_another_layout_is_told(other, looks):
    model = Model()
    checked(model, 1)
    manifest = sent(model, 2, OTHER[other])
    if other == "a head that is tied no more":  # so far right: the engine has one that is tied
        check(model, against=manifest)
        step(model)

        def head_only(held):
            untied(held)
            held.head.weight.data += 1

        manifest = sent(model, 3, head_only)
    with pytest.raises(Mismatch):
        check(model, against=manifest)
    assert len(looks) == 2


def test_what_the_engine_does_not_have_must_still_be_equal_to_what_it_has(looks):
    """The trainer sends a tied head; the engine has the embedding alone."""
    model, engine = Model(), nn.Module()
    engine.embed = copy.deepcopy(model.embed)

    def manifest(version, head):
        state = {"embed.weight": engine.embed.weight.detach(), "head.weight": head}
        return seal(state, version=version)

    for version in (1, 2):
        check(engine, against=manifest(version, engine.embed.weight.detach()))
    assert len(looks) == 1
    with pytest.raises(Mismatch, match="head.weight: it was sent, and no rank of the model holds"):
        check(engine, against=manifest(3, engine.embed.weight.detach() + 1))


def test_other_arguments_are_followed(looks):
    model = Model()
    groups = {"scale": [0]}
    for options in ({}, {"ignore": ["cache"]}, {"finite": False}, {"groups": groups}):
        for _ in range(2):
            checked(model, 1, **options)
    assert len(looks) == 4
    groups["cache"] = [0]  # the same object, and no more what it said
    checked(model, 1, groups=groups)
    assert len(looks) == 5
    for _ in range(2):
        checked(model, 1, groups={"scale": (each for each in [0])})  # which is read once
    assert len(looks) == 7


@pytest.mark.skipif(_program.find() is None, reason="no command `shardproof`")
def test_a_file_of_rules_that_was_edited_is_read_anew(looks, tmp_path):
    """Padding, too: it must be what it was, and no more is asked of it."""
    engine, sent_, rules = nn.Module(), {"a": torch.randn(3, 2), "b": torch.ones(2)}, tmp_path / "m"
    engine.w = nn.Parameter(torch.cat([sent_["a"], torch.zeros(2, 2)]))
    engine.v = nn.Parameter(sent_["b"].clone())
    rules.write_text("pad(a, with=0) -> w\nb -> v\n")
    for _ in range(2):
        assert check(engine, against=seal(sent_), map=rules).inconclusive == ()
    assert len(looks) == 1
    with torch.no_grad():
        engine.w[4, 1] = -0.0
    with pytest.raises(Mismatch, match="1 element of its padding is not 0.0"):
        check(engine, against=seal(sent_), map=rules)
    rules.write_text("pad(a, with=-0) -> w\nb -> v\n")
    with pytest.raises(Mismatch, match="3 elements of its padding are not -0.0"):
        check(engine, against=seal(sent_), map=rules)


def test_a_version_that_goes_back_is_refused(looks):
    model = Model()
    checked(model, 2)
    with pytest.raises(RuntimeError, match="its version is 1"):
        checked(model, 1)


def test_what_is_changed_while_it_is_read_is_not_told_as_right(monkeypatch, looks):
    model = Model()
    checked(model, 1)
    manifest, digest = sent(model, 2), _together.Table.digest

    def while_it_is_read(self, tensors):
        found = digest(self, tensors)
        with torch.no_grad():
            model.scale += 1
        return found

    monkeypatch.setattr(_together.Table, "digest", while_it_is_read)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = check(model, against=manifest)
    assert len(looks) == 2 and outcome.inconclusive


def test_nothing_of_a_model_is_kept():
    model = Model()
    checked(model, 1)
    weight = model.layers[0].weight  # which could not be swapped if anything else referred to it
    torch.utils.swap_tensors(weight, nn.Parameter(weight.detach().clone()))
