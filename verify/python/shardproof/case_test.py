import json
import math
import pathlib

import pytest
import torch
from safetensors.torch import save_file

from shardproof import case as case_module
from shardproof._case_defaults import ROPE, TENSOR
from shardproof.case import Case, _inverse_frequencies, read_order

SCHEMA = pathlib.Path(__file__).parents[3] / "fixtures" / "schema" / "case.schema.json"

TENSORS = [
    {"name": "embed.weight", "shape": [4, 2], "dtype": "F32"},
    {"name": "layers.0.scale", "shape": [3], "dtype": "BF16", "attributes": {"tag": 5}},
    {"name": "head.weight", "shape": [4, 2], "dtype": "F32"},
    {"name": "rope", "kind": "buffer", "shape": [2], "dtype": "F32", "persistent": False,
     "init": "ones", "built_real": True},
]  # fmt: skip
MODEL = {"tensors": TENSORS, "ties": [["embed.weight", "head.weight"]]}


def case_of(**fields):
    common = dict(rank=0, world_size=1, checkpoint="", save_to="", mesh={}, phase="values")
    common |= dict(strategy="plain", seed=3, saves=False, resumes=False, model=MODEL)
    return Case(**common | fields)


@pytest.mark.parametrize(("part", "ours"), [("tensor", TENSOR), ("rope", ROPE)])
def test_defaults_are_those_of_the_schema(part, ours):
    properties = json.loads(SCHEMA.read_text())["$defs"][part]["properties"]
    assert ours == {name: of["default"] for name, of in properties.items() if "default" in of}


def test_a_synthetic_model_has_the_tensors_of_its_spec():
    model = case_of().build("cpu")
    assert sorted(dict(model.named_parameters())) == ["embed.weight", "layers.0.scale"]
    assert model.embed.weight is model.head.weight
    assert model.get_parameter("layers.0.scale").dtype == torch.bfloat16
    assert model.get_parameter("layers.0.scale").tag == 5
    assert "rope" not in model.state_dict() and model.rope.tolist() == [1, 1]


def test_on_meta_only_what_is_built_real_has_memory():
    model = case_of().build("meta")
    assert model.embed.weight.is_meta and not model.rope.is_meta


def test_values_depend_on_the_name_alone():
    again = {"tensors": list(reversed(TENSORS)), "ties": MODEL["ties"]}
    a, b = (case_of(model=m).build("cpu").state_dict() for m in (MODEL, again))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_strides_are_as_the_spec_has_them():
    spec = {"name": "w", "shape": [2, 3], "dtype": "F32", "strides": [1, 2]}
    for device in ("cpu", "meta"):
        weight = case_of(model={"tensors": [spec]}).build(device).w
        assert weight.stride() == (1, 2)


@pytest.mark.parametrize("name", ["training", "forward.weight"])
def test_a_name_that_a_module_has_already_is_refused(name):
    model = {"tensors": [{"name": name, "shape": [1], "dtype": "F32"}]}
    with pytest.raises(ValueError, match="is an attribute of torch.nn.Module"):
        case_of(model=model).build("cpu")


def test_every_parameter_has_a_gradient_of_the_loss():
    model = case_of().build("cpu")
    case_of().loss(model, 1).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_the_loss_depends_on_rank_and_step_and_draws_one_number():
    model = case_of().build("cpu")
    torch.manual_seed(1)
    first = case_of().loss(model, 1)
    after = torch.rand(1)
    assert case_of(rank=1).loss(model, 1) != first != case_of().loss(model, 2)
    torch.manual_seed(1)
    torch.rand(1)
    assert torch.equal(torch.rand(1), after)


def test_the_step_that_is_saved_is_the_middle_one():
    assert [case_of(steps=steps).saved_step for steps in (0, 1, 4, 5)] == [0, 0, 2, 2]


def test_a_checkpoint_is_read_file_by_file(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "1.safetensors")
    save_file({"b": torch.zeros(1, dtype=torch.int8)}, tmp_path / "2.safetensors")
    case = case_of(checkpoint=str(tmp_path))
    assert case.dtypes == {"a": torch.float32, "b": torch.int8}
    assert case.state_dict()["a"].tolist() == [1, 1]


def test_an_order_is_read_into_a_case(tmp_path):
    order = {
        "world_size": 2, "source": "in", "save_to": "out", "phase": "train", "strategy": "plain",
        "mesh": [{"name": "dp_shard", "size": 2}], "saves": True, "resumes": False, "steps": 4,
        "case": {"seed": 9, "options": {"save": "dcp"}, "model": {"tensors": []}},
    }  # fmt: skip
    path = tmp_path / "order.json"
    path.write_text(json.dumps(order))
    case, whole = read_order(str(path), 1)
    assert (case.rank, case.mesh, case.seed, case.saved_step) == (1, {"dp_shard": 2}, 9, 2)
    assert (case.checkpoint, case.save_to, case.options) == ("in", "out", {"save": "dcp"})
    assert whole == order
    assert not case.measures_memory and case_of(phase="memory").measures_memory


# ---- RoPE, against the numbers that the formulas give by hand ------------------------------------


def test_plain_frequencies_are_powers_of_theta():
    found = _inverse_frequencies({"rope_type": "default", "rope_theta": 10000.0}, 4)
    assert torch.allclose(found, torch.tensor([1.0, 0.1, 0.01, 0.001]))


def test_linear_scaling_divides_them():
    found = _inverse_frequencies({"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}, 4)
    assert torch.allclose(found, torch.tensor([0.25, 0.025, 0.0025, 0.00025]))


def test_longrope_divides_each_by_its_own():
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 2.0, 4.0, 8.0]}
    expected = torch.tensor([1.0, 0.05, 0.0025, 0.000125])
    assert torch.allclose(_inverse_frequencies(rope, 4), expected)


def test_proportional_leaves_what_is_not_rotated_still():
    rope = {"rope_type": "proportional", "rope_theta": 1e4, "rotated": 2}
    assert torch.allclose(_inverse_frequencies(rope, 4), torch.tensor([1.0, 0.1, 0.0, 0.0]))


def test_llama3_keeps_short_waves_and_divides_long_ones():
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0}
    rope |= {"original_max_position_embeddings": 8192}
    plain = _inverse_frequencies({"rope_type": "default"}, 64)
    found = _inverse_frequencies(rope, 64)
    waves = 2 * math.pi / plain
    short, long = waves < 8192 / 4, waves > 8192
    assert short.any() and long.any()
    assert torch.equal(found[short], plain[short])
    assert torch.allclose(found[long], plain[long] / 8)
    between = ~short & ~long
    assert (found[between] <= plain[between]).all() and (found[between] >= plain[between] / 8).all()


def test_yarn_keeps_fast_dims_and_divides_slow_ones():
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
    rope |= {"original_max_position_embeddings": 4096}
    plain = _inverse_frequencies({"rope_type": "default"}, 64)
    found = _inverse_frequencies(rope, 64)
    assert torch.allclose(found[0], plain[0]) and torch.allclose(found[-1], plain[-1] / 4)
    ratio = found / plain
    assert (ratio[1:] <= ratio[:-1] + 1e-6).all()


def test_every_dtype_has_one_name():
    assert len(case_module.DTYPES) == len(set(case_module.DTYPES.values()))
