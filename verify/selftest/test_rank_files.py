"""Files that ranks save themselves: DTensors put together, ranks missing, copies that differ."""

import sys
import types

import torch
from command import REPOSITORY, CommandTest
from safetensors.torch import save_file


def write_safetensors(path, tensors):
    path.parent.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


def holder_of(value):
    """An object with the attribute `held`, of a class in a module that only this process has."""
    module = types.ModuleType("their_code")
    module.Holder = type("Holder", (), {"__module__": "their_code"})
    sys.modules["their_code"] = module
    holder = module.Holder()
    holder.held = holder if value is None else value
    return holder


class DTensorsOfRanks(CommandTest):
    """Real ones, of four ranks on two axes: plain, uneven, strided, replicated, of no element."""

    labels = "selftest framework"
    timeout_s = 240

    def setUp(self):
        super().setUp()
        saved = self.run_script(
            REPOSITORY / "verify/selftest/save_ranks.py", "saved", timeout=200, TMPDIR=str(self.dir)
        )
        self.assert_exit(saved, 0)

    def file(self, rank):
        return self.dir / f"saved/ranks/model_world_size_4_rank_{rank}.pt"

    def test_they_are_the_whole_tensors(self):
        document = self.judged("compare", "saved/ranks", "saved/whole.pt", code=0)
        self.assertEqual((document["verdict"], document["tensors"]), ("pass", 11))
        audited = self.judged("audit", "saved/ranks", code=0)
        self.assertEqual((audited["damage"], audited["unknown_classes"]), ([], {}))
        # The same seal is good for both: it does not depend on how tensors are cut.
        self.assert_exit(self.shardproof("seal", "saved/ranks", "--to", "seal.json"), 0)
        self.assert_exit(self.shardproof("audit", "saved/whole.pt", "--seal", "seal.json"), 0)

    def test_a_rank_that_is_missing_is_named(self):
        self.file(3).unlink()
        damage = self.judged("audit", "saved/ranks", code=1)["damage"]
        self.assertIn("expected 'model_world_size_4_rank_3.pt'", "".join(damage))
        self.assertIn("tensor 'both': expected chunks that tile [7, 5]", "".join(damage))
        self.assertIn("no shard of the rank at [1, 1] in the mesh [2, 2]", "".join(damage))
        self.assertNotIn("'rows'", "".join(damage))  # rank 2 has the same rows

    def test_a_copy_that_differs_is_named(self):
        state = torch.load(self.file(3), weights_only=False)
        state["columns"]._local_tensor[0, 0] += 1
        torch.save(state, self.file(3))
        (line,) = self.judged("audit", "saved/ranks", code=1)["damage"]
        self.assertIn("tensor 'columns': expected ranks to have saved the same values", line)
        self.assertIn("'model_world_size_4_rank_3.pt'", line)

    def test_two_models_of_one_job_are_apart(self):
        """As SkyRL and verl write policy and critic: the same names in files of two folders."""
        for role, factor in (("policy", 1), ("critic", 2)):
            (self.dir / "saved/step" / role).mkdir(parents=True)
            for rank in range(4):
                state = torch.load(self.file(rank), weights_only=False)
                for value in state.values():
                    value._local_tensor.mul_(factor)
                torch.save(state, self.dir / "saved/step" / role / self.file(rank).name)
        document = self.judged("audit", "saved/step", code=0)
        names = [tensor["name"] for tensor in document["tensors"]]
        self.assertEqual(len(names), 22)
        self.assertIn("policy/model/both", names)
        self.assertIn("critic/model/both", names)

    def test_a_shard_of_another_shape_is_named(self):
        state = torch.load(self.file(1), weights_only=False)
        state["rows"]._local_tensor = torch.zeros(2, 3)
        torch.save(state, self.file(1))
        done = self.shardproof("audit", "saved/ranks")
        self.assertIn("'rows': expected a shard of shape [3, 3]", done.out + done.err)
        self.assertNotEqual(done.code, 0)


class SafetensorsOfRanks(CommandTest):
    """As vLLM's sharded state: every rank has the same names."""

    labels = "selftest framework"

    def setUp(self):
        super().setUp()
        for rank in (0, 1):
            for part in (0, 1):
                write_safetensors(
                    self.dir / f"model/model-rank-{rank}-part-{part}.safetensors",
                    {f"w{part}": torch.full((2,), float(rank))},
                )

    def test_they_are_sound(self):
        document = self.judged("audit", "model", code=0)
        self.assertEqual(
            [tensor["name"] for tensor in document["tensors"]],
            ["model-rank-0/w0", "model-rank-0/w1", "model-rank-1/w0", "model-rank-1/w1"],
        )

    def test_those_that_only_a_number_tells_apart_are_sound(self):
        """As torch-checkpointing writes them; a key that only some have twice is a mistake."""
        for rank in (0, 1, 2):
            tensors = {"v": torch.full((2,), rank + 1.0), "w": torch.full((3,), float(rank))}
            write_safetensors(self.dir / f"items/model_{rank}.safetensors", tensors)
        document = self.judged("audit", "items", code=0)
        self.assertEqual([tensor["name"] for tensor in document["tensors"]][:3],
                         ["model_0/v", "model_0/w", "model_1/v"])  # fmt: skip
        write_safetensors(self.dir / "items/model_2.safetensors", {"w": torch.ones(3)})
        self.judged("audit", "items", code=1)

    def test_a_part_that_is_missing_is_named(self):
        (self.dir / "model/model-rank-1-part-0.safetensors").unlink()
        (line,) = self.judged("audit", "model", code=1)["damage"]
        self.assertIn("expected 'model-rank-1-part-0.safetensors'", line)


class ShardsWithoutIndex(CommandTest):
    labels = "selftest framework"

    def test_several_are_not_sound(self):
        for i in (1, 2):
            write_safetensors(
                self.dir / f"model/model-0000{i}-of-00002.safetensors", {f"w{i}": torch.ones(2)}
            )
        (line,) = self.judged("audit", "model", code=1)["damage"]
        self.assertIn("expected an index of the 2 files", line)

    def test_a_single_one_is(self):
        write_safetensors(self.dir / "model/model-00001-of-00001.safetensors", {"w": torch.ones(2)})
        self.judged("audit", "model", code=0)


class ClassesThatAreNotKnown(CommandTest):
    """Kept as data, listed once; inconclusive where they may hold weights."""

    labels = "selftest framework"

    def tearDown(self):
        sys.modules.pop("their_code", None)
        super().tearDown()

    def saved(self, value):
        holder = holder_of(value)
        torch.save({"w": torch.ones(2), "config": holder, "again": [holder]}, self.dir / "it.pt")

    def test_a_config_is_sound(self):
        self.saved({"lr": 0.1})
        document = self.judged("audit", "it.pt", code=0)
        self.assertEqual(document["unknown_classes"], {"their_code.Holder": 1})
        self.assertIn("their_code.Holder() with {'held': {'lr': 0.1}}",
                      [value["text"] for value in document["values"]])  # fmt: skip
        self.assert_exit(self.shardproof("seal", "it.pt"), 0)
        self.assertIn("unknown classes", self.shardproof("audit", "it.pt").out)

    def test_one_that_holds_a_tensor_is_inconclusive(self):
        self.saved(torch.full((3,), 2.0))
        document = self.judged("audit", "it.pt", code=3)
        self.assertIn("their_code.Holder", document["not_judged"][0])
        self.assertEqual(
            [tensor["name"] for tensor in document["tensors"]], ["again.0.held", "config.held", "w"]
        )

    def test_one_that_leads_back_to_itself_ends(self):
        self.saved(None)
        document = self.judged("audit", "it.pt", code=0)
        self.assertIn("their_code.Holder() with {'held': their_code.Holder(...)}",
                      [value["text"] for value in document["values"]])  # fmt: skip


class TensorsOfParts(CommandTest):
    """What torch saves as several tensors, or with attributes."""

    labels = "selftest framework"

    def test_each_part_is_read(self):
        weight = torch.randn(4, 6)
        state = {
            "sparse": weight.relu().to_sparse(),
            "rows": weight.relu().to_sparse_csr(),
            "buffer": torch.nn.Buffer(weight.clone()),
            "parameter": torch.nn.Parameter(weight.clone()),
            "complex": torch.view_as_complex(weight.double().view(4, 3, 2).contiguous()),
            "quantised": torch.quantize_per_tensor(weight, 0.1, 3, torch.qint8),
        }
        torch.save(state, self.dir / "it.pt")
        plain = {
            "sparse.indices": state["sparse"].coalesce().indices(),
            "sparse.values": state["sparse"].coalesce().values(),
            "rows.compressed_indices": state["rows"].crow_indices(),
            "rows.plain_indices": state["rows"].col_indices(),
            "rows.values": state["rows"].values(),
            "buffer": weight,
            "parameter": weight.clone(),
            "complex": torch.view_as_real(state["complex"]),
            "quantised.int_repr": state["quantised"].int_repr(),
        }
        write_safetensors(
            self.dir / "plain.safetensors", {name: t.detach() for name, t in plain.items()}
        )
        document = self.judged("compare", "it.pt", "plain.safetensors", code=0)
        self.assertEqual(document["tensors"], len(plain))

    def test_two_ways_that_lead_to_one_name(self):
        one, other = torch.ones(2), torch.zeros(3)
        torch.save({"a": {"b": one, 1: one, "1": other}, "a.b": other}, self.dir / "it.pt")
        names = [tensor["name"] for tensor in self.judged("audit", "it.pt", code=0)["tensors"]]
        self.assertEqual(names, ["['a']['1']", "['a']['b']", "['a'][1]", "['a.b']"])
