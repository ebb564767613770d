"""Checkpoints in fixtures/stored, which real libraries wrote: sound and damaged, without torch."""

import hashlib
import json
import os
import shutil
import struct
import tarfile

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

    def test_universal_state_of_another_shape_is_named(self):
        folder = self.copy("deepspeed") / "universal/zero"
        shutil.copy(folder / "2.bias/exp_avg.pt", folder / "2.weight/exp_avg.pt")
        damage = self.damage("deepspeed/universal")
        self.assertIn("expected 'zero/2.weight/exp_avg.pt' to hold", damage)


class Integrity(StoredTest):
    """integrity.json of Megatron-LM."""

    labels = "selftest"
    step = "megatron/iter_0000020"

    def test_megatrons_own_holds(self):
        document = self.judged("audit", STORED / self.step, code=0)
        self.assertIn("integrity.json: 4 files with the SHA-256", "".join(document["remarks"]))

    def test_a_flipped_bit_is_named(self):
        self.copy("megatron")
        self.flip(self.dir / self.step / "metadata.json", 3)
        self.assertIn("file 'metadata.json': expected SHA-256", self.damage(self.step))

    def test_a_file_that_is_missing_or_not_listed_is_named(self):
        path = self.copy("megatron") / "iter_0000020/integrity.json"
        document = json.loads(path.read_text())
        document["files"]["gone.distcp"] = document["files"].pop("__0_0.distcp")
        path.write_text(json.dumps(document))
        damage = self.damage(self.step)
        self.assertIn("expected it to list '__0_0.distcp'", damage)
        self.assertIn("gone.distcp", damage)

    def test_what_is_wrong_with_the_list_itself(self):
        path = self.copy("megatron") / "iter_0000020/integrity.json"
        listed = json.loads(path.read_text())
        path.write_text(json.dumps(listed | {"algorithm": "blake3"}))
        (line,) = self.judged("audit", self.step, code=3)["not_judged"]
        self.assertIn("algorithm 'blake3', which is not known", line)
        path.write_text(json.dumps({"files": {"../../outside": "00"}}))
        self.assertIn("expected files inside the directory", self.damage(self.step))

    def test_ours_is_megatrons(self):
        """And the sums are right where a file ends at any place of a block."""
        folder = self.copy("megatron") / "iter_0000020"
        theirs = (folder / "integrity.json").read_text()
        (folder / "integrity.json").unlink()
        self.assert_exit(self.shardproof("seal", self.step, "--integrity"), 0)
        self.assertEqual((folder / "integrity.json").read_text(), theirs)
        self.judged("audit", self.step, code=0)
        for size in (0, 55, 56, 63, 64, 65, 119, 120, 128, 3_000_000):
            (folder / f"of_{size}").write_bytes(bytes(i % 251 for i in range(size)))
        self.assert_exit(self.shardproof("seal", self.step, "--integrity", "--replace"), 0)
        for name, found in json.loads((folder / "integrity.json").read_text())["files"].items():
            self.assertEqual(found, hashlib.sha256((folder / name).read_bytes()).hexdigest(), name)

    def test_one_that_does_not_hold_is_replaced_only_when_asked(self):
        self.copy("megatron")
        self.flip(self.dir / self.step / "metadata.json", 3)
        self.assert_exit(self.shardproof("seal", self.step, "--integrity"), 1)
        self.assert_exit(self.shardproof("seal", self.step, "--integrity", "--replace"), 0)
        self.judged("audit", self.step, code=0)

    def test_a_run_holds_its_steps_against_their_seals(self):
        self.copy("megatron")
        other = self.dir / "megatron/iter_0000010"
        header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        data = struct.pack("<Q", len(header)) + header + b"\0\0\0\0"
        other.mkdir()
        (other / "model.safetensors").write_bytes(data)
        self.assert_exit(self.shardproof("seal", other), 0)
        self.flip(other / "model.safetensors", len(data) - 1)
        steps = self.judged("audit", "megatron", code=1)["checkpoints"]
        self.assertIn("differ from the sealed", steps[0]["damage"][0])
        self.assertEqual(steps[1]["damage"], [])


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
        self.assertIn("the save did not finish", self.damage(self.step))

    def test_a_difference_is_named_by_its_part(self):
        other = shutil.copytree(self.step, self.dir / "other")
        self.write(other / "pytorch_model_fsdp_0/model.safetensors", safetensors(w=[1, 3]))
        (difference,) = self.judged("compare", self.step, other, code=1)["differences"]
        self.assertEqual(difference["tensor"], "pytorch_model_fsdp_0/w")

    def test_a_folder_beside_a_whole_model_is_no_part_of_it(self):
        shutil.copy(STORED / "torch_save_2.15.0.pt", self.step / "pytorch_model.bin")
        names = [one["name"] for one in self.judged("audit", self.step, code=0)["tensors"]]
        self.assertIn("views.base", names)
        self.assertNotIn("pytorch_model_fsdp_0/w", names)

    def test_a_run_is_no_composite(self):
        shutil.copytree(self.step, self.dir / "run/checkpoint-30")
        document = self.judged("audit", "run", code=1)  # the two are the same
        self.assertEqual(len(document["checkpoints"]), 2)


class SmallReader(StoredTest):
    """src/digest/read_seal.py, which others copy, says what the command says."""

    labels = "selftest framework"  # it needs numpy

    def read(self, *words):
        return self.run_process(os.environ["SHARDPROOF_TORCH_PYTHON"],
                                REPOSITORY / "src/digest/read_seal.py", *words)  # fmt: skip

    def test_it_reads_a_seal_of_ours(self):
        long = [float(i) for i in range(5000)]
        self.write("m.safetensors", safetensors(a=[1.5], long=long, none=[]))
        self.assert_exit(self.shardproof("seal", "m.safetensors"), 0)
        self.assertEqual(self.read("m.safetensors", "m.safetensors.shardproof.seal.json").out,
                         "3 tensors are as sealed\n")  # fmt: skip
        self.flip(self.dir / "m.safetensors", -1)
        done = self.read("m.safetensors", "m.safetensors.shardproof.seal.json")
        self.assertEqual((done.code, done.out), (1, "long\n"))

    def test_it_has_the_vectors_of_the_specification(self):
        checks = "import json, sys; sys.path.insert(0, sys.argv[1]); import read_seal as r\n"
        checks += "v = json.load(open(sys.argv[1] + '/vectors.json'))['vectors']\n"
        checks += "one = [x for x in v if x['data']['kind'] == 'hex' and len(x['runs']) == 1\n"
        checks += "       and x['runs'][0]['count'] == 1]\n"
        checks += "for x in one: assert r.digest(bytes.fromhex(x['data']['hex']),\n"
        checks += "    x['runs'][0]['global_start']) == x['digest'], x['name']\n"
        checks += "print(len(one))"
        done = self.run_process(os.environ["SHARDPROOF_TORCH_PYTHON"], "-c", checks,
                                REPOSITORY / "src/digest")  # fmt: skip
        self.assert_exit(done, 0)
        self.assertGreater(int(done.out), 5)


class BySeals(StoredTest):
    """compare --sealed reads the seals alone."""

    labels = "selftest"

    def setUp(self):
        super().setUp()
        self.write("a.safetensors", safetensors(w=[1, 2], b=[3]))
        self.write("b.safetensors", safetensors(b=[3], w=[1, 2]))
        self.write("c.safetensors", safetensors(w=[1, 2], b=[4], more=[0]))
        for name in "abc":
            self.assert_exit(self.shardproof("seal", f"{name}.safetensors"), 0)

    def test_equal_ones_are_equal_without_the_weights(self):
        for name in "abc":
            (self.dir / f"{name}.safetensors").unlink()
        a, b, c = (f"{name}.safetensors.shardproof.seal.json" for name in "abc")
        done = self.shardproof("compare", a, b, "--sealed")
        self.assert_exit(done, 0)
        self.assertIn("no value was read", done.out)
        document = self.judged("compare", a, c, "--sealed", code=1)
        self.assertEqual([(one["kind"], one["tensor"]) for one in document["differences"]],
                         [("digest", "b")])  # fmt: skip
        self.assertEqual(document["only_in_b"], ["more"])

    def test_a_checkpoint_without_a_seal_is_refused(self):
        self.judged("compare", "a.safetensors", "b.safetensors", "--sealed", code=0)
        (self.dir / "b.safetensors.shardproof.seal.json").unlink()
        self.refused("compare", "a.safetensors", "b.safetensors", "--sealed",
                     names=["b.safetensors.shardproof.seal.json"])  # fmt: skip


class Gguf(StoredTest):
    """A file that llama.cpp's own package wrote."""

    labels = "selftest"
    path = STORED / "model.gguf"

    def test_it_is_read(self):
        document = self.judged("audit", self.path, code=0)
        found = {one["name"]: (one["dtype"], one["shape"]) for one in document["tensors"]}
        self.assertEqual(found, {
            "f32": ("F32", [2, 32]), "f16": ("F16", [2, 3]), "i32": ("I32", [5]),
            "bf16": ("BF16", [2, 32]), "q8_0": ("U8", [2, 34]), "q4_0": ("U8", [2, 18]),
        })  # fmt: skip
        values = {one["name"]: one["text"] for one in document["values"]}
        self.assertEqual(values["tokenizer.ggml.tokens"], r"['<s>', 'it\'s']")
        self.assertEqual((values["q4_0.type"], values["llama.tied"]), ("'Q4_0'", "True"))
        self.write("plain.safetensors", safetensors(f32=list(map(float, range(64)))))
        others = ("f16", "i32", "bf16", "q8_0", "q4_0")
        self.judged("compare", self.path, "plain.safetensors", "--map",
                    "reshape(f32, [64]) -> f32", *(word for name in others
                                                   for word in ("--map", f"{name} -> _")),
                    code=0)  # fmt: skip

    def test_damage_is_told(self):
        data = self.path.read_bytes()
        self.write("cut.gguf", data[:-40])
        self.assertIn("expected its bytes within the file", self.damage("cut.gguf"))
        self.write("header.gguf", data[:100])
        self.refused("audit", "header.gguf", names=["header.gguf: offset"])
        self.write("many.gguf", data[:8] + b"\xff" * 8 + data[16:])
        self.refused("audit", "many.gguf", names=["no more tensors than fit into the file"])
        self.write("version.gguf", data[:4] + b"\x09" + data[5:])
        self.refused("audit", "version.gguf", names=["version 9 of GGUF, which is not known"])

    def test_a_scale_that_is_no_number_is_named(self):
        data = self.path.read_bytes()
        last = len(data) - 64  # q4_0: two blocks of a scale in F16 and 16 bytes of codes
        for scales, named in (
            (b"\x00\x7c", "found 1 that is NaN or Inf, the first in block 1"),
            (b"\x00\x00", "since its blocks have other codes, found only zeros"),
        ):
            changed = bytearray(data)
            changed[last + 18 : last + 20] = scales
            if scales == bytes(2):
                changed[last : last + 2] = scales
            self.write("odd.gguf", bytes(changed))
            self.assertRegex(self.damage("odd.gguf"), f"tensor 'q4_0': .*{named}")
        changed = bytearray(data)
        changed[last + 18 : last + 20] = b"\x00\x00"  # a block of zeros is none
        self.write("zero.gguf", bytes(changed))
        self.judged("audit", "zero.gguf", code=0)

    def test_every_byte_may_be_wrong(self):
        """No crash, whatever the header says."""
        for at in range(0, 700, 23):
            data = bytearray(self.path.read_bytes())
            data[at] ^= 0xFF
            self.write("odd.gguf", bytes(data))
            self.assertIn(self.shardproof("audit", "odd.gguf").code, (0, 1, 2), at)


class OfAnotherLibrary(StoredTest):
    labels = "selftest"

    def test_orbax_is_named(self):
        self.write("step/_CHECKPOINT_METADATA", "{}")
        self.write("step/default/manifest.ocdbt", "")
        self.refused("audit", "step", names=["tensorstore", "pip install tensorstore"])
        self.refused("compare", "step", "step", names=["tensorstore", "pip install tensorstore"])

    def test_archives_are_read(self):
        self.write("a/model.safetensors", safetensors(w=[1]))
        with tarfile.open(self.dir / "a.tar", "w") as archive:
            archive.add(self.dir / "a/model.safetensors", "model.safetensors")
        self.assert_exit(self.shardproof("audit", "a.tar"), 0)
        self.assert_exit(self.shardproof("compare", "a", "a.tar"), 0)
        self.assert_exit(self.shardproof("seal", "a.tar"), 0)
        self.assertIn("a.tar.shardproof.seal.json", self.shardproof("audit", "a.tar").out)
        self.refused("audit", "ftp://bucket/a", names=["a URL of a kind that is not read"])


class SignedSeals(StoredTest):
    labels = "selftest"

    def setUp(self):
        super().setUp()
        self.write("m.safetensors", safetensors(w=[1, 2]))
        self.write("key.pem", "no key")
        self.assert_exit(self.shardproof("seal", "m.safetensors"), 0)
        self.seal = self.dir / "m.safetensors.shardproof.seal.json"

    def test_what_is_not_signed_is_told(self):
        words = ("audit", "m.safetensors", "--signed-by", "key.pem")
        (line,) = self.judged(*words, code=1)["damage"]
        self.assertIn("expected the signature of the seal", line)
        self.write(f"{self.seal.name}.sig", "{}")
        (line,) = self.judged(*words, code=3)["not_judged"]
        self.assertIn("whether it is signed is not known: ", line)
        self.seal.unlink()
        self.refused(*words, names=["--signed-by: expected a seal"])


class SealsOfModelSigning(StoredTest):
    """With the real package."""

    labels = "selftest nightly"
    timeout_s = 120

    def setUp(self):
        super().setUp()
        self.write("m.safetensors", safetensors(w=[1, 2]))
        self.assert_exit(self.shardproof("seal", "m.safetensors"), 0)
        self.seal = self.dir / "m.safetensors.shardproof.seal.json"

    def test_a_signature_is_of_one_seal_and_one_key(self):
        python = self.python_of("model-signing")
        for name in ("key", "other"):
            made = self.run_process("openssl", "ecparam", "-name", "prime256v1", "-genkey",
                                    "-noout", "-out", f"{name}.secret")  # fmt: skip
            self.assert_exit(made, 0)
            made = self.run_process("openssl", "ec", "-in", f"{name}.secret", "-pubout",
                                    "-out", f"{name}.pem")  # fmt: skip
            self.assert_exit(made, 0)
        signed = self.run_process(python, "-m", "model_signing", "sign", "key", self.seal,
                                  "--private_key", "key.secret",
                                  "--signature", f"{self.seal}.sig")  # fmt: skip
        self.assert_exit(signed, 0)
        words = ("audit", "m.safetensors", "--python", python, "--signed-by")
        self.assertIn("the seal is signed by key.pem",
                      self.judged(*words, "key.pem", code=0)["remarks"])  # fmt: skip
        (line,) = self.judged(*words, "other.pem", code=1)["damage"]
        self.assertIn("expected a signature of the seal by other.pem", line)
        self.write("m.safetensors", safetensors(w=[1, 3]))
        self.assert_exit(self.shardproof("seal", "m.safetensors", "--replace"), 0)
        (line,) = self.judged(*words, "key.pem", code=1)["damage"]
        self.assertIn("expected a signature of the seal by key.pem", line)
