"""What a rank has of a checkpoint's tensors under a map: the sum over ranks is the digest of each,
however the model's tensors are fused and cut."""

import dataclasses
import itertools
import random

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from shardproof import _program, check, engines, seal
from shardproof._against import _map_plan, _mapped
from shardproof._checking._check import Mismatch
from shardproof._digests._digest import add, digest_runs
from shardproof._holdings._holding import Holding
from shardproof._holdings._layout import Placement, Run, local_runs
from shardproof._judging import _own, _whole
from shardproof._judging._transport import Transport
from shardproof._stored._checkpoint import Checkpoint, Stored

pytestmark = pytest.mark.skipif(_program.find() is None, reason="no command `shardproof`")


def noise(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


# Rules, the checkpoint's tensors, and the model's made of them by plain PyTorch.
def renamed():
    a = {"layers.0.w": noise(4, 3), "layers.1.w": noise(4, 3)}
    return (
        ["layers.{l}.w -> blocks.{l}.w"],
        a,
        {f"blocks.{i}.w": a[f"layers.{i}.w"] for i in (0, 1)},
    )


def fused_by_groups():
    q, k, v = noise(8, 5), noise(4, 5), noise(4, 5)
    parts = [torch.cat([q.chunk(2)[g], k.chunk(2)[g], v.chunk(2)[g]]) for g in (0, 1)]
    return (
        ["interleave(q, k, v, groups=2) -> qkv"],
        {"q": q, "k": k, "v": v},
        {"qkv": torch.cat(parts)},
    )


def split():
    qkv = noise(12, 5)
    q, k, v = qkv.split([6, 3, 3])
    return ["qkv -> cat(q, k, v)"], {"qkv": qkv}, {"q": q, "k": k, "v": v}


def packed_experts():
    a = {f"e.{e}.{part}": noise(3, 4) for e in range(4) for part in ("gate", "up")}
    w13 = torch.stack([torch.cat([a[f"e.{e}.gate"], a[f"e.{e}.up"]]) for e in range(4)])
    return ["stack(cat(e.{e}.gate, e.{e}.up)) -> w13"], a, {"w13": w13}


def turned():
    a = {f"e.{e}": noise(3, 4, dtype=torch.bfloat16) for e in range(2)}
    return ["stack(transpose(e.{e})) -> w2"], a, {"w2": torch.stack([a["e.0"].T, a["e.1"].T])}


def permuted_and_reshaped():
    a = {"w": noise(2, 3, 4), "r": noise(12, 2)}
    b = {"w": a["w"].permute(2, 0, 1), "r": a["r"].reshape(3, 4, 2)}
    return ["permute(w, [2, 0, 1]) -> w", "reshape(r, [3, 4, 2]) -> r"], a, b


def halves_in_turn():
    """As torchtitan's rotary rows: reshaped, turned and reshaped back."""
    a = {"w": noise(8, 3)}
    b = {"w": a["w"].reshape(2, 2, 2, 3).transpose(1, 2).reshape(8, 3)}
    return ["reshape(permute(reshape(w, [2, 2, 2, 3]), [0, 2, 1, 3]), [8, 3]) -> w"], a, b


def padded():
    a = {"w": noise(5, 2)}
    return ["pad(w, with=0) -> w"], a, {"w": torch.cat([a["w"], torch.zeros(3, 2)])}


def other_bits():
    a = {"w": torch.arange(6, dtype=torch.uint8).reshape(2, 3)}
    return ["bits(w, I8) -> w"], a, {"w": a["w"].view(torch.int8)}


def a_column_of_each():
    a = {"x": noise(6), "y": noise(6)}
    return ["stack(x, y, dim=1) -> xy"], a, {"xy": torch.stack([a["x"], a["y"]], 1)}


CASES = [renamed, fused_by_groups, split, packed_experts, turned, permuted_and_reshaped,
         halves_in_turn, padded, other_bits, a_column_of_each]  # fmt: skip


def plan_of(rules, a, b):
    stored = {name: Stored(t.dtype, "", tuple(t.shape)) for name, t in a.items()}
    own = {name: (str(t.dtype), tuple(t.shape)) for name, t in b.items()}
    checkpoint = Checkpoint("", "manifest", stored)
    return _map_plan.plan_of(rules, None, checkpoint, "", own, Transport(10.0))


def sharded(name, whole, rank, world, how):
    """What one of the ranks holds of it."""
    base = Holding(name, "parameter", whole.dtype, tuple(whole.shape), None, [], None)
    if how == "flat":
        count = whole.numel()
        low, high = count * rank // world, count * (rank + 1) // world
        runs = [Run(low, high - low)] if high > low else []
        return dataclasses.replace(base, local=whole.reshape(-1)[low:high].clone(), runs=runs)
    if how == "whole" or how >= whole.dim():
        if rank:
            return None
        return dataclasses.replace(base, local=whole, runs=local_runs(whole.shape))
    placements = [Placement("shard", how)]
    runs = local_runs(whole.shape, placements, (world,), (rank,))
    chunks = whole.chunk(world, how)
    local = chunks[rank] if rank < len(chunks) else whole.narrow(how, 0, 0)
    return dataclasses.replace(base, local=local.clone(), runs=runs, placements=placements,
                               mesh_shape=(world,), coordinates=(rank,))  # fmt: skip


def held(plan, a, b, rank, world, how):
    tensors = {name: sharded(name, whole, rank, world, how) for name, whole in b.items()}
    tensors = {name: each for name, each in tensors.items() if each is not None}
    records = _own.records_of(tensors, False)
    shapes = {name: tuple(t.shape) for name, t in a.items()}
    for name, theirs in _mapped.aliases(plan, shapes).items():
        shapes[name] = shapes[theirs]
    return _mapped.mapped(plan, shapes, tensors, records, rank)


@pytest.mark.parametrize("how", ["whole", 0, 1, 2, "flat"])
@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_sum_over_ranks_is_the_digest_of_the_tensor(case, world, how):
    torch.manual_seed(0)
    rules, a, b = case()
    plan = plan_of(rules, a, b)
    digests = dict.fromkeys(a, (0, 0))
    for rank in range(world):
        found = held(plan, a, b, rank, world, how)
        cut_padding = case is padded and how == "flat"  # which is told to be not compared
        assert not (found.findings or found.padding) and bool(found.left) == cut_padding
        for name, record in found.records.items():
            digests[name] = add(digests[name], record.digest)
    assert digests == {name: digest_runs(t, local_runs(t.shape)).digest for name, t in a.items()}


def test_one_element_changes_the_digest_of_the_tensor_that_it_is_of():
    torch.manual_seed(0)
    for case, how in itertools.product(CASES, ["whole", 0, "flat"]):
        rules, a, b = case()
        plan = plan_of(rules, a, b)
        before = [held(plan, a, b, rank, 2, how).records for rank in (0, 1)]
        name = random.Random(case.__name__).choice(sorted(b))
        b[name] = b[name].clone(memory_format=torch.contiguous_format)
        b[name].view(torch.uint8).view(-1)[0] ^= 1  # of a first element, which is no padding
        after = [held(plan, a, b, rank, 2, how).records for rank in (0, 1)]
        changed = {
            each
            for one, two in zip(before, after)
            for each in one
            if one[each].digest != two[each].digest
        }
        assert len(changed) == 1, case.__name__


def test_a_large_transposed_matrix_is_read_in_strips(monkeypatch):
    monkeypatch.setattr(_mapped, "_STRIP_BYTES", 64)
    for world, how in itertools.product((1, 2), ("whole", 0, 1)):
        torch.manual_seed(0)
        a = {"w": noise(7, 9)}
        b = {"w": a["w"].T.contiguous()}
        plan = plan_of(["transpose(w) -> w"], a, b)
        found = [held(plan, a, b, rank, world, how).records for rank in range(world)]
        whole = digest_runs(a["w"], local_runs((7, 9))).digest
        digests = [own["w"].digest for own in found if "w" in own]
        assert (add(*digests) if len(digests) > 1 else digests[0]) == whole


def test_padding_that_is_not_what_the_map_says_is_a_finding():
    rules, a, b = padded()
    plan = plan_of(rules, a, b)
    b["w"][6, 1] = 7
    (finding,) = held(plan, a, b, 0, 1, 0).padding["w"]
    assert finding[0] == (0,) and finding[2] == 13 and "is 7.0" in finding[1]


def test_padding_of_another_dtype_is_no_error():
    """That dtype is a finding elsewhere."""
    rules, a, b = padded()
    plan = plan_of(rules, a, b)
    b["w"] = b["w"].to(torch.bfloat16)
    found = held(plan, a, b, 0, 1, 0)
    assert not (found.findings or found.padding) and found.records["w"].dtype == "torch.bfloat16"


def test_a_map_that_computes_is_told_to_be_not_compared():
    a, b = {"w": noise(2, 2)}, {"w": noise(2, 2).to(torch.bfloat16)}
    found = held(plan_of(["cast(w, BF16) -> w"], a, b), a, b, 0, 1, "whole")
    assert found.left == {"w": "the map computes values, which need A's bytes"}


def test_two_names_of_one_tensor_are_each_compared():
    a = {"w": noise(2, 2)}
    b = {"x": a["w"], "y": a["w"].clone()}
    plan = plan_of(["w -> x & y"], a, b)
    found = held(plan, a, b, 0, 1, "whole")
    assert _mapped.aliases(plan, {"w": (2, 2)}) == {"w (as y)": "w"}
    assert found.records["w"].digest == found.records["w (as y)"].digest


def test_one_key_head_that_all_ranks_have():
    a = {f"l.self_attn.{each}_proj.weight": noise(2 * rows, 3)
         for each, rows in (("q", 2), ("k", 1), ("v", 1))}  # fmt: skip
    q, k, v = a.values()
    b = {"l.self_attn.qkv_proj.weight": torch.cat([q[:2], k, v, q[2:], k, v])}
    config = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2}
    plan = plan_of(engines._qkv(2, config), a, b)

    def against(name):
        records = [held(plan, a, b, rank, 2, 0).records[name] for rank in (0, 1)]
        parts = {rank: dataclasses.replace(_whole.part_of(record), whole=(0, 1))
                 for rank, record in enumerate(records)}  # fmt: skip
        digest = digest_runs(a[name], local_runs(a[name].shape)).digest
        return _whole.held_against(parts, digest)

    assert all(against(name) == ([], "") for name in a)
    b["l.self_attn.qkv_proj.weight"][9] += 1  # of rank 1
    (wrong,), why = against("l.self_attn.k_proj.weight")
    assert (wrong.ranks, why) == ((1,), "")


class Fused(nn.Module):
    def __init__(self, q, k):
        super().__init__()
        self.qk = nn.Parameter(torch.cat([q, k]))
        self.norm = nn.Parameter(torch.ones(3))


def saved(tmp_path):
    torch.manual_seed(0)
    state = {"model.q": noise(4, 3), "model.k": noise(2, 3), "model.norm": torch.ones(3)}
    save_file(state, tmp_path / "model.safetensors")
    return state


RULE = "cat(q, k) -> qk"


def test_a_model_with_fused_names_is_held_against_its_files(tmp_path):
    state = saved(tmp_path)
    live = Fused(state["model.q"], state["model.k"])
    assert check(live, against=tmp_path, prefix="model.", map=RULE, strict=True).comparisons
    with torch.no_grad():
        live.qk[5, 1] = 0.25
    with pytest.raises(Mismatch) as raised:
        check(live, against=tmp_path, prefix="model.", map=RULE)
    (finding,) = raised.value.findings
    assert (finding.tensor, finding.index) == ("k", 4) and "element 4 is 0x3e800000" in finding.what


@pytest.mark.parametrize("rules, said", [
    (["q -> _", "k -> _", "_ -> qk"], "k and 1 more (the map leaves it out)"),
    (["q * 2 -> qk[:4]", "k -> qk[4:]"], "q (the map computes values, which need A's bytes)"),
    ([RULE, "norm -> _", "_ -> norm"], "norm (the map leaves it out)"),
])  # fmt: skip
def test_what_a_map_leaves_out_of_a_manifest_is_told(rules, said):
    sent = {"q": noise(4, 3), "k": noise(2, 3), "norm": torch.ones(3)}
    with pytest.warns(UserWarning, match="not compared"):
        outcome = check(Fused(sent["q"], sent["k"]), against=seal(sent, version=1), map=rules)
    assert said in outcome.inconclusive, outcome.inconclusive


def test_a_part_of_a_fused_tensor_that_alone_was_sent_is_told():
    """A sync of what changed may have one of two that the engine fuses."""
    sent = {"0.q": noise(4, 3), "0.k": noise(2, 3), "1.k": noise(2, 3)}
    live = nn.Module()
    for layer in ("0", "1"):
        live.add_module(layer, Fused(sent["0.q"], sent[f"{layer}.k"]))
    with pytest.warns(UserWarning, match="not compared"):
        outcome = check(live, against=seal(sent, version=1), map="cat({l}.q, {l}.k) -> {l}.qk")
    assert "1.k (the map joins it with tensors that are not there)" in outcome.inconclusive
    alone, rule = {"0.q": sent["0.q"]}, "? cat({l}.q, {l}.k) -> {l}.qk"
    with pytest.raises(RuntimeError, match="nothing was compared.*>: 0.q .the map joins it with"):
        check(live, against=seal(alone, version=2), map=rule)


def test_parts_of_fused_tensors_whose_others_were_not_sent_at_all_are_told():
    sent = {"0.k": noise(2, 3), "1.k": noise(2, 3), "norm": noise(3)}
    live = nn.Module()
    for layer in ("0", "1"):
        live.add_module(layer, Fused(noise(4, 3), sent[f"{layer}.k"]))
    live.norm = nn.Parameter(sent["norm"].clone())
    rule = "? cat({l}.q, {l}.k) -> {l}.qk"
    with pytest.warns(UserWarning, match="not compared"):
        outcome = check(live, against=seal(sent, version=1), map=rule)
    said = "0.k and 1 more (the map joins it with tensors that are not there)"
    assert said in outcome.inconclusive, outcome.inconclusive


def test_another_shape_than_the_map_makes_is_a_finding(tmp_path):
    state = saved(tmp_path)
    live = Fused(state["model.q"], state["model.k"])
    live.qk = nn.Parameter(live.qk.detach()[:, :2].contiguous())
    with pytest.raises(Mismatch) as raised:
        check(live, against=tmp_path, prefix="model.", map=RULE)
    assert {each.tensor for each in raised.value.findings} == {"q", "k"}
    said = "qk is [6, 2] in the model, and under the map it comes to [6, 3]"
    assert {each.what for each in raised.value.findings} == {said}


@pytest.mark.parametrize(
    "bad, said",
    [("cat(q, nothing) -> qk", "nothing"), ("cat(q -> qk", "expected"), ("no-such-map", "no-such"),
     ("cat(q, k, dim=1) -> qk", "expected"), ([], "map: expected rules"), (3, "TypeError")],
)  # fmt: skip
def test_a_map_that_cannot_be_used_is_one_line(bad, said, tmp_path):
    state = saved(tmp_path)
    live = Fused(state["model.q"], state["model.k"])
    with pytest.raises(RuntimeError, match=said) as raised:
        check(live, against=tmp_path, prefix="model.", map=bad)
    assert "\n" not in str(raised.value) and "cannot use the map" in str(raised.value)
