"""Optimizer steps, checkpoints and resume of the reference, against the real torch."""

import json
import os
import shutil
from pathlib import Path

import safetensors
import torch
from command import REPOSITORY, CommandTest

BUILD = Path(os.environ["SHARDPROOF_BUILD"])
SELFTEST = REPOSITORY / "verify" / "selftest"

STEP = "step-00000002"  # of four, what is saved unless a case says otherwise

# The model of save_dcp.py, all of which is trained but the counter.
MODEL = [
    {"name": name, "dtype": "F32", "shape": shape}
    for name, shape in {
        "0.weight": [11, 7], "1.weight": [5, 7], "1.bias": [5], "2.weight": [5], "2.bias": [5],
        "3.weight": [3, 5], "3.bias": [3], "4.weight": [1, 3], "4.bias": [1],
    }.items()
] + [{"name": "counter", "kind": "buffer", "dtype": "I64", "shape": [5]}]  # fmt: skip
# Dtypes, a tie, a frozen tensor, one without dims, one without elements, strides.
MIXED = MODEL + [
    {"name": "bf16.weight", "dtype": "BF16", "shape": [6, 4]},
    {"name": "bf16.bias", "dtype": "BF16", "shape": [7]},
    {"name": "f16.weight", "dtype": "F16", "shape": [4, 3]},
    {"name": "f64.weight", "dtype": "F64", "shape": [3, 2]},
    {"name": "frozen.weight", "dtype": "F32", "shape": [3, 2], "requires_grad": False},
    {"name": "scale", "dtype": "F32", "shape": []},
    {"name": "none.weight", "dtype": "F32", "shape": [0, 3]},
    {"name": "turned.weight", "dtype": "F32", "shape": [4, 6], "strides": [1, 4]},
    {"name": "head.weight", "dtype": "F32", "shape": [9, 2]},
    {"name": "tied.weight", "dtype": "F32", "shape": [9, 2]},
]

# Made of parts where checkpoints keep it: halves of rows, packed experts, one without elements, one
# under another name.
FUSED = MIXED + [
    {"name": "mlp.gate_up.weight", "dtype": "BF16", "shape": [9, 4],
     "stored": [[{"key": "mlp.gate.weight", "shape": [5, 4]},
                 {"key": "mlp.up.weight", "shape": [4, 4]}]]},
    {"name": "mlp.experts.gate_up_proj", "dtype": "F32", "shape": [3, 4, 2],
     "stored": [[{"key": f"mlp.experts.{expert}.{half}.weight", "shape": [2, 2]}
                 for expert in range(3) for half in ("gate", "up")]]},
    {"name": "qkv.bias", "dtype": "F32", "shape": [6],
     "stored": [[{"key": "q.bias", "shape": [3]}, {"key": "k.bias", "shape": [0]},
                 {"key": "v.bias", "shape": [3]}]]},
    {"name": "here.scale", "dtype": "F16", "shape": [5],
     "stored": [[{"key": "there.scale", "shape": [5]}]]},
]  # fmt: skip
TIES = [["head.weight", "tied.weight"]]


def axes(text):
    return [
        {"name": word.split("=")[0], "size": int(word.split("=")[1])} for word in text.split(",")
    ]


def case(tensors, mesh, **fields):
    model = {"tensors": tensors}
    if tensors is not MODEL and len(tensors) > len(MODEL):
        model["ties"] = TIES
    made = {
        "schema": 1,
        "seed": 3,
        "model": model,
        "mesh": axes(mesh),
        "steps": 4,
        "transport": "sim",
    }
    return made | fields


class Trained(CommandTest):
    def passes(self, made, *words):
        self.write("case.json", made)
        document = self.judged("verify", "--case", "case.json", *words, code=0)
        verdicts = {each["id"]: each for each in document["properties"]}
        for name in (
            "checkpoint.resume_exact",
            "checkpoint.training_round_trip",
            "training.steps_by_formula",
        ):
            self.assertEqual(verdicts[name]["verdict"], "pass", verdicts[name])
            self.assertGreaterEqual(verdicts[name]["comparisons"], 10)
        return document


class Resumes(Trained):
    labels = "selftest multi-rank framework"

    def test_on_every_kind_of_mesh(self):
        for mesh, other in (("dp_shard=3", "dp_replicate=2,dp_shard=2"),
                            ("dp_replicate=2,dp_shard=2", "dp_shard=5"),
                            ("dp_shard=2,tp=2", "dp_shard=1"), ("dp_shard=1", "tp=3")):  # fmt: skip
            self.passes(case(MIXED, mesh, resume_mesh=axes(other)))

    def test_by_every_strategy(self):
        for strategy in ("rank0-broadcast", "rank0-scatter", "each-reads-own", "plain"):
            self.passes(
                case(MIXED, "dp_shard=2", resume_mesh=axes("dp_shard=3"), strategy=strategy)
            )

    def test_with_every_kind_of_state(self):
        for training in ({"moments": "BF16"}, {"masters": False}, {"clip_norm": 0},
                         {"unfreeze_after": 1}, {"unfreeze_after": 3}):  # fmt: skip
            self.passes(
                case(MIXED, "dp_shard=2", resume_mesh=axes("dp_shard=3"), training=training)
            )

    def test_as_people_train(self):
        """Micro-batches, a sampler, averages, a scaled loss of which steps are skipped, parameters
        that are frozen again or have no gradient; some of it on the host."""
        for training in (
            {"micro_batches": 3, "samples": 5, "average": 0.5, "clip_by_group": True},
            {"loss_scale": 2.0**21, "without_gradient": 0.5, "clip_norm": 0, "average": 0.75},
            {"unfreeze_after": 1, "unfrozen_steps": 1, "micro_batches": 2, "loss_scale": 2.0**20},
        ):
            for other in ({}, {"format": "safetensors", "offload": 0.5, "save_every": 1}):
                with self.subTest(**training, **other):
                    self.passes(case(MIXED, "dp_shard=2", resume_mesh=axes("dp_shard=3"), steps=5,
                                     training=training | other,
                                     device="isolated" if other else "cpu"))  # fmt: skip

    def test_with_any_number_of_saves(self):
        for save_every, keep, steps, left in (
            (1, 1, 4, [3]),
            (1, 2, 5, [3, 4]),
            (2, 9, 6, [2, 4]),
            (7, 1, 4, [2]),
        ):
            with self.subTest(save_every=save_every, keep=keep):
                saved = f"saved_{save_every}_{keep}"
                made = case(MIXED, "dp_shard=2", resume_mesh=axes("dp_shard=3"), steps=steps,
                            training={"save_every": save_every, "keep": keep})  # fmt: skip
                document = self.passes(made, "--save-to", saved)
                whole = {each["id"]: each for each in document["properties"]}[
                    "checkpoint.commit_whole"
                ]
                self.assertEqual(whole["verdict"], "pass", whole)
                names = [f"step-{step:08}" for step in left]
                self.assertEqual(sorted(os.listdir(self.dir / saved)), ["latest", *names])
                self.assertEqual((self.dir / saved / "latest").read_text(), names[-1] + "\n")
                for name in names:
                    audited = self.judged("audit", f"{saved}/{name}", code=0)
                    self.assertTrue(
                        audited["seal"].endswith("shardproof.seal.json"), audited["seal"]
                    )

    def test_what_is_damaged_is_not_restored(self):
        training = {"save_every": 1}
        for where in (0, 77, 1000, 5000):
            document = self.passes(case(MIXED, "dp_shard=2", training=training,
                                        faults=[{"id": "file/rot", "where": str(where)}],
                                        ))  # fmt: skip
            verdicts = {each["id"]: each["verdict"] for each in document["properties"]}
            self.assertEqual(verdicts["fault.damage_recovered"], "pass")

    def test_with_nothing_older_what_is_damaged_is_refused(self):
        made = case(MIXED, "dp_shard=2", faults=[{"id": "file/rot", "where": "77"}])
        for steps in (4, 0):
            self.write("case.json", made | {"steps": steps})
            document = self.judged("verify", "--case", "case.json", "--property",
                                   "fault.damage_recovered", "--property",
                                   "fault.every_rank_finishes", code=1)  # fmt: skip
            self.assertEqual(
                {each["property"] for each in document["findings"]}, {"fault.every_rank_finishes"}
            )
            self.assertIn("expected the bytes of digest", document["findings"][0]["message"])

    def test_from_memory_that_only_copies_reach(self):
        self.passes(case(MIXED, "dp_shard=2", resume_mesh=axes("dp_shard=3"), device="isolated"))

    def test_with_steps_that_the_host_takes(self):
        for n, (offload, overlap, bucket) in enumerate(((0.3, True, 1 << 20), (0.5, False, 64),
                                                        (1, True, 64), (1, True, 2))):  # fmt: skip
            for device in ("cpu", "isolated"):
                with self.subTest(offload=offload, overlap=overlap, bucket=bucket, device=device):
                    training = {
                        "offload": offload,
                        "overlap": overlap,
                        "unfreeze_after": 1 if n % 2 else 0,
                    }
                    made = case(MIXED, "dp_shard=2", resume_mesh=axes("dp_shard=3"), device=device,
                                seed=n, training=training, bucket_bytes=bucket)  # fmt: skip
                    verdicts = {each["id"]: each for each in self.passes(made)["properties"]}
                    wanted = ["offload.equals_on_device"] + ["offload.state_where_asked"] * (
                        device == "isolated"
                    )
                    for name in wanted:
                        self.assertEqual(verdicts[name]["verdict"], "pass", verdicts[name])
                        self.assertGreaterEqual(verdicts[name]["comparisons"], 100)

    def test_with_saves_beside_the_steps(self):
        for n, training in enumerate(({}, {"save_every": 1}, {"save_every": 1, "offload": 0.5})):
            with self.subTest(**training):
                made = case(MIXED, "dp_shard=2", resume_mesh=axes("dp_shard=3"), seed=n,
                            training={"async": True, "unfreeze_after": 1, **training})  # fmt: skip
                verdicts = {each["id"]: each for each in self.passes(made)["properties"]}
                self.assertEqual(verdicts["checkpoint.commit_whole"]["verdict"], "pass")

    def test_whatever_is_saved(self):
        """In every format, with fused tensors whole or in parts; all of it is on disk what it was
        in memory."""
        kept = ({"format": "safetensors"}, {"split_fused": True}, {"format": "dcp"})
        others = (("dp_shard=2", "dp_shard=3", {}),
                  ("dp_shard=2,tp=2", "dp_shard=5", {"offload": 0.5}),
                  ("dp_replicate=2,dp_shard=2", "tp=2", {"async": True, "save_every": 1}),
                  ("dp_shard=2,ep=2", "dp_shard=1", {"unfreeze_after": 1}))  # fmt: skip
        strategies = ("rank0-broadcast", "rank0-scatter", "each-reads-own", "plain")
        for saved in kept:
            for n, (mesh, other, training) in enumerate(others):
                with self.subTest(saved=saved, mesh=mesh, other=other):
                    made = case(FUSED, mesh, resume_mesh=axes(other), seed=n,
                                strategy=strategies[n], training=saved | training,
                                max_file_bytes=(0, 700)[n % 2])  # fmt: skip
                    verdicts = {each["id"]: each for each in self.passes(made)["properties"]}
                    for name in ("checkpoint.training_files", "checkpoint.commit_whole"):
                        self.assertEqual(verdicts[name]["verdict"], "pass", verdicts[name])
                        self.assertGreaterEqual(verdicts[name]["comparisons"], 90)

    def test_what_is_in_the_way_is_told_before_a_rank_starts(self):
        self.write("case.json", case(MODEL, "dp_shard=2"))
        for path, told in (
            (f"{STEP}/thesis.tex", ["thesis.tex", "replacing the directory would delete"]),
            ("latest/file", ["latest: expected a file that names a step"]),
        ):
            saved = self.dir / "saved"
            (saved / path).parent.mkdir(parents=True)
            (saved / STEP).mkdir(exist_ok=True)
            (saved / path).write_text("years of work")
            self.refused("verify", "--case", "case.json", "--save-to", "saved", names=told)
            shutil.rmtree(saved)

    def test_with_moments_that_are_not_on_record_of_a_parameter_that_is(self):
        tensors = [{"name": "a.weight", "dtype": "BF16", "shape": [91, 54]}]
        self.passes(case(tensors, "dp_shard=3", resume_mesh=axes("dp_shard=2")))

    def test_on_a_device_that_has_no_room_for_the_state(self):
        tensors = [{"name": "a.weight", "dtype": "F32", "shape": [64, 64]}]
        # Two models of 16 KiB, of which one restores the other, and a bucket; or one and its
        # moments.
        room = {"device_bytes": 40 << 10, "bucket_bytes": 1024, "steps": 2}
        for device in ("cpu", "isolated"):
            self.write(
                "case.json",
                case(tensors, "dp_shard=1", device=device, training={"offload": 1}, **room),
            )
            verdicts = {each["id"]: each["verdict"] for each in
                        self.judged("verify", "--case", "case.json",
                                    code=0)["properties"]}  # fmt: skip
            self.assertEqual(verdicts["offload.equals_on_device"], "pass")
            self.write("case.json", case(tensors, "dp_shard=1", device=device, **room))
            document = self.judged("verify", "--case", "case.json", code=1)
            shown = " ".join(finding["message"] for finding in document["findings"])
            self.assertIn("allocating 16384 bytes for a.weight.exp_avg_sq: ", shown)
            self.assertIn("of the device's 40960 bytes are in use", shown)

    def test_in_processes(self):
        self.passes(case(MIXED, "dp_shard=2", resume_mesh=axes("tp=2"), transport="gloo"))


def meshes(most):
    """Every mesh of at most so many ranks, one axis or two."""
    made = []
    for ranks in range(1, most + 1):
        names = ("dp_shard", "tp", "dp_replicate") if ranks > 1 else ("dp_shard",)
        made += [f"{name}={ranks}" for name in names]
        made += [
            f"{outer}={ranks // size},{inner}={size}"
            for size in range(2, ranks)
            if ranks % size == 0
            for outer, inner in (("dp_replicate", "dp_shard"), ("dp_shard", "tp"))
        ]
    return made


class OnPairs(Trained):
    labels = "selftest multi-rank framework"
    timeout_s = 120

    def test_of_neighbours(self):
        made = meshes(6)
        self.assertEqual(len(made), 22)
        for mesh, other in zip(made, made[7:] + made[:7], strict=True):
            self.passes(case(MIXED, mesh, resume_mesh=axes(other), steps=2))


class OnAllPairs(Trained):
    labels = "selftest nightly"
    timeout_s = 900

    def test_of_all_meshes_up_to_six_ranks(self):
        for mesh in meshes(6):
            for other in meshes(6):
                self.passes(case(MIXED, mesh, resume_mesh=axes(other), steps=2))


class BetweenTorchAndUs(Trained):
    def torch_loads(self, mesh, torch_mesh):
        """What the reference saves is what FSDP2 and AdamW have after dcp.load."""
        self.passes(case(MODEL, mesh), "--save-to", "saved")
        self.assertEqual(sorted(os.listdir(self.dir / "saved")), ["latest", STEP])
        loaded = self.run_script(SELFTEST / "load_dcp.py", f"saved/{STEP}",
                                  "full.pt", torch_mesh, timeout=200,
                                  TMPDIR=str(self.dir))  # fmt: skip
        self.assert_exit(loaded, 0)
        self.assert_alike(f"saved/{STEP}", "full.pt", "model.", tensors=10, values=0)
        self.assert_alike(f"saved/{STEP}", "full.pt", "optimizer.", tensors=27, values=20)

    def we_load(self, torch_mesh, meshes):
        """What FSDP2 and AdamW save is what the reference saves after loading it."""
        saved = self.run_script(SELFTEST / "save_dcp.py", "theirs", torch_mesh,
                                 timeout=200, TMPDIR=str(self.dir))  # fmt: skip
        self.assert_exit(saved, 0)
        for mesh, strategy in meshes:
            resaved = self.run_process(
                BUILD / "resave", "theirs/dcp", "ours", mesh, strategy, "cpu"
            )
            self.assert_exit(resaved, 0)
            self.assert_alike("theirs/full.pt", "ours", "model.", tensors=10, values=0)
            self.assert_alike("theirs/full.pt", "ours", "optim.", tensors=27, values=20)
            # What belongs to neither is saved as it was; and a random state a rank, as its jobs
            # have it.
            whole = self.judged("compare", "theirs/dcp", "ours", code=1)
            self.assertEqual((whole["tensors"], whole["values"]), (38, 29))
            self.assertEqual((whole["differences"], whole["only_in_a"]), ([], []))
            self.assertEqual({key.rstrip("0123456789") for key in whole["only_in_b"]}, {"rng_"})

    def assert_alike(self, a, b, prefix, tensors, values):
        document = self.judged("compare", a, b, "--in-a", prefix, "--in-b", prefix, code=0)
        self.assertEqual((document["verdict"], document["tensors"]), ("pass", tensors))
        self.assertGreaterEqual(document["values"], values)


class KeptAsSafetensors(BetweenTorchAndUs):
    labels = "selftest multi-rank framework"

    def saved(self, name, **training):
        self.passes(
            case(FUSED, "dp_shard=2", training=training, max_file_bytes=900), "--save-to", name
        )
        return f"{name}/{STEP}"

    def test_others_read_it(self):
        step = self.dir / self.saved("kept", format="safetensors")
        found = {}
        for folder, index in ((step, "model.safetensors.index.json"),
                              (step / "training", "state.safetensors.index.json")):  # fmt: skip
            of_index = json.loads((folder / index).read_text())["weight_map"]
            self.assertGreater(len(set(of_index.values())), 1)
            for file in sorted(set(of_index.values())):
                with safetensors.safe_open(folder / file, "pt") as opened:
                    self.assertEqual(
                        set(opened.keys()), {key for key, at in of_index.items() if at == file}
                    )
                    found |= {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
        self.assertEqual(found["mlp.up.weight"].shape, (4, 4))
        self.assertEqual(found["optimizer.state.mlp.up.weight.exp_avg"].shape, (4, 4))
        self.assertEqual(found["optimizer.state.mlp.up.weight.step"].item(), 2)
        self.assertEqual(found["rng_1"].dtype, torch.uint8)
        values = json.loads((step / "training" / "values.json").read_text())["values"]
        self.assertEqual(values["step"], 2)
        self.assertEqual(values["optimizer.param_groups.0.betas"], {"tuple": [0.9, 0.999]})

    def test_it_holds_what_dcp_holds(self):
        theirs, ours = self.saved("dcp", split_fused=True), self.saved("st", format="safetensors")
        self.assert_alike(theirs, ours, "optimizer.", tensors=90, values=24)
        self.write("rules.map", "".join(f"{key} -> model.{key}\n" for key in self.model_keys(ours)))
        document = self.judged("compare", ours, theirs, "--map", "rules.map", code=1)
        # DCP has a tied tensor under both of its names.
        self.assertEqual(
            (document["only_in_a"], document["only_in_b"]), ([], ["model.tied.weight"])
        )
        self.assertEqual(document["differences"], [])
        whole = self.saved("whole", format="dcp")
        self.assert_alike(whole, ours, "rng_", tensors=2, values=0)

    def model_keys(self, step):
        return json.loads((self.dir / step / "model.safetensors.index.json").read_text())[
            "weight_map"
        ]

    def test_a_model_without_tensors(self):
        tensors = [
            {"name": "cache", "kind": "buffer", "persistent": False, "dtype": "F32", "shape": [2]}
        ]
        self.write("case.json", case(tensors, "dp_shard=2", training={"format": "safetensors"}))
        document = self.judged("verify", "--case", "case.json", "--save-to", "empty", code=0)
        verdicts = {each["id"]: each["verdict"] for each in document["properties"]}
        self.assertEqual(verdicts["checkpoint.commit_whole"], "pass")
        self.assertEqual(len(self.judged("audit", f"empty/{STEP}", code=0)["tensors"]), 2)
        index = self.dir / "empty" / STEP / "model.safetensors.index.json"
        index.unlink()
        self.judged("audit", f"empty/{STEP}", code=1)

    def test_what_is_wrong_with_it_is_found(self):
        step = self.saved("kept", format="safetensors")
        audited = self.judged("audit", step, code=0)
        self.assertEqual(len(audited["values"]), 27)
        folder = self.dir / step / "training"
        values, index = (
            (folder / "values.json").read_text(),
            (folder / "state.safetensors.index.json").read_text(),
        )
        first = sorted(folder.glob("state-*.safetensors"))[0]
        data = first.read_bytes()
        for path, content, seals, told in (
            (folder / "values.json", values.replace('"step": 2', '"step": 3'), True,
             "value 'step'"),
            (folder / "values.json", values.replace('"step": 2', '"step": {"set": [2]}'), False,
             "value 'step'"),
            (folder / "values.json", values[:40], False, "values.json"),
            (folder / "values.json", None, False, "values.json"),
            (folder / "state.safetensors.index.json", index.replace("rng_1", "rng_7"), False,
             "rng_7"),
            (folder / "state.safetensors.index.json", None, False, "state.safetensors.index.json"),
            (first, data[:-1], False, first.name),
            (first, data[:-1] + bytes([data[-1] ^ 1]), True,
             "the bytes differ from the sealed ones"),
        ):  # fmt: skip
            with self.subTest(path=path.name, told=told):
                before = path.read_bytes()
                path.unlink() if content is None else path.write_bytes(
                    content if isinstance(content, bytes) else content.encode())  # fmt: skip
                audited = self.judged("audit", step, code=1)
                self.assertIn(told, " ".join(audited["damage"]))
                seal = self.dir / step / "shardproof.seal.json"
                seal.rename(self.dir / "seal")
                alone = self.judged("audit", step, code=0 if seals else 1)
                self.assertEqual(alone["damage"] == [], seals)
                (self.dir / "seal").rename(seal)
                path.write_bytes(before)
        self.judged("audit", step, code=0)


class WithTorch(BetweenTorchAndUs):
    labels = "selftest multi-rank interchange framework"
    timeout_s = 240

    def test_it_loads_what_three_ranks_saved(self):
        self.torch_loads("dp_shard=3", "2")

    def test_it_loads_what_two_by_two_saved(self):
        self.torch_loads("dp_replicate=2,dp_shard=2", "3")

    def test_three_of_its_ranks_saved(self):
        self.we_load("3", [("dp_shard=2", "rank0-broadcast"), ("dp_shard=2,tp=2", "rank0-scatter"),
                           ("dp_replicate=2,dp_shard=2", "each-reads-own"),
                           ("dp_shard=1", "plain")])  # fmt: skip


class WithMoreOfTorch(BetweenTorchAndUs):
    labels = "selftest nightly"
    timeout_s = 240

    def test_it_loads_what_one_rank_saved(self):
        self.torch_loads("dp_shard=1", "2x2")

    def test_it_loads_what_two_ranks_saved(self):
        self.torch_loads("dp_shard=2", "4")

    def test_it_loads_what_four_ranks_saved(self):
        self.torch_loads("dp_shard=4", "1")

    def test_it_loads_what_tensor_parallel_ranks_saved(self):
        self.torch_loads("dp_shard=2,tp=2", "2x2")

    def test_one_of_its_ranks_saved(self):
        self.we_load("1", [("dp_shard=4", "rank0-broadcast")])

    def test_two_of_its_ranks_saved(self):
        self.we_load("2", [("dp_shard=3", "rank0-broadcast")])

    def test_four_of_its_ranks_saved(self):
        self.we_load("4", [("dp_shard=1", "rank0-broadcast")])

    def test_two_by_two_of_its_ranks_saved(self):
        self.we_load("2x2", [("dp_shard=2", "rank0-scatter")])
