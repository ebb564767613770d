"""Checkpoints in fixtures/stored, which real libraries wrote: sound and damaged, without torch."""

import json
import shutil
import struct

from command import REPOSITORY, CommandTest

STORED = REPOSITORY / "fixtures" / "stored"


class StoredTest(CommandTest):
    def copy(self, name):
        """A copy that may be damaged."""
        return shutil.copytree(STORED / name, self.dir / name)

    def flip(self, path, at):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    def damage(self, path):
        return "\n".join(self.judged("audit", path, code=1)["damage"])


class Fsdp1(StoredTest):
    """ShardedTensors of three ranks, which have no even share of any tensor."""

    labels = "selftest"

    def test_files_of_ranks_are_the_whole_model(self):
        for ranks, whole, tensors in (("sharded", "whole.pt", 4), ("local", "flat.pt", 2)):
            document = self.judged("compare", STORED / "fsdp1" / ranks, STORED / "fsdp1" / whole,
                                   code=0)  # fmt: skip
            self.assertEqual((document["verdict"], document["tensors"]), ("pass", tensors))
            audited = self.judged("audit", STORED / "fsdp1" / ranks, code=0)
            self.assertEqual((audited["unknown_classes"], audited["not_judged"]), ({}, []))

    def test_a_rank_that_is_missing_leaves_a_gap(self):
        folder = self.copy("fsdp1") / "sharded"
        (folder / "model_world_size_3_rank_1.pt").unlink()
        damage = self.damage(folder)
        self.assertIn("expected 'model_world_size_3_rank_1.pt'", damage)
        self.assertIn("tensor '0.weight': expected chunks that tile [7, 5]", damage)

    def test_a_rank_that_is_there_twice_is_no_copy_of_another(self):
        folder = self.copy("fsdp1") / "sharded"
        shutil.copy(folder / "model_world_size_3_rank_0.pt",
                    folder / "model_world_size_3_rank_1.pt")  # fmt: skip
        self.assertIn("tensor '1.weight': expected chunks that tile [3, 7]", self.damage(folder))


class DeepSpeed(StoredTest):
    """ZeRO 2 and 3 with two groups of parameters and a frozen one, and a universal checkpoint."""

    labels = "selftest"

    def test_deepspeeds_own_are_sound(self):
        for name in ("stage_2", "stage_3", "universal", "whole"):
            self.judged("audit", STORED / "deepspeed" / name, code=0)

    def test_universal_is_the_whole_model(self):
        document = self.judged("compare", STORED / "deepspeed/universal",
                               STORED / "deepspeed/whole", "--map", "deepspeed-universal",
                               code=0)  # fmt: skip
        self.assertEqual((document["verdict"], document["tensors"]), ("pass", 6))

    def test_a_partition_that_is_missing_is_named(self):
        folder = self.copy("deepspeed")
        last = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
        for stage in ("stage_2", "stage_3"):
            (folder / stage / last).unlink()
            self.assertIn(f"expected '{last}'", self.damage(folder / stage))

    def test_a_universal_parameter_without_its_files_is_named(self):
        folder = self.copy("deepspeed") / "universal"
        (folder / "zero/2.weight/exp_avg.pt").unlink()
        (folder / "zero/3.bias/fp32.pt").unlink()
        damage = self.damage(folder)
        self.assertIn("expected 'zero/2.weight/exp_avg.pt'", damage)
        self.assertIn("expected 'zero/3.bias/fp32.pt'", damage)
        self.assertNotIn("0.bias", damage)  # it is frozen, and has no state


def safetensors(**tensors):
    """Bytes of a file with these vectors of F32."""
    header, data = {}, b""
    for name, values in tensors.items():
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class Composite(StoredTest):
    """Directories whose parts are checkpoints by themselves: Accelerate, Trainer with FSDP."""

    labels = "selftest"

    def setUp(self):
        super().setUp()
        shutil.copytree(STORED / "dcp_2.15.0", self.dir / "run/checkpoint-20/optimizer_0")
        self.write("run/checkpoint-20/pytorch_model_fsdp_0/model.safetensors",
                   safetensors(w=[1, 2]))  # fmt: skip
        shutil.copy(STORED / "torch_save_2.15.0.pt", self.dir / "run/checkpoint-20/scheduler.pt")
        self.step = self.dir / "run/checkpoint-20"

    def test_the_parts_are_one_checkpoint(self):
        names = [one["name"] for one in self.judged("audit", self.step, code=0)["tensors"]]
        for name in ("optimizer_0/rows", "pytorch_model_fsdp_0/w", "views.base"):
            self.assertIn(name, names)
        self.judged("compare", self.step, self.step, code=0)
        self.assert_exit(self.shardproof("seal", self.step), 0)
        self.judged("audit", self.step, code=0)

    def test_what_is_wrong_with_a_part_is_told(self):
        self.flip(self.step / "optimizer_0/__1_0.distcp", 3000)
        self.assertIn("optimizer_0/__1_0.distcp", self.damage(self.step))
        (self.step / "optimizer_0/.metadata").unlink()
        self.assertIn("a save that did not end", self.damage(self.step))

    def test_a_difference_is_named_by_its_part(self):
        other = shutil.copytree(self.step, self.dir / "other")
        self.write(other / "pytorch_model_fsdp_0/model.safetensors", safetensors(w=[1, 3]))
        (difference,) = self.judged("compare", self.step, other, code=1)["differences"]
        self.assertEqual(difference["tensor"], "pytorch_model_fsdp_0/w")

    def test_a_run_is_no_composite(self):
        shutil.copytree(self.step, self.dir / "run/checkpoint-30")
        document = self.judged("audit", "run", code=1)  # the two are the same
        self.assertEqual(len(document["checkpoints"]), 2)
