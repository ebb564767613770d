"""compare, audit and seal on what the real torch saves: DCP directories and files of torch.save."""

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
        saved = self.run_script(REPOSITORY / "verify/selftest/save_dcp.py",
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
        lazy = self.saved("it.pt", {"c": value.conj(), "n": value.clone().conj().imag})
        self.judged("audit", lazy, code=0)
        plain = {"c.conj": value, "n.neg": value.imag.clone()}
        self.judged("compare", lazy, self.saved("plain.pt", plain), code=0)

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
        import torch.distributed.checkpoint as dcp

        dcp.save(
            {"w": torch.ones(2, dtype=torch.complex128)},
            checkpoint_id=self.dir / "dcp",
            no_dist=True,
        )
        self.refused("audit", "dcp", names=["complex128", "not known"])


class OfEveryDtype(CommandTest):
    # By safetensors' names; it has none for the others.
    NAMES = {"bits1x8": "U8", "bits2x4": "U8", "bits4x2": "U8", "bits8": "U8", "bits16": "U16",
             "bfloat16": "BF16", "bool": "BOOL", "complex32": "C32", "complex64": "C64",
             "complex128": "F64", "float16": "F16", "float4_e2m1fn_x2": "F4",
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
                shape = [4, 2] if name == "complex128" else [4]  # of its parts
                self.assertEqual((tensor["dtype"], tensor["shape"]), (self.NAMES[name], shape))
                read.add(name)
            else:
                self.refused("audit", "a.pt", names=["a.pt", name])
        self.assertEqual(read, set(self.NAMES))


class DcpOfParts(CommandTest):
    """What DCP writes without saying what the whole is: named, and not called damaged or
    complete."""

    STATE = {"w": torch.ones(4), "v": torch.zeros(2)}

    def test_without_collectives(self):
        import torch.distributed.checkpoint as dcp

        dcp.save(self.STATE, checkpoint_id=self.dir / "dcp", no_dist=True, use_collectives=False)
        self.assertTrue((self.dir / "dcp/__0.metadata").exists())
        self.refused(
            "audit", "dcp", names=["dcp: '__0.metadata'", "use_collectives=False", "not supported"]
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
            names=["shards: 'shard-00001-model-00001-of-00001.safetensors'", "not supported"],
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
        (self.dir / "old.pt").write_bytes(b"\x80\x02}.")  # of torch before 1.6
        done = self.shardproof("audit", ".")
        self.assert_exit(done, 0)
        self.assertIn("not read, not part of the checkpoint: old.pt\n", done.out)
        self.assertIn("read too, not part of the model: optimizer.pt (0 tensors", done.out)
