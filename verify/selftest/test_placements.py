"""What the reference places where, against DTensor's own functions on the same mesh."""

import itertools
import json

from command import REPOSITORY, CommandTest, checkpoint


def local_indices(descriptor):
    """Flat global indices of what a rank owns, in the order of the evidence's runs."""
    indices = []
    for run in descriptor["owned"]:
        for repeat in range(run.get("count", 1)):
            first = run["start"] + repeat * run.get("stride", 0)
            indices.extend(range(first, first + run["length"]))
    return indices


def dtensor_indices(descriptor, mesh, coordinates):
    """The same by DTensor: every axis in turn splits what the ones before it left."""
    import torch
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    elements = 1
    for size in descriptor["shape"]:
        elements *= size
    local = torch.arange(elements).view(descriptor["shape"])
    for placement, axis, index in zip(descriptor["placements"], mesh, coordinates, strict=True):
        kind, dim, split = (
            placement["kind"],
            placement.get("dim", 0),
            placement.get("split_factor", 1),
        )
        if kind == "replicate":
            continue
        cut = Shard(dim) if kind == "shard" else _StridedShard(dim, split_factor=split)
        pieces, _ = cut._split_tensor(local, axis["size"], with_padding=False)
        local = pieces[index]
    return local


class Placements(CommandTest):
    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"
    timeout_s = 240

    def compare(self, mesh, *words):
        """Every sharded descriptor of the phase `values` on every rank; how many were strided."""
        report = self.dir / "report"
        done = self.shardproof("verify", *words, "--mesh", mesh, "--report", report,
                               "--property", "sharding.chunk_rule")  # fmt: skip
        self.assert_exit(done, 0)
        evidence = report / "evidence"
        run = json.loads((evidence / "run.json").read_text())
        axes = run["case"]["mesh"]
        world = list(itertools.product(*(range(axis["size"]) for axis in axes)))
        compared = strided = 0
        for rank, coordinates in enumerate(world):
            with open(evidence / "values" / f"rank_{rank}.facts.jsonl") as lines:
                records = [json.loads(line) for line in lines]
            for record in records:
                if record["record"] != "tensor" or not record.get("placements"):
                    continue
                local = dtensor_indices(record, axes, coordinates)
                self.assertEqual(record["local_shape"], list(local.shape), (mesh, record))
                self.assertEqual(local_indices(record), local.reshape(-1).tolist(), (mesh, record))
                compared += 1
                strided += any(p["kind"] == "strided_shard" for p in record["placements"])
        self.assertGreater(compared, 10 * len(world))
        return strided

    def test_fsdp_hsdp_and_tensor_parallel(self):
        case = REPOSITORY / "fixtures" / "cases" / "tensor_parallel.json"
        self.assertEqual(self.compare("dp_shard=3", "--case", case), 0)
        self.assertEqual(self.compare("2x2", "--case", case), 0)
        for mesh in ("2x2x2", "dp_shard=3,tp=2", "dp_shard=2,tp=3", "tp=4", "tp=2,dp_shard=3"):
            strided = self.compare(mesh, "--case", case)
            self.assertEqual(strided > 0, mesh not in ("tp=4", "tp=2,dp_shard=3"), mesh)

    def test_experts_on_their_own_axis(self):
        case = REPOSITORY / "fixtures" / "cases" / "experts.json"
        for mesh in ("dp_shard=2,ep=2", "dp_shard=2,ep=2,tp=2", "dp_shard=3,ep=2", "ep=4"):
            strided = self.compare(mesh, "--case", case)
            self.assertEqual(strided > 0, mesh != "ep=4", mesh)

    def test_faults_act_on_any_mesh(self):
        case = REPOSITORY / "fixtures" / "cases" / "tensor_parallel.json"
        for tensor in ("layer.self_attn.q_proj.weight", "layer.self_attn.o_proj.weight"):
            document = self.judged("verify", "--case", case, "--bucket-bytes", 1 << 16, "--inject",
                                   f"comm/swap-rows@{tensor}", code=1)  # fmt: skip
            self.assertEqual({finding["tensor"] for finding in document["findings"]}, {tensor})
        self.refused("verify", "--case", case, "--strategy", "each-reads-own", "--inject",
                     "comm/swap-rows@layer.self_attn.q_proj.weight",
                     names=["broadcasts no tensor"])  # fmt: skip

    def test_a_real_model(self):
        self.assertGreater(self.compare("2x2x2", "--checkpoint", checkpoint("qwen3-small")), 0)


class ManyMeshes(Placements):
    labels = "selftest multi-rank framework nightly"
    fixtures = "checkpoints"
    timeout_s = 240

    def test_everything_on_many_meshes_by_every_strategy(self):
        case = REPOSITORY / "fixtures" / "cases" / "everything.json"
        pairs = (("2x2", "rank0-scatter"), ("2x2x2", "rank0-broadcast"), ("tp=3", "each-reads-own"),
                 ("dp_shard=2,ep=2,tp=2", "rank0-scatter"),
                 ("dp_shard=16", "each-reads-own"))  # fmt: skip
        for mesh, strategy in pairs:
            with self.subTest(f"{mesh} by {strategy}"):
                self.judged(
                    "verify", "--case", case, "--mesh", mesh, "--strategy", strategy, code=0
                )
