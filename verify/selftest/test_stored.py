"""compare, audit and seal on what the real torch saves: DCP directories and files of torch.save."""

import pickle
import shutil
import sys

import torch
from checkpoints import write_safetensors
from command import REPOSITORY, CommandTest, snapshot

STORED = REPOSITORY / "fixtures" / "stored"
# Of save_dcp.py: 9 parameters, their exp_avg, exp_avg_sq and step, a buffer, the random state.
TENSORS = 9 * 4 + 2


class SavedByFsdp(CommandTest):
    """Cut over a mesh by FSDP2, against the same state gathered whole."""

    def holds(self, mesh):
        saved = self.run_process(sys.executable, REPOSITORY / "verify/selftest/save_dcp.py",
                                 "saved", mesh, timeout=200, TMPDIR=str(self.dir))  # fmt: skip
        self.assert_exit(saved, 0)
        document = self.judged("compare", "saved/dcp", "saved/full.pt", code=0)
        self.assertEqual((document["verdict"], document["tensors"]), ("pass", TENSORS))
        self.assertGreater(document["values"], 20)
        audited = self.judged("audit", "saved/dcp", code=0)
        self.assertEqual((audited["format"], audited["damage"]), ("DCP", []))
        self.assertEqual(len(audited["tensors"]), TENSORS)
        # A seal of the one is good for the other: it does not depend on how tensors are cut.
        self.assert_exit(self.shardproof("seal", "saved/dcp", "--to", "seal.json"), 0)
        self.assert_exit(self.shardproof("audit", "saved/full.pt", "--seal", "seal.json"), 0)
        # One changed element is found by both.
        state = torch.load(self.dir / "saved/full.pt", weights_only=True)
        state["optim"]["state"]["1.weight"]["exp_avg"][4, 6] += 1
        torch.save(state, self.dir / "saved/full.pt")
        document = self.judged("compare", "saved/dcp", "saved/full.pt", code=1)
        (found,) = document["differences"]
        self.assertEqual(
            (found["tensor"], found["coordinates"]), ("optim.state.1.weight.exp_avg", [4, 6])
        )
        audited = self.judged("audit", "saved/full.pt", "--seal", "seal.json", code=1)
        (line,) = audited["damage"]
        self.assertIn("'optim.state.1.weight.exp_avg'", line)


class OfFsdp(SavedByFsdp):
    labels = "selftest framework"
    timeout_s = 240

    def test_three_ranks(self):
        self.holds("3")

    def test_two_by_two(self):
        self.holds("2x2")


class OfFsdpOnMore(SavedByFsdp):
    labels = "selftest nightly"
    timeout_s = 240

    def test_one_rank(self):
        self.holds("1")

    def test_two_ranks(self):
        self.holds("2")

    def test_four_ranks(self):
        self.holds("4")


class OfTorchSave(CommandTest):
    def test_views_and_dtypes_are_what_torch_loads(self):
        """Against safetensors written here from what torch.load gives."""
        from safetensors.torch import save_file

        for path in sorted(STORED.glob("*.pt")):
            loaded = torch.load(path, weights_only=True)
            flat = {}

            def flatten(value, name, flat=flat):
                if isinstance(value, torch.Tensor):
                    flat[name] = value.detach().clone().contiguous()
                elif isinstance(value, dict):
                    for key, item in value.items():
                        flatten(item, f"{name}.{key}" if name else key)
                elif isinstance(value, (list, tuple)):
                    for index, item in enumerate(value):
                        flatten(item, f"{name}.{index}")

            flatten(loaded, "")
            save_file(flat, self.dir / "whole.safetensors")
            document = self.judged("compare", path, "whole.safetensors", code=0)
            self.assertEqual(document["tensors"], len(flat))
            self.assertGreater(document["values_left"], 0)

    def test_files_of_ranks_keep_their_names_apart(self):
        for rank in (0, 1):
            folder = self.dir / "step" / f"mp_rank_0{rank}"
            folder.mkdir(parents=True)
            torch.save(
                {"model": {"w": torch.full((3,), rank)}, "rank": rank},
                folder / "model_optim_rng.pt",
            )
        audited = self.judged("audit", "step", code=0)
        self.assertEqual(
            [tensor["name"] for tensor in audited["tensors"]],
            [f"mp_rank_0{rank}/model_optim_rng/model.w" for rank in (0, 1)],
        )
        self.assertEqual([value["text"] for value in audited["values"]], ["0", "1"])

    def test_a_model_in_several_files_is_one(self):
        """As Transformers wrote them before safetensors; what else lies there is not the
        model's."""
        state = {f"layer.{i}.weight": torch.randn(4, 2) for i in range(4)}
        folder = self.dir / "model"
        folder.mkdir()
        for part in (0, 1):
            torch.save(
                {k: v for k, v in state.items() if int(k[6]) % 2 == part},
                folder / f"pytorch_model-{part}.bin",
            )
        torch.save({"seed": 1}, folder / "training_args.bin")
        index = {key: f"pytorch_model-{int(key[6]) % 2}.bin" for key in state}
        self.write("model/pytorch_model.bin.index.json", {"weight_map": index})
        torch.save(state, self.dir / "whole.pt")
        self.assertEqual(self.judged("compare", "whole.pt", "model", code=0)["tensors"], 4)
        (folder / "pytorch_model-1.bin").unlink()
        audited = self.judged("audit", "model", code=1)
        self.assertEqual(len(audited["tensors"]), 2)
        self.assertIn("pytorch_model-1.bin", audited["damage"][0])

    def test_large_tensors_in_boxes(self):
        """Of more than one piece of 4 MiB, cut along both dims, read in its own order."""
        tensor = torch.arange(3000 * 1501, dtype=torch.int32).reshape(3000, 1501)
        torch.save({"w": tensor.t(), "v": tensor[1:, 3:77]}, self.dir / "views.pt")
        torch.save(
            {"w": tensor.t().contiguous(), "v": tensor[1:, 3:77].clone()}, self.dir / "plain.pt"
        )
        self.assertEqual(self.judged("compare", "views.pt", "plain.pt", code=0)["tensors"], 2)
        views, plain = (
            self.judged("audit", name, code=0)["tensors"] for name in ("views.pt", "plain.pt")
        )
        self.assertEqual([t["digest"] for t in views], [t["digest"] for t in plain])

    def test_the_model_in_a_state_against_the_model_alone(self):
        model = {"a.weight": torch.randn(3, 2), "b": torch.ones(1)}
        torch.save(
            {"model": model, "optim": {"lr": 0.1, "m": torch.ones(4)}, "step": 3},
            self.dir / "state.pt",
        )
        torch.save(model, self.dir / "model.pt")
        self.judged("compare", "model.pt", "state.pt", code=1)
        document = self.judged("compare", "model.pt", "state.pt", "--in-b", "model.", code=0)
        self.assertEqual((document["tensors"], document["values"]), (2, 0))
        self.judged("compare", "state.pt", "model.pt", "--in-a", "model.", code=0)
        self.refused(
            "compare", "model.pt", "state.pt", "--in-b", "modle.", names=["state.pt", "'modle.'"]
        )

    def test_values_that_differ_are_named(self):
        torch.save({"step": 7, "lr": 0.1, "w": torch.ones(2)}, self.dir / "a.pt")
        torch.save({"step": 8, "lr": 0.1, "w": torch.ones(2), "new": None}, self.dir / "b.pt")
        document = self.judged("compare", "a.pt", "b.pt", code=1)
        (found,) = document["differences"]
        self.assertEqual(
            [found[key] for key in ("kind", "tensor", "expected", "seen")],
            ["value", "step", "7", "8"],
        )
        self.assertEqual(document["only_in_b"], ["new"])


class WhatTensorsAre(CommandTest):
    """Contents that are easily passed over: two files that differ in them are not the same."""

    def saved(self, name, value):
        torch.save(value, self.dir / name)
        return name

    def differ(self, one, other):
        self.judged("compare", self.saved("a.pt", one), self.saved("b.pt", other), code=1)
        self.judged("compare", "a.pt", "a.pt", code=0)

    def test_attributes_of_parameters(self):
        def parameter(extra):
            made = torch.nn.Parameter(torch.ones(2))
            made.extra = torch.full((3,), extra)
            return {"w": made}

        self.differ(parameter(1.0), parameter(2.0))

    def test_bare_storages(self):
        self.differ({"s": torch.ones(2).untyped_storage()}, {"s": torch.zeros(2).untyped_storage()})

    def test_lazily_conjugated_ones_are_not_taken_as_they_lie(self):
        value = torch.randn(3, dtype=torch.complex64)
        self.refused("audit", self.saved("c.pt", {"c": value.conj()}), names=["c.pt", "conj"])
        self.refused("audit", self.saved("n.pt", {"n": value.conj().imag}), names=["n.pt", "neg"])

    def test_a_set_has_no_order(self):
        texts = ["alpha", "beta", "gamma", "delta"]
        for name, seed in (("a.pt", "1"), ("b.pt", "2")):
            code = f"import torch; torch.save({{'s': set({texts})}}, {name!r})"
            self.assert_exit(self.run_process(sys.executable, "-c", code, PYTHONHASHSEED=seed), 0)
        self.judged("compare", "a.pt", "b.pt", code=0)

    def test_protocols_do_not_matter(self):
        value = {"c": 1 + 2j, "s": slice(1, 2), "r": range(3), "w": torch.ones(2)}
        torch.save(value, self.dir / "a.pt", pickle_protocol=2)
        torch.save(value, self.dir / "b.pt", pickle_protocol=4)
        self.judged("compare", "a.pt", "b.pt", code=0)

    def test_few_bytes_that_stand_for_many(self):
        name = self.saved("e.pt", {"w": torch.zeros(1).expand(2**40)})
        self.refused("audit", name, names=["share the bytes"], timeout=10)
        texts = "x" * 20_000
        nested = texts
        for _ in range(5):
            nested = [nested] * 10
        self.refused(
            "audit", self.saved("t.pt", {"t": nested}), names=["bytes of text"], timeout=20
        )

    def test_what_is_not_known_is_not_called_damaged(self):
        self.refused("audit", self.saved("d.pt", {"w": torch.ones(2, dtype=torch.complex128)}),
                     names=["ComplexDoubleStorage", "not known"])  # fmt: skip
        import torch.distributed.checkpoint as dcp

        dcp.save(
            {"w": torch.ones(2, dtype=torch.complex128)},
            checkpoint_id=self.dir / "dcp",
            no_dist=True,
        )
        self.refused("audit", "dcp", names=["complex128", "not known"])


class OfEveryDtype(CommandTest):
    # By safetensors' names; it has none for the others.
    NAMES = {"bfloat16": "BF16", "bool": "BOOL", "complex64": "C64", "float16": "F16",
             "float32": "F32", "float64": "F64", "float8_e4m3fn": "F8_E4M3",
             "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2": "F8_E5M2",
             "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0", "int8": "I8",
             "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16",
             "uint32": "U32", "uint64": "U64"}  # fmt: skip

    def test_it_is_read_or_refused_by_its_name(self):
        """Whatever this torch can save."""
        dtypes = {
            str(dtype).split(".")[1]: dtype
            for dtype in vars(torch).values()
            if isinstance(dtype, torch.dtype)
        }
        read = set()
        for name, dtype in dtypes.items():
            try:
                torch.save({"layer": {"w": torch.empty(4, dtype=dtype)}}, self.dir / "a.pt")
            except (RuntimeError, KeyError):
                continue  # none can be made, or saved: quantised ones, int1 to int7
            if name in self.NAMES:
                (tensor,) = self.judged("audit", "a.pt", code=0)["tensors"]
                self.assertEqual((tensor["dtype"], tensor["shape"]), (self.NAMES[name], [4]))
                read.add(name)
            elif name in ("complex128", "complex32"):
                self.refused("audit", "a.pt", names=["a.pt", "'layer.w'", "not known"])
            else:
                self.refused("audit", "a.pt", names=["a.pt", name])
        self.assertEqual(read, set(self.NAMES))


class Rot(CommandTest):
    """Bits that flip on the disk show without a seal, by the CRC-32 that torch.save writes."""

    STATE = {"w": torch.arange(2000.0), "v": torch.arange(7000, 7010.0)}

    def flip(self, path, start):
        """In the tensor that begins with this number."""
        data = bytearray((self.dir / path).read_bytes())
        at = data.find(torch.tensor([start, start + 1]).numpy().tobytes())
        self.assertGreater(at, 0)
        data[at + 5] ^= 16
        (self.dir / path).write_bytes(data)

    def save(self):
        import torch.distributed.checkpoint as dcp

        torch.save(self.STATE | {"row": self.STATE["w"][3:]}, self.dir / "a.pt")
        dcp.save(self.STATE, checkpoint_id=self.dir / "dcp", no_dist=True)

    def test_it_is_named(self):
        self.save()
        for path, file, names in (
            ("a.pt", "a.pt", "tensors 'w', 'row'"),
            ("dcp", "dcp/__0_0.distcp", "tensor 'w'"),
        ):
            audited = self.judged("audit", path, code=0)
            self.assertEqual((audited["crc32"]["absent"], audited["damage"]), (0, []))
            self.assertGreater(audited["crc32"]["checked"], 5)
            self.flip(file, 100.0)
            (line,) = self.judged("audit", path, code=1)["damage"]
            self.assertTrue(line.startswith(f"{file}: entry 'data/0' at offset "), line)
            self.assertRegex(
                line, f", of {names}: expected CRC-32 [0-9a-f]{{8}}, found [0-9a-f]{{8}}$"
            )

    def test_of_the_pickle(self):
        self.save()
        data = (self.dir / "a.pt").read_bytes()
        for old, new in ((b"row", b"sow"), (b"FloatStorage", b"FloetStorage")):
            (self.dir / "a.pt").write_bytes(data.replace(old, new, 1))
            (line,) = self.judged("audit", "a.pt", code=1)["damage"]
            self.assertIn("a.pt: entry 'data.pkl' at offset ", line)
            self.refused("compare", "a.pt", "a.pt", names=["a.pt", "'data.pkl'", "CRC-32"])

    def test_where_torch_was_told_to_write_none(self):
        self.addCleanup(
            torch.serialization.set_crc32_options, torch.serialization.get_crc32_options()
        )
        torch.serialization.set_crc32_options(False)
        self.save()
        for path, file in (("a.pt", "a.pt"), ("dcp", "dcp/__0_0.distcp")):
            self.flip(file, 100.0)
            audited = self.judged("audit", path, code=0)
            self.assertEqual((audited["crc32"]["checked"], audited["damage"]), (0, []))
            self.assertIn("SOUND, structure only", self.shardproof("audit", path).out)

    def test_of_storages_that_were_filled_later(self):
        with torch.serialization.skip_data():
            torch.save(self.STATE, self.dir / "a.pt")
        audited = self.judged("audit", "a.pt", code=0)
        self.assertEqual((audited["crc32"]["absent"], audited["damage"]), (2, []))
        self.assertIn("SOUND, structure and CRC-32 of ", self.shardproof("audit", "a.pt").out)


class DcpOfParts(CommandTest):
    """What DCP writes without saying what the whole is: named, and not called damaged or
    complete."""

    STATE = {"w": torch.ones(4), "v": torch.zeros(2)}

    def test_without_collectives(self):
        import torch.distributed.checkpoint as dcp

        dcp.save(self.STATE, checkpoint_id=self.dir / "dcp", no_dist=True, use_collectives=False)
        self.assertTrue((self.dir / "dcp/__0.metadata").exists())
        self.refused(
            "audit", "dcp", names=["dcp: '__0.metadata'", "use_collectives=False", "not read"]
        )

    def test_shards_of_safetensors(self):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

        def save(path, **options):
            dcp.save(
                self.STATE,
                storage_writer=HuggingFaceStorageWriter(str(self.dir / path), **options),
                no_dist=True,
            )

        save("shards", save_distributed=True)
        self.refused(
            "audit",
            "shards",
            names=["shards: 'shard-00001-model-00001-of-00001.safetensors'", "not read"],
        )
        save("joined", save_distributed=True, enable_consolidation=True)
        save("whole")
        self.assertEqual(self.judged("compare", "joined", "whole", code=0)["tensors"], 2)


class SealsKept(CommandTest):
    def test_a_seal_goes_over_no_other_file(self):
        torch.save({"w": torch.ones(2)}, self.dir / "a.pt")
        self.refused("seal", "a.pt", "--to", "a.pt", names=["a.pt"])

    def test_a_seal_that_does_not_hold_is_kept(self):
        torch.save({"w": torch.ones(2)}, self.dir / "a.pt")
        self.assert_exit(self.shardproof("seal", "a.pt"), 0)
        self.assert_exit(self.shardproof("seal", "a.pt"), 0)
        torch.save({"w": torch.zeros(2)}, self.dir / "a.pt")
        before = snapshot(self.dir)
        done = self.shardproof("seal", "a.pt")
        self.assert_exit(done, 1)
        self.assertIn("does not match this seal", done.err)
        self.assertEqual(snapshot(self.dir), before)
        self.assert_exit(self.shardproof("seal", "a.pt", "--replace"), 0)
        self.assert_exit(self.shardproof("audit", "a.pt"), 0)

    def test_a_part_that_a_name_promises(self):
        from checkpoints import f32

        write_safetensors(self.dir / "model-00001-of-00002.safetensors", {"a": f32([2])})
        audited = self.judged("audit", ".", code=1)
        self.assertIn("model-00002-of-00002.safetensors", audited["damage"][0])

    def test_what_was_not_read_is_said(self):
        from checkpoints import f32

        write_safetensors(self.dir / "model.safetensors", {"a": f32([2])})
        torch.save({}, self.dir / "optimizer.pt")
        done = self.shardproof("audit", ".")
        self.assert_exit(done, 0)
        self.assertIn("not read, not part of the checkpoint: optimizer.pt", done.out)


class DamagedDcp(CommandTest):
    """A sound directory with one thing wrong in its .metadata or files."""

    def setUp(self):
        super().setUp()
        shutil.copytree(STORED / "dcp_2.15.0", self.dir / "dcp")

    def with_metadata(self, change):
        """Lets torch read the metadata, changes it, and writes it anew."""
        path = self.dir / "dcp" / ".metadata"
        metadata = pickle.loads(path.read_bytes())
        change(metadata)
        path.write_bytes(pickle.dumps(metadata, protocol=4))

    def not_sound(self, *names):
        audited = self.judged("audit", "dcp", code=1)
        self.assertTrue(audited["damage"])
        for name in names:
            self.assertIn(name, audited["damage"][0])
        self.refused("compare", "dcp", "dcp", names=names)

    def test_unchanged_it_is_sound(self):
        self.with_metadata(lambda metadata: None)
        self.assertEqual(self.judged("audit", "dcp", code=0)["damage"], [])

    def test_a_missing_file(self):
        (self.dir / "dcp" / "__1_0.distcp").unlink()
        self.not_sound("__1_0.distcp", "No such file")

    def test_a_short_file(self):
        with (self.dir / "dcp" / "__0_0.distcp").open("r+b") as file:
            file.truncate(4000)
        self.not_sound("within the 4000 bytes of '__0_0.distcp'")

    def chunk(self, metadata, number=1):
        return metadata.state_dict_metadata["rows"].chunks[number]

    def test_chunks_that_overlap_or_leave_a_gap(self):
        def drop(metadata):
            del metadata.state_dict_metadata["rows"].chunks[1]

        self.with_metadata(drop)
        self.not_sound("'rows'", "6 of 15 elements in none")

    def test_a_size_that_does_not_fit(self):
        def grow(metadata):
            metadata.state_dict_metadata["rows"].size = torch.Size([6, 3])

        self.with_metadata(grow)
        self.not_sound("'rows'", "3 of 18 elements in none")

    def test_a_chunk_of_another_size_than_its_file_has(self):
        def widen(metadata):
            self.chunk(metadata).sizes = torch.Size([2, 2])

        self.with_metadata(widen)
        self.not_sound("'rows'", "[2, 2]", "found F32 [2, 3]")

    def test_another_dtype_than_the_file_has(self):
        def cast(metadata):
            metadata.state_dict_metadata["rows"].properties.dtype = torch.int32

        self.with_metadata(cast)
        self.not_sound("'rows'", "I32", "found F32")

    def test_a_piece_without_a_place(self):
        def lose(metadata):
            index = next(i for i in metadata.storage_data if i.fqn == "columns")
            del metadata.storage_data[index]

        self.with_metadata(lose)
        self.not_sound("'columns'", "a place of the piece")

    def test_a_file_outside_of_the_directory(self):
        def leave(metadata):
            for info in metadata.storage_data.values():
                info.relative_path = "../" + info.relative_path

        self.with_metadata(leave)
        self.refused("audit", "dcp", names=[".metadata", "inside the directory", "'../__"])

    def test_a_flipped_byte_is_seen_by_the_seal(self):
        self.assert_exit(self.shardproof("seal", "dcp"), 0)
        path = self.dir / "dcp" / "__1_0.distcp"
        data = bytearray(path.read_bytes())
        data[data.find(torch.tensor([9.0, 10.0, 11.0]).numpy().tobytes())] ^= 4
        path.write_bytes(data)
        audited = self.judged("audit", "dcp", code=1)
        self.assertEqual(["CRC-32" in line for line in audited["damage"]], [True, False])
        self.assertEqual([("rows" in line, "sealed" in line) for line in audited["damage"]],
                         [(True, False), (True, True)])  # fmt: skip

    def test_the_newest_good_one_is_named(self):
        for step in (8, 9, 10, 11):
            shutil.copytree(self.dir / "dcp", self.dir / "run" / f"step-{step}")
        (self.dir / "run/step-11/.metadata").unlink()
        (self.dir / "run/step-10/__0_0.distcp").unlink()
        done = self.shardproof("audit", "run", "--latest-good")
        self.assert_exit(done, 0)
        self.assertEqual(done.out, "run/step-9\n")
        self.assertEqual(
            [line.split(": ")[1] for line in done.err.splitlines()], ["run/step-11", "run/step-10"]
        )

    def test_what_is_no_checkpoint_is_passed_over(self):
        shutil.copytree(self.dir / "dcp", self.dir / "run/step-9")
        self.write("run/logs/events.out", "x")
        self.write("run/results/metrics.json", "{}")
        self.write("run/latest", "step-9")
        passed = "shardproof: run: passed over, being no checkpoints: logs, results"
        done = self.shardproof("audit", "run", "--latest-good")
        self.assert_exit(done, 0)
        self.assertEqual((done.out, done.err.splitlines()), ("run/step-9\n", [passed]))
        with (self.dir / "run/step-9/__0_0.distcp").open("r+b") as file:
            file.truncate(4000)
        done = self.shardproof("audit", "run", "--latest-good")
        self.assert_exit(done, 1)
        lines = done.err.splitlines()
        self.assertEqual((len(lines), lines[0]), (3, passed))
        self.assertIn("run/step-9: not sound: ", lines[1])
        self.assertIn("found none among 1", lines[2])

    def test_no_good_one(self):
        (self.dir / "dcp/__0_0.distcp").unlink()
        done = self.shardproof("audit", ".", "--latest-good")
        self.assert_exit(done, 1)
        self.assertIn("found none", done.err)


class Attack:
    """Pickles as a call, whatever it is."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def attacks(proof):
    """Pickles that would leave `proof` behind if Python loaded them, or fill its memory or
    stack."""
    import os
    import subprocess

    touch = f"touch {proof}"
    acting = {
        "system": Attack(os.system, touch),
        "eval": Attack(eval, f"__import__('os').system({touch!r})"),
        "exec": Attack(exec, f"open({str(proof)!r}, 'w')"),
        "popen": Attack(subprocess.Popen, ["touch", str(proof)]),
        "open": Attack(open, str(proof), "w"),
        "torch_load": Attack(torch.load, str(proof)),
        "import": Attack(__import__, "antigravity"),
        "getattr": Attack(getattr, os, "system"),
        "in_a_dict": {"model": torch.ones(2), "x": [Attack(os.system, touch)]},
        "as_a_key": {(1, Attack(os.system, touch)): 2},
    }
    pickles = {}
    for name, value in acting.items():
        for protocol in (2, 4):
            try:
                pickles[f"{name}_{protocol}"] = pickle.dumps(value, protocol)
            except TypeError:  # a module is not pickled
                pickles[f"{name}_{protocol}"] = b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R."
    pickles |= {
        "inst": b"\x80\x02(X\x04\0\0\0trueios\nsystem\n.",
        "obj": b"\x80\x02(cos\nsystem\nX\x04\0\0\0trueo.",
        "extension": b"\x80\x02\x82\x01.",
        "dotted": b"\x80\x04\x8c\x05torch\x8c\x0bhub.os.path\x93.",
        "deep_lists": b"\x80\x02" + b"]" * 3_000_000 + b"a" * 2_999_999 + b".",
        "deep_tuples": b"\x80\x02)" + b"\x85" * 3_000_000 + b".",
        "memo": b"\x80\x02Nr\xff\xff\xff\x7f.",
        "frame": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.",
        "bytes": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x00.",
        "long": b"\x80\x02\x8b\xff\xff\xff\x7f.",
        "endless_dict": b"\x80\x02}q\0(X\x01\0\0\0ah\0u.",
        "laughs": b"\x80\x04(]\x94" + b"".join(
            b"](" + bytes((0x68, i)) * 10 + b"e\x94" for i in range(60)) + b"l.",
        "copies": b"\x80\x04(" + b"N" * 500_000 + b"t\x940("
        + b"ctorch\nSize\nh\0\x85R" * 5_000 + b"l.",
        "empty": b"",
        "text": b"this is no pickle",
    }  # fmt: skip
    return pickles


class MaliciousPickles(CommandTest):
    """In each of the places that hold one: refused in one line, nothing run, little memory
    taken."""

    labels = "selftest framework"
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.proof = self.root / "proof"

    def refuses(self, name, path):
        import resource

        before = snapshot(self.dir)
        done = self.shardproof("audit", path, timeout=30)
        self.assertIn(done.code, (1, 2), f"{name}: {done}")
        said = done.err.splitlines() if done.code == 2 else done.out.splitlines()
        self.assertTrue(said and (done.code == 1 or len(said) == 1), f"{name}: {done}")
        self.assertFalse(self.proof.exists(), name)
        self.assertEqual(snapshot(self.dir), before)
        self.assertLess(
            resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 2 << 20, name
        )  # KiB

    def test_as_metadata(self):
        (self.dir / "dcp").mkdir()
        for name, content in attacks(self.proof).items():
            (self.dir / "dcp" / ".metadata").write_bytes(content)
            self.refuses(name, "dcp")

    def test_as_data_of_torch_save(self):
        import zipfile

        for name, content in attacks(self.proof).items():
            with zipfile.ZipFile(self.dir / "a.pt", "w") as archive:
                archive.writestr("a/data.pkl", content)
                archive.writestr("a/byteorder", "little")
                archive.writestr("a/version", "3")
            self.refuses(name, "a.pt")

    def test_as_an_item_of_dcp(self):
        """What .metadata says is sound; the bytes of `step` are a pickle of ours."""
        import io
        import zipfile

        shutil.copytree(STORED / "dcp_2.15.0", self.dir / "dcp")
        path = self.dir / "dcp" / ".metadata"
        sound = path.read_bytes()
        for name, content in attacks(self.proof).items():
            item = io.BytesIO()
            with zipfile.ZipFile(item, "w") as archive:
                archive.writestr("a/data.pkl", content)
                archive.writestr("a/version", "3")
            (self.dir / "dcp" / "attack.distcp").write_bytes(item.getvalue())
            metadata = pickle.loads(sound)
            for index, info in metadata.storage_data.items():
                if index.fqn == "step":
                    info.relative_path, info.offset, info.length = (
                        "attack.distcp",
                        0,
                        len(item.getvalue()),
                    )
            path.write_bytes(pickle.dumps(metadata, protocol=4))
            self.refuses(name, "dcp")


class BadInput(CommandTest):
    def test_what_is_no_checkpoint(self):
        self.refused("audit", "none", names=["none", "No such file"])
        self.write("empty.pt", b"")
        self.refused("audit", "empty.pt", names=["empty.pt"])
        self.write("text.pt", b"hello, this is text, and no checkpoint")
        self.refused("audit", "text.pt", names=["text.pt"])
        self.write("old.pt", pickle.dumps(torch.serialization.MAGIC_NUMBER, 2))
        self.refused("audit", "old.pt", names=["old.pt", "before PyTorch 1.6"])
        (self.dir / "folder").mkdir()
        self.refused("audit", "folder", names=["folder", "expected"])

    def test_a_torchscript_archive(self):
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), self.dir / "script.pt")
        self.refused("audit", "script.pt", names=["script.pt", "not compressed"])

    def test_compressed_entries(self):
        import zipfile

        with zipfile.ZipFile(self.dir / "a.pt", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a/data.pkl", pickle.dumps([0] * 1000, 2))
        self.refused("audit", "a.pt", names=["not compressed", "'a/data.pkl'"])

    def test_a_directory_of_damaged_safetensors(self):
        """What the index names and the files do not have is damage, not an unreadable
        checkpoint."""
        from checkpoints import f32

        write_safetensors(self.dir / "model-1.safetensors", {"a": f32([2])})
        self.write("model.safetensors.index.json",
                   {"weight_map": {"a": "model-1.safetensors",
                                   "b": "model-2.safetensors"}})  # fmt: skip
        audited = self.judged("audit", ".", code=1)
        self.assertEqual([tensor["name"] for tensor in audited["tensors"]], ["a"])
        self.assertIn("model-2.safetensors", audited["damage"][0])
