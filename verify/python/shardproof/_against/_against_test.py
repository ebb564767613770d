"""A live model against a checkpoint of it: of one process alone, in every format."""

import copy
import json
import os

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch import nn

from shardproof._against._against import EXTRA
from shardproof._checking._check import Mismatch, check
from shardproof._checking._taken import digests
from shardproof._dtypes import DTYPES
from shardproof._holdings._layout import local_runs, runs_of
from shardproof._stored import _read
from shardproof._stored._checkpoint import open_stored
from shardproof._stored._key_names import Ambiguous, prefix_of

KINDS = ("dcp", "safetensors", "torch")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.layer = nn.Linear(5, 5).to(torch.bfloat16)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.arange(3))
        self.register_buffer("cache", torch.ones(2), persistent=False)


def model():
    torch.manual_seed(0)
    return Model()


def state_of(live, prefix=""):
    return {prefix + name: value.detach().clone() for name, value in live.state_dict().items()}


def save(kind, state, path):
    if kind == "dcp":
        dcp.save(state, checkpoint_id=path, no_dist=True)
        return path
    os.makedirs(path)
    file = path / ("model.safetensors" if kind == "safetensors" else "model.pt")
    (save_file if kind == "safetensors" else torch.save)(state, file)
    return path


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def test_a_sound_save_of_every_format_passes(kind, tmp_path):
    path = save(kind, state_of(model(), "model."), tmp_path / "c")
    outcome = check(model(), against=path, strict=True)
    assert outcome.inconclusive == ()
    assert "below 'model.'" in outcome.checkpoint and str(path) in outcome.checkpoint
    assert outcome.comparisons - check(model()).comparisons == 5


def test_one_element_is_named_with_both_values(kind, tmp_path):
    state = state_of(model())
    state["layer.weight"][3, 2] = 0.5
    path = save(kind, state, tmp_path / "c")
    with pytest.raises(Mismatch) as raised:
        check(model(), against=path)
    (finding,) = raised.value.findings
    assert (finding.tensor, finding.ranks, finding.index) == ("layer.weight", (0,), 17)
    assert "in the checkpoint 0x3f00 (0.5); 1 of 25 differ" in finding.what
    assert f"({model().layer.weight[3, 2].item()})" in finding.what


def test_a_stale_save_names_every_tensor_that_has_changed(kind, tmp_path):
    live = model()
    path = save(kind, state_of(live), tmp_path / "c")
    with torch.no_grad():
        for parameter in live.parameters():
            parameter += 1
    with pytest.raises(Mismatch) as raised:
        check(live, against=path)
    names = {finding.tensor for finding in raised.value.findings}
    assert names == {"embed.weight", "head.weight", "layer.weight", "layer.bias"}


def test_digests_taken_at_the_save_are_held_against_it_when_it_is_written(kind, tmp_path):
    live = model()
    taken, state = digests(live), state_of(live)
    before = digests(live)
    with torch.no_grad():
        live.layer.bias += 1  # the next step, while the save goes on
    path = save(kind, state, tmp_path / "c")
    outcome = taken.check(path, strict=True)
    assert outcome.comparisons == 5 and outcome.inconclusive == ()
    path = save(kind, state_of(live), tmp_path / "d")
    with pytest.raises(Mismatch) as raised:
        before.check(path)
    assert [(one.tensor, one.index) for one in raised.value.findings] == [("layer.bias", None)]


def test_digests_of_what_is_no_model_are_refused_when_they_are_used(tmp_path):
    with pytest.raises(RuntimeError, match="rank 0: TypeError: the model is a str"):
        digests("no model").check(tmp_path)


def test_a_tied_tensor_may_have_one_name_in_the_checkpoint(kind, tmp_path):
    state = state_of(model())
    del state["head.weight"]
    path = save(kind, state, tmp_path / "c")
    assert check(model(), against=path).inconclusive == ()


def test_what_one_side_lacks_is_said_and_a_finding_only_if_strict(kind, tmp_path):
    state = state_of(model())
    del state["layer.bias"]
    state["other"] = torch.ones(2)
    path = save(kind, state, tmp_path / "c")
    with pytest.warns(UserWarning, match="layer.bias"):
        outcome = check(model(), against=path)
    assert sorted(outcome.inconclusive) == [
        "layer.bias (not in the checkpoint)", f"other ({EXTRA})",
    ]  # fmt: skip
    with pytest.raises(Mismatch) as raised:
        check(model(), against=path, strict=True)
    assert {finding.kind for finding in raised.value.findings} == {"uncompared"}


@pytest.mark.parametrize("changed", [torch.ones(5), torch.ones(5, 5, dtype=torch.float32)])
def test_another_dtype_or_shape_is_a_finding_that_says_both(kind, changed, tmp_path):
    changed = changed.to(torch.bfloat16) if changed.dim() == 1 else changed
    path = save(kind, state_of(model()) | {"layer.weight": changed}, tmp_path / "c")
    with pytest.raises(Mismatch) as raised:
        check(model(), against=path)
    (finding,) = raised.value.findings
    assert finding.what == (
        f"it is a torch.bfloat16 [5, 5], in the checkpoint a {changed.dtype} {list(changed.shape)}"
    )


def test_nothing_to_compare_is_no_pass(kind, tmp_path):
    path = save(kind, {"other": torch.ones(2)}, tmp_path / "c")
    with pytest.raises(RuntimeError, match="nothing was compared with .*c: no tensor"):
        check(model(), against=path)


def test_a_checkpoint_that_is_not_there_or_cut_short_is_told(kind, tmp_path):
    with pytest.raises(
        RuntimeError, match="rank 0 cannot read the checkpoint: .*nothing: No such file"
    ):
        check(model(), against=tmp_path / "nothing")
    path = save(kind, state_of(model()), tmp_path / "c")
    (name,) = [each for each in os.listdir(path) if each != ".metadata"]
    os.truncate(path / name, os.path.getsize(path / name) - 30)
    with pytest.raises(RuntimeError, match=name) as raised:
        check(model(), against=path)
    assert "\n" not in str(raised.value)


def test_an_optimizer_is_compared_below_a_prefix_of_its_own(tmp_path):
    live = model()
    optimizer = torch.optim.AdamW(live.parameters())
    for parameter in live.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    from torch.distributed.checkpoint.state_dict import get_state_dict

    of_model, of_optimizer = get_state_dict(live, optimizer)
    state = {"app": {"model": of_model, "optim": of_optimizer}}
    path = save("dcp", state, tmp_path / "c")
    outcome = check(live, optimizer=optimizer, against=path, strict=True)
    assert "below 'app.model.'" in outcome.checkpoint
    assert "below 'app.optim.state.'" in outcome.checkpoint
    optimizer.state[live.layer.bias]["exp_avg"][1] += 1
    with pytest.raises(Mismatch) as raised:
        check(live, optimizer=optimizer, against=path)
    assert [(one.tensor, one.index) for one in raised.value.findings] == [
        ("optimizer.layer.bias.exp_avg", 1)
    ]


def test_a_transposed_tensor_is_compared_element_by_element(tmp_path):
    state = state_of(model())
    state["layer.weight"] = state["layer.weight"].t().contiguous().t()
    path = save("torch", state, tmp_path / "c")
    assert check(model(), against=path, strict=True).inconclusive == ()
    state["layer.weight"][2, 1] = 0.5
    path = save("torch", state, tmp_path / "d")
    with pytest.raises(Mismatch) as raised:
        check(model(), against=path)
    assert raised.value.findings[0].index == 11


def test_names_of_a_wrapped_model_are_those_of_the_model(tmp_path):
    state = {name.replace("layer.", "layer._orig_mod."): value
             for name, value in state_of(model()).items()}  # fmt: skip
    path = save("safetensors", {k: v for k, v in state.items() if k != "head.weight"},
                tmp_path / "c")  # fmt: skip
    assert check(model(), against=path).inconclusive == ()


def test_of_a_shard_no_more_is_read_than_its_own_bytes(tmp_path, monkeypatch):
    whole = torch.arange(64 * 4096, dtype=torch.int32).reshape(64, 4096)
    save("safetensors", {"w": whole}, tmp_path / "c")
    stored = open_stored(tmp_path / "c").tensors["w"]
    done = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda f, v, at: done.append(preadv(f, v, at)) or done[-1])
    for owned in ([[(8, 16)], [(0, 4096)]], [[(0, 64)], [(1024, 2048)]]):
        done.clear()
        runs = runs_of((64, 4096), owned)
        seen = sum(filed.length * filed.count
                   for _, filed, _ in _read.read_runs(stored, runs, 4))  # fmt: skip
        assert sum(done) == seen == 4 * sum(run.length * run.count for run in runs)


@pytest.mark.parametrize("shape", [(3, 5), (70, 3), (1000,)])
def test_a_small_buffer_gives_the_same_bytes(shape, tmp_path, monkeypatch):
    monkeypatch.setattr(_read, "_BUFFER_BYTES", 64)
    whole = torch.randn(shape)
    for kind in KINDS:
        save(kind, {"w": whole}, tmp_path / kind)
        stored = open_stored(tmp_path / kind).tensors["w"]
        seen = torch.zeros(whole.numel() * 4, dtype=torch.uint8)
        for data, filed, own in _read.read_runs(stored, local_runs(shape), 4):
            assert data.numel() <= 64
            for i in range(filed.count):
                at = filed.local_start + i * filed.local_stride
                to = own.local_start + i * own.local_stride
                seen[to : to + own.length] = data[at : at + filed.length]
        assert torch.equal(seen, whole.reshape(-1).view(torch.uint8))


def test_an_element_of_a_slice_of_more_is_named(tmp_path):
    live = nn.Module()
    live.register_buffer("w", torch.arange(20.0)[10:])
    state = state_of(live)
    state["w"][3] = 0.5
    path = save("safetensors", state, tmp_path / "c")
    with pytest.raises(Mismatch, match=r"element 3 is 0x41500000 \(13.0\), in the checkpoint 0x3f"):
        check(live, against=path)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_an_element_of_every_dtype_is_named(dtype, tmp_path):
    live = nn.Module()
    live.register_buffer("w", torch.zeros(9 * dtype.itemsize, dtype=torch.uint8).view(dtype))
    state = state_of(live)
    state["w"].view(torch.uint8)[4 * dtype.itemsize] = 1
    path = save("safetensors", state, tmp_path / "c")
    with pytest.raises(Mismatch) as raised:
        check(live, against=path)
    assert [(one.tensor, one.index) for one in raised.value.findings] == [("w", 4)]


def test_the_prefix_under_which_most_match_is_taken():
    assert prefix_of(["a", "b.c"], ["x.a", "x.b.c", "y.a"]) == "x."
    assert prefix_of(["a"], ["b"]) is None
    assert prefix_of(["a", "b"], ["ema.a", "ema.b", "model.a", "model.b"]) == "model."
    with pytest.raises(Ambiguous, match="pass the model's as prefix="):
        prefix_of(["w"], ["0.w", "1.w"])


def test_the_caller_may_say_the_prefix(tmp_path):
    live = nn.Linear(2, 2)
    other = copy.deepcopy(live)
    with torch.no_grad():
        other.weight += 1
    path = save("safetensors", state_of(live, "0.") | state_of(other, "1."), tmp_path / "c")
    with pytest.raises(RuntimeError, match="pass the model's as prefix="):
        check(live, against=path)
    check(live, against=path, prefix="0.")
    with pytest.raises(Mismatch):
        check(live, against=path, prefix="1.")


def test_an_index_that_is_no_json_is_one_line(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text("{")
    with pytest.raises(RuntimeError, match="JSONDecodeError") as raised:
        check(model(), against=tmp_path)
    assert "\n" not in str(raised.value)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": 3}))
    with pytest.raises(RuntimeError, match="expected a weight_map"):
        check(model(), against=tmp_path)
