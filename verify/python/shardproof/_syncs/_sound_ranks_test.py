"""Sound ways to hold and to load the weights of a sync, on 3 ranks: `check` is silent over them in
turns, and tells of a value that is wrong under any of them."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

from shardproof import check, seal
from shardproof._checking._check import Mismatch
from shardproof._checking._ranks_test import DEADLINE, WORLD, alike, run
from shardproof._stored._manifest import Manifest

ROWS, COLUMNS = 12, 6
SYNCS = 5
# Ranks 0 and 1 are a replica of two tensor-parallel ranks, rank 2 is one by itself.
UNLIKE = {"tp": [[0, 1], [2]]}


class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(ROWS, COLUMNS)
        self.layers = nn.ModuleList(nn.Linear(COLUMNS, COLUMNS) for _ in range(3))
        self.norm = nn.LayerNorm(COLUMNS)
        self.head = nn.Linear(COLUMNS, ROWS, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("router_bias", torch.zeros(ROWS))


def weights(version):
    torch.manual_seed(version)
    model = Trained()
    with torch.no_grad():
        for value in [*model.parameters(), *model.buffers()]:
            value.normal_()
    return model


def part_of(name, value, rank):
    """What the rank has of a tensor."""
    is_cut = rank < 2 and value.dim() == 2
    return value.chunk(2, 0 if "embed" in name or "head" in name else 1)[rank] if is_cut else value


class Engine(nn.Module):
    """With the trainer's names, and a head that is the embedding."""

    def __init__(self, rank):
        super().__init__()
        self.rank = rank
        for name, value in weights(0).named_parameters():
            held = nn.Parameter(part_of(name, value.detach(), rank).clone(), requires_grad=False)
            self._home(name).register_parameter(name.rpartition(".")[2], held)
        self.head = nn.Module()
        self.head.weight = self.embed.weight
        self.register_buffer("router_bias", torch.zeros(ROWS))

    def _home(self, name):
        at = self
        for part in name.split(".")[:-1]:
            if part not in at._modules:
                at.add_module(part, nn.Module())
            at = at._modules[part]
        return at

    def tensors(self):
        return [*self.named_parameters(), *self.named_buffers()]

    @torch.no_grad()
    def load(self, state):
        for name, held in self.tensors():
            held.copy_(part_of(name, state[name], self.rank))


# ---- How the engine comes by its memory before it loads ------------------------------------------


def in_place(engine, version):
    """A copy into what is there."""


def alternating(engine, version):
    """Two buffers in turns, as where the next weights arrive while the old ones serve."""
    if not hasattr(engine, "buffers_of"):
        engine.buffers_of = [{n: torch.empty_like(t) for n, t in engine.tensors()} for _ in "ab"]
    for name, held in engine.tensors():
        held.data = engine.buffers_of[version % 2][name]


def asleep(engine, version):
    """The memory is freed, and other memory is there once it wakes up."""
    shapes = [(held, held.shape) for _, held in engine.tensors()]
    for held, _ in shapes:
        held.data = torch.empty(0)
    engine.kept = [torch.empty(1000 * version)]  # so that the old place is taken
    for held, shape in shapes:
        held.data = torch.empty(shape)


def freed_storage(engine, version):
    """The same storages, without memory meanwhile."""
    sizes = [(held.untyped_storage(), held.untyped_storage().nbytes()) for _, held in
             engine.tensors()]  # fmt: skip
    for storage, _ in sizes:
        storage.resize_(0)
    for storage, nbytes in sizes:
        storage.resize_(nbytes)


def shared_memory(engine, version):
    """That another process could map."""
    for _, held in engine.tensors():
        held.data = held.data.clone().share_memory_()


def one_stretch(engine, version):
    """Views of one buffer, as of a bucket that arrived."""
    tensors = engine.tensors()
    flat = torch.empty(sum(held.numel() for _, held in tensors))
    for (_, held), part in zip(tensors, flat.split([h.numel() for _, h in tensors]), strict=True):
        held.data = part.view(held.shape)


def new_parameters(engine, version):
    """Other objects in the same modules."""
    for module in engine.modules():
        for key, held in list(module._parameters.items()):
            setattr(module, key, nn.Parameter(held.detach().clone(), requires_grad=False))
    engine.head.weight = engine.embed.weight


def inference_mode(engine, version):
    """Tensors whose changes torch does not count."""
    with torch.inference_mode():
        for module in engine.modules():
            for key, held in list(module._parameters.items()):
                module._parameters[key] = nn.Parameter(held.clone(), requires_grad=False)
        engine.head._parameters["weight"] = engine.embed._parameters["weight"]


WAYS = (
    in_place, alternating, asleep, freed_storage, shared_memory, one_stretch, new_parameters,
    inference_mode,
)  # fmt: skip


def told(engine, manifest):
    layout = {"*embed.weight": {"tp": Shard(0)}, "head.weight": {"tp": Shard(0)},
              "layers.*.weight": {"tp": Shard(1)}}  # fmt: skip
    try:
        outcome = check(engine, against=manifest, mesh=UNLIKE, layout=layout, deadline=DEADLINE)
    except Mismatch as error:
        return tuple(sorted({(each.tensor, each.ranks) for each in error.findings
                             if each.kind == "disk"}))  # fmt: skip
    return outcome.inconclusive


def syncs(rank):
    """\\returns of each way what was found: in sound syncs, and with a value that is wrong."""
    mesh, version, found = init_device_mesh("cpu", (WORLD,)), 0, []
    for way in WAYS:
        engine, said = Engine(rank), []
        for number in range(SYNCS + 1):
            version += 1
            manifest = seal(fully_shard(weights(version), mesh=mesh), version=version)
            way(engine, version)
            state = {n: each.detach() for n, each in weights(version).state_dict().items()}
            with torch.inference_mode(way is inference_mode):
                engine.load(state)
                if number == SYNCS and rank == 2:
                    dict(engine.tensors())["layers.1.weight"][2, 3] += 1
            said.append(told(engine, Manifest.from_json(manifest.to_json())))
        found.append(tuple(said))
    return tuple(found)


@pytest.fixture(scope="module")
def found():
    everything = alike(run(syncs, seconds=240))
    assert isinstance(everything, tuple), everything
    return dict(zip((each.__name__ for each in WAYS), everything, strict=True))


@pytest.mark.parametrize("way", [each.__name__ for each in WAYS])
def test_replicas_of_unlike_sizes_are_silent_however_they_hold_their_weights(way, found):
    *sound, wrong = found[way]
    assert sound == [()] * SYNCS
    assert wrong == (("layers.1.weight", (2,)),)
