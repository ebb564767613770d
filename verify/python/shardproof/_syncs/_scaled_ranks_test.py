"""A trainer on FSDP2 and an engine that quantises what it receives, fused and cut by tensor
parallelism, on 2 ranks: sound, and with the mistakes of such engines."""

import dataclasses

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from shardproof import _program, check, engines, seal
from shardproof._checking._check import Mismatch
from shardproof._checking._ranks_test import DEADLINE, alike, run
from shardproof._stored._manifest import Manifest
from shardproof._syncs._scaled_test import fp8, int8, plainly
from shardproof._syncs._syncs_ranks_test import Engine

pytestmark = pytest.mark.skipif(_program.find() is None, reason="no command `shardproof`")

TP, BLOCK = 2, (4, 4)
CONFIG = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 20}
AT = "model.layers.0."
Q, K, V, OUT = (f"{AT}self_attn.{each}_proj.weight" for each in "qkvo")
GATE, UP, DOWN = (f"{AT}mlp.{each}_proj.weight" for each in ("gate", "up", "down"))
QKV, GATE_UP = f"{AT}self_attn.qkv_proj.weight", f"{AT}mlp.gate_up_proj.weight"
NORM = f"{AT}input_layernorm.weight"
# The rows of o and down end within a block on a rank of the trainer.
SHAPES = {Q: (16, 20), K: (8, 20), V: (8, 20), OUT: (20, 16), GATE: (24, 20), UP: (24, 20),
          DOWN: (20, 24)}  # fmt: skip
BLOCKS = dataclasses.replace(engines.FP8_BLOCKS, block=BLOCK)
# By kind: (what the trainer is told, block, largest code, how an engine rounds, scale's suffix).
KINDS = {
    "fp8 blocks": (BLOCKS, BLOCK, 448, fp8, "_scale_inv"),
    "int8 rows": (engines.INT8_ROWS, (1, -1), 127, int8, "_scale"),
}


def trained(step):
    torch.manual_seed(step)
    state = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    return {**state, NORM: torch.randn(20)}


def fused(state, kind, rank):
    """{name: local tensor} of the engine."""
    _, block, largest, to_codes, suffix = KINDS[kind]
    made = {}
    for name in SHAPES:
        weight = state[name].to(torch.bfloat16).float()
        made[name], made[name + suffix] = plainly(weight, block, largest, to_codes)

    def rows(*names):
        return torch.cat([made[each].view(torch.uint8).chunk(TP)[rank] for each in names]).view(
            made[names[0]].dtype
        )

    def columns(name):
        whole = made[name]
        return whole if whole.shape[1] == 1 else whole.chunk(TP, 1)[rank].contiguous()

    held = {NORM: state[NORM].to(torch.bfloat16)}
    for end in ("", suffix):
        held[QKV + end] = rows(Q + end, K + end, V + end)
        held[GATE_UP + end] = rows(GATE + end, UP + end)
        held |= {name + end: columns(name + end) for name in (OUT, DOWN)}
    return held


def told(engine, manifest):
    options = engines.vllm(engine, tp=TP, config=CONFIG)
    try:
        outcome = check(engine, against=manifest, deadline=DEADLINE, **options)
    except Mismatch as error:
        return tuple(sorted((each.tensor, each.ranks, each.what) for each in error.findings
                            if each.kind == "disk"))  # fmt: skip
    except RuntimeError as error:
        return str(error)
    return outcome.inconclusive


def job(rank):
    mesh, found = init_device_mesh("cpu", (TP,)), []
    for kind, (scaled, *_) in KINDS.items():
        cast = {"*_proj.weight": (torch.bfloat16, scaled), "*": torch.bfloat16}
        manifests, held = [], []
        for step in (1, 2):
            model = fully_shard(Engine(trained(step)), mesh=mesh)
            manifests.append(Manifest.from_json(seal(model, version=step, cast=cast).to_json()))
            held.append(fused(trained(step), kind, rank))
        for spoil in (sound, *EXPECTED):
            engine = Engine(held[0])
            first = told(engine, manifests[0])
            new = {name: value.clone() for name, value in held[1].items()}
            spoil(new, held[0], rank, KINDS[kind][-1])
            for name, value in new.items():
                engine.get_parameter(name).data = value
            found.append((kind, spoil.__name__, first, told(engine, manifests[1])))
    return tuple(found)


# ---- Mistakes ------------------------------------------------------------------------------------


def sound(new, old, rank, suffix):
    pass


def stale(new, old, rank, suffix):
    new[OUT], new[OUT + suffix] = old[OUT], old[OUT + suffix]


def scale_is_stale_on_one_rank(new, old, rank, suffix):
    if rank == 1:
        new[QKV + suffix] = old[QKV + suffix]


def codes_are_stale(new, old, rank, suffix):
    new[DOWN] = old[DOWN]


def scales_swapped(new, old, rank, suffix):
    """Those of gate and up, which lie behind each other."""
    scales = new[GATE_UP + suffix]
    new[GATE_UP + suffix] = scales.roll(len(scales) // 2, 0)


def scale_inverted(new, old, rank, suffix):
    new[DOWN + suffix] = 1 / new[DOWN + suffix]


def block_of_another_size(new, old, rank, suffix):
    new[OUT + suffix] = new[OUT + suffix].repeat_interleave(2, 1)


def not_quantised(new, old, rank, suffix):
    new[DOWN] = new[DOWN].float()


def part_of_another_rank(new, old, rank, suffix):
    if rank == 1:
        state = fused(trained(2), "fp8 blocks" if suffix == "_scale_inv" else "int8 rows", 0)
        new[GATE_UP] = state[GATE_UP]


ALL = (0, 1)
EXPECTED = {
    stale: [(OUT, ALL, "still that of version 1"), (OUT + "{}", ALL, "still that of version 1")],
    scale_is_stale_on_one_rank: [
        (each + "{}", (1,), "has not changed since version 1") for each in (K, Q, V)
    ],
    codes_are_stale: [(DOWN, ALL, "still that of version 1")],
    scales_swapped: [
        (GATE + "{}", ALL, f"it holds what {UP}{{}} should"),
        (UP + "{}", ALL, f"it holds what {GATE}{{}} should"),
    ],
    scale_inverted: [(DOWN + "{}", ALL, "its digest is")],
    block_of_another_size: [(OUT + "{}", ALL, "in the model, and under the map it comes to")],
    not_quantised: [(DOWN, ALL, "it is a torch.float32 [20, 24]")],
    part_of_another_rank: [(GATE, ALL, "hold the same part"), (UP, ALL, "hold the same part")],
}


@pytest.fixture(scope="module")
def found():
    said = alike(run(job, TP), range(TP))
    return {(kind, name): (first, second) for kind, name, first, second in said}


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_sync_is_silent(kind, found):
    assert {each for name, (each, _) in found.items() if name[0] == kind} == {()}
    assert found[kind, "sound"] == ((), ())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mistake", EXPECTED, ids=lambda each: each.__name__)
def test_a_mistake_is_named_by_tensor_and_rank(mistake, kind, found):
    _, named = found[kind, mistake.__name__]
    suffix = KINDS[kind][-1]
    expected = [(name.format(suffix), ranks, what.format(suffix))
                for name, ranks, what in EXPECTED[mistake]]  # fmt: skip
    assert [each[:2] for each in named] == [each[:2] for each in sorted(expected)], named
    for (_, _, what), (_, _, said) in zip(named, sorted(expected), strict=True):
        assert said in what
