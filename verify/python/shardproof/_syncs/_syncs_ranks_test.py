"""A trainer's manifest against an engine that keeps the same weights fused and cut otherwise: on 2
ranks, sound and with the mistakes of public reports."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

from shardproof import _program, check, seal
from shardproof._checking import _look
from shardproof._checking._check import Mismatch
from shardproof._checking._ranks_test import DEADLINE, alike, run
from shardproof._judging import _own
from shardproof._stored._manifest import Manifest

WORLD = 2
HIDDEN, HEADS, KEY_HEADS, HEAD, INNER, EXPERTS, WORDS, PADDED = 8, 4, 2, 4, 6, 4, 10, 12
TP = {"tp": [[0, 1]]}

MAP = [
    "pad(embed.weight, with=0) -> embed.weight",
    "interleave(layers.{l}.q.weight, layers.{l}.k.weight, layers.{l}.v.weight, groups=2)"
    " -> layers.{l}.qkv.weight",
    "interleave(layers.{l}.gate.weight, layers.{l}.up.weight, groups=2)"
    " -> layers.{l}.gate_up.weight",
    "stack(cat(layers.{l}.experts.{e}.gate.weight, layers.{l}.experts.{e}.up.weight))"
    " -> layers.{l}.w13",
    "stack(transpose(layers.{l}.experts.{e}.down.weight)) -> layers.{l}.w2",
]
LAYOUT = {
    "embed.weight": {"tp": Shard(0)}, "*.qkv.weight": {"tp": Shard(0)},
    "*.gate_up.weight": {"tp": Shard(0)}, "*.o.weight": {"tp": Shard(1)},
    "*.w13": {"tp": Shard(0)}, "*.w2": {"tp": Shard(0)},
}  # fmt: skip

pytestmark = pytest.mark.skipif(_program.find() is None, reason="no command `shardproof`")


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, INNER, bias=False)
        self.up = nn.Linear(HIDDEN, INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(HIDDEN, HEADS * HEAD, bias=False)
        self.k = nn.Linear(HIDDEN, KEY_HEADS * HEAD, bias=False)
        self.v = nn.Linear(HIDDEN, KEY_HEADS * HEAD, bias=False)
        self.o = nn.Linear(HEADS * HEAD, HIDDEN, bias=False)
        self.gate = nn.Linear(HIDDEN, INNER, bias=False)
        self.up = nn.Linear(HIDDEN, INNER, bias=False)
        self.norm = nn.RMSNorm(HIDDEN)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))
        self.register_buffer("router_bias", torch.zeros(EXPERTS))


class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(HIDDEN, WORDS, bias=False)
        self.head.weight = self.embed.weight


def trained(step):
    """Whole, the same on all ranks."""
    torch.manual_seed(step)
    model = Trained()
    with torch.no_grad():
        for value in [*model.parameters(), *model.buffers()]:
            value.normal_()
    return model


def fused(state, rank):
    """{name: local tensor} of the engine, from the trainer's state dict."""

    def half(whole):
        return whole.chunk(2)[rank]

    padding = torch.zeros(PADDED - WORDS, HIDDEN)
    held = {"embed.weight": half(torch.cat([state["embed.weight"], padding]))}
    for layer in range(2):
        at = f"layers.{layer}."
        own = {key.removeprefix(at): value for key, value in state.items() if key.startswith(at)}
        held[at + "qkv.weight"] = torch.cat([half(own[f"{each}.weight"]) for each in "qkv"])
        held[at + "gate_up.weight"] = torch.cat([half(own["gate.weight"]), half(own["up.weight"])])
        held[at + "o.weight"] = own["o.weight"].chunk(2, 1)[rank]
        held[at + "norm.weight"] = own["norm.weight"]
        held[at + "router_bias"] = own["router_bias"]
        mine = range(EXPERTS)[rank * 2 : rank * 2 + 2]
        held[at + "w13"] = torch.stack(
            [torch.cat([own[f"experts.{e}.gate.weight"], own[f"experts.{e}.up.weight"]])
             for e in mine]
        )  # fmt: skip
        held[at + "w2"] = torch.stack([own[f"experts.{e}.down.weight"].T for e in mine])
    return {name: value.detach().clone() for name, value in held.items()}


class Engine(nn.Module):
    """Its weights are written in place, sync by sync."""

    def __init__(self, held):
        super().__init__()
        for name, value in held.items():
            home, _, leaf = name.rpartition(".")
            at = self
            for part in filter(None, home.split(".")):
                if part not in at._modules:
                    at.add_module(part, nn.Module())
                at = at._modules[part]
            if leaf == "router_bias":
                at.register_buffer(leaf, value.clone())
            else:
                at.register_parameter(leaf, nn.Parameter(value.clone(), requires_grad=False))

    @torch.no_grad()
    def load(self, held, but=()):
        state = self.state_dict(keep_vars=True)
        for name, value in held.items():
            if name not in but:
                state[name].copy_(value)


def told(engine, manifest):
    try:
        outcome = check(engine, against=manifest, map=MAP, mesh=TP, layout=LAYOUT,
                        deadline=DEADLINE)  # fmt: skip
    except Mismatch as error:
        return tuple(sorted((each.tensor, each.ranks, each.what) for each in error.findings
                            if each.kind == "disk"))  # fmt: skip
    return outcome.inconclusive


def all_synced(rank):
    mesh = init_device_mesh("cpu", (WORLD,))
    return tuple((each.__name__, synced(rank, mesh, each)) for each in (sound, *EXPECTED))


def synced(rank, mesh, mistake):
    """Two syncs of a trainer on FSDP2; the second one with a mistake. \\returns what was found."""
    engine, manifests = Engine(fused(trained(1).state_dict(), rank)), []
    for step in (1, 2):
        state = trained(step).state_dict()
        model = fully_shard(trained(step), mesh=mesh)
        manifests.append(Manifest.from_json(seal(model, version=step).to_json()))
        assert len(manifests[-1]) == len(state)
        held = fused(state, rank)
        if step == 1:
            engine.load(held)
            assert told(engine, manifests[0]) == ()
            continue
        mistake(engine, held, rank)
    return told(engine, manifests[1])


def again(rank):
    """Five syncs: after the first one nothing is described anew as long as all is right. \\returns
    how often all was, and what was found, at each."""
    mesh, looks, found = init_device_mesh("cpu", (WORLD,)), [], []
    init = _look.Own.__init__
    _look.Own.__init__ = lambda *arguments: looks.append(1) or init(*arguments)
    engine = Engine(fused(trained(1).state_dict(), rank))
    for step in range(1, 6):
        state = fused(trained(step).state_dict(), rank)
        if step == 4 and rank == 1:
            state["layers.1.w2"][0, 2, 3] += 1
        if step == 5 and rank == 1:
            layer = engine.get_submodule("layers.1")
            layer.norm = copy.deepcopy(layer.norm)
        engine.load(state)
        found.append(told(engine, seal(fully_shard(trained(step), mesh=mesh), version=step)))
        found.append(len(looks))
    return tuple(found)


def in_ddp(rank):
    """Syncs of a trainer in DDP, checked against its own manifests. \\returns how often `check` had
    described all, and what was found, at each."""
    looks, found, init = [], [], _look.Own.__init__
    _look.Own.__init__ = lambda *arguments: looks.append(1) or init(*arguments)
    model = nn.parallel.DistributedDataParallel(trained(1))
    own, everybody = dist.new_group([rank], use_local_synchronization=True), model.process_group
    for step in range(1, 6):
        model.module.load_state_dict(trained(step).state_dict())
        manifest = seal(model.module, version=step)
        if step == 3 and rank == 1:
            with torch.no_grad():
                model.module.embed.weight[3, 3] += 1
        model.process_group = own if step == 4 else everybody
        try:
            found.append(check(model, against=manifest, deadline=DEADLINE).inconclusive)
        except Mismatch as error:
            found.append(tuple((each.tensor, each.ranks) for each in error.findings))
        found.append(len(looks))
    return tuple(found)


def cast_again(rank):
    """Seals of a trainer whose layers are cast. \\returns whether each is that of the cast values,
    and how often the model was described."""
    mesh, looks, read, found = init_device_mesh("cpu", (WORLD,)), [], _own.tensors_of, []
    _own.tensors_of = lambda *arguments: looks.append(1) or read(*arguments)
    model, plain = fully_shard(trained(1), mesh=mesh), trained(1)
    for step in (1, 2, 3):
        with torch.no_grad():
            for value in [*model.parameters(), *plain.parameters()]:
                value.mul_(1.1)
        manifest = seal(model, version=step, cast={"layers.*": torch.bfloat16})
        state = {
            name: value.bfloat16() if name.startswith("layers.") else value
            for name, value in plain.state_dict().items()
        }
        found += [manifest.weights_digest == seal(state).weights_digest, len(looks)]
    return tuple(found)


# ---- Mistakes: each loads the second sync --------------------------------------------------------


def sound(engine, held, rank):
    engine.load(held)


def stale_everywhere(engine, held, rank):
    engine.load(held, but=("layers.1.norm.weight",))


def stale_on_one_rank(engine, held, rank):
    engine.load(held, but=("layers.0.o.weight",) if rank == 1 else ())


def part_of_fused_is_stale(engine, held, rank):
    rows = HEADS * HEAD // 2
    held["layers.0.qkv.weight"][rows : rows + HEAD] = engine.state_dict()["layers.0.qkv.weight"][
        rows : rows + HEAD
    ]
    engine.load(held)


def gate_and_up_swapped(engine, held, rank):
    held["layers.1.gate_up.weight"] = held["layers.1.gate_up.weight"].roll(INNER // 2, 0)
    engine.load(held)


def experts_swapped(engine, held, rank):
    if rank == 1:
        held["layers.0.w13"] = held["layers.0.w13"].flip(0)
    engine.load(held)


def slice_of_another_rank(engine, held, rank):
    if rank == 1:
        held["layers.0.gate_up.weight"] = fused(trained(2).state_dict(), 0)[
            "layers.0.gate_up.weight"
        ]
    engine.load(held)


def slices_exchanged(engine, held, rank):
    held["layers.0.o.weight"] = fused(trained(2).state_dict(), 1 - rank)["layers.0.o.weight"]
    engine.load(held)


def never_written(engine, held, rank):
    held["layers.0.router_bias"] = torch.zeros(EXPERTS)
    engine.load(held)


def cast_twice(engine, held, rank):
    held["layers.1.o.weight"] = held["layers.1.o.weight"].to(torch.bfloat16).float()
    engine.load(held)


def padding_is_garbage(engine, held, rank):
    if rank == 1:
        held["embed.weight"][-1, 3] = 5
    engine.load(held)


def rows_are_off_by_one(engine, held, rank):
    whole = torch.cat([trained(2).embed.weight.detach(), torch.zeros(PADDED - WORDS, HIDDEN)])
    held["embed.weight"] = whole.roll(1, 0).chunk(2)[rank]
    engine.load(held)


def transposed_wrongly(engine, held, rank):
    held["layers.0.w2"] = held["layers.0.w2"].transpose(1, 2).reshape(held["layers.0.w2"].shape)
    engine.load(held)


EXPECTED = {
    stale_everywhere: [("layers.1.norm.weight", (0, 1), "it is still that of version 1")],
    stale_on_one_rank: [("layers.0.o.weight", (1,), "has not changed since version 1")],
    part_of_fused_is_stale: [("layers.0.k.weight", (0, 1), "it is still that of version 1")],
    gate_and_up_swapped: [
        ("layers.1.gate.weight", (0, 1), "it holds what layers.1.up.weight should"),
        ("layers.1.up.weight", (0, 1), "it holds what layers.1.gate.weight should"),
    ],
    experts_swapped: [
        (f"layers.0.experts.{e}.{part}.weight", (1,),
         f"it holds what layers.0.experts.{5 - e}.{part}.weight should")
        for e in (2, 3) for part in ("gate", "up")
    ],
    slice_of_another_rank: [
        ("layers.0.gate.weight", (0, 1), "ranks 0 and 1 hold the same part"),
        ("layers.0.up.weight", (0, 1), "ranks 0 and 1 hold the same part"),
    ],
    slices_exchanged: [("layers.0.o.weight", (0, 1), "ranks 0 and 1 hold each other's parts")],
    never_written: [("layers.0.router_bias", (0, 1), "all of it is 0")],
    cast_twice: [("layers.1.o.weight", (0, 1), "its digest is")],
    padding_is_garbage: [("embed.weight", (1,), "1 element of its padding is not 0.0")],
    rows_are_off_by_one: [
        ("embed.weight", (0, 1), "its digest is"),
        ("embed.weight", (1,), "8 elements of its padding are not 0.0"),
    ],
    transposed_wrongly: [
        (f"layers.0.experts.{e}.down.weight", (e // 2,), "its digest is") for e in range(EXPERTS)
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def found():
    return dict(alike(run(all_synced, WORLD), range(WORLD)))


def test_a_sound_sync_is_silent(found):
    assert found["sound"] == ()


def test_after_a_sound_sync_ranks_describe_nothing_as_long_as_all_is_right():
    first, one, second, two, third, three, wrong, four, fifth, five = alike(
        run(again, WORLD), range(WORLD)
    )
    assert (first, second, third, fifth) == ((), (), (), ()) and (one, two, three) == (1, 1, 1)
    assert [each[:2] for each in wrong] == [("layers.1.experts.2.down.weight", (1,))]
    assert (four, five) == (2, 3)  # rank 1 has another module in the end


def test_what_is_cast_is_described_once_and_sealed_as_it_is_cast():
    assert alike(run(cast_again, WORLD), range(WORLD)) == (True, 1, True, 1, True, 1)


def test_replicas_in_ddp_are_described_once_as_long_as_their_group_is_the_same():
    first, one, second, two, wrong, three, apart, four, last, five = alike(
        run(in_ddp, WORLD), range(WORLD)
    )
    assert (first, second, last) == ((), (), ()) and (one, two) == (1, 1)
    assert ("embed.weight", (1,)) in wrong and three == 2
    assert "several groups of ranks" in apart[0] and (four, five) == (3, 4)


@pytest.mark.parametrize("mistake", EXPECTED, ids=lambda each: each.__name__)
def test_a_mistake_is_named_by_tensor_and_rank(mistake, found):
    named, expected = found[mistake.__name__], EXPECTED[mistake]
    assert [each[:2] for each in named] == [each[:2] for each in expected], named
    for (_, _, what), (_, _, said) in zip(named, expected, strict=True):
        assert said in what
