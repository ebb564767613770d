"""LoRA adapters are what PEFT makes of them; a model may begin without weights."""

import json
import shutil

from command import REPOSITORY, CommandTest, checkpoint
from test_models import CHECK, DESCRIBE, DTYPES, STRATEGIES, tensors_at_ready

MAKE = REPOSITORY / "fixtures" / "checkpoints" / "make.py"
ADAPTER = "qwen3-lora-small"
BASE = "qwen3-small"
READ = ((BASE, ADAPTER), ("llama-tied-small", "llama-tied-lora-small"),
        ("qwen3-vl-small", "qwen3-vl-lora-small"),
        ("qwen3-moe-small", "qwen3-moe-lora-small"))  # fmt: skip
ASKED = (("qwen3-small", "4:q_proj,v_proj"), ("llama-tied-small", "3:all-linear"),
         ("qwen2.5-vl-small", "2:qkv,down_proj"),
         ("lfm2-moe-small", "5:in_proj,self_attn.out_proj"),
         ("qwen3-moe-small", "2:q_proj,o_proj"), ("qwen3-vl-small", "2:all-linear"))  # fmt: skip


class Adapters(CommandTest):
    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"
    timeout_s = 300

    def verified(self, *words):
        report = self.dir / "report"
        shutil.rmtree(report, ignore_errors=True)
        document = self.judged("verify", *words, "--report", report, code=0)
        self.assertEqual(document["findings"], [])
        self.assertGreater(document["compared"]["comparisons"], 0)
        return tensors_at_ready(report, 0)

    def same_as_peft(self, name, words):
        done = self.run_script(DESCRIBE, checkpoint(name), *words, timeout=120,
                                TMPDIR=str(self.root))  # fmt: skip
        self.assert_exit(done, 0)
        expected = done.json()
        ready = self.verified("--checkpoint", checkpoint(name), "--world", 2, *words)
        ours = {fqn: d for fqn, (d, _) in ready.items() if d["kind"] == "parameter"}
        self.assertEqual(sorted(ours), sorted(expected["parameters"]))
        for fqn, theirs in expected["parameters"].items():
            self.assertEqual((ours[fqn]["shape"], ours[fqn]["dtype"]),
                             (theirs["shape"], DTYPES[theirs["dtype"]]), fqn)  # fmt: skip
        self.assertEqual(sorted(fqn for fqn in ours if ours[fqn].get("requires_grad", True)),
                         sorted(expected["trained"]))  # fmt: skip

    def test_what_is_read_has_pefts_names_shapes_and_gradients(self):
        for base, adapter in READ:
            with self.subTest(adapter):
                self.same_as_peft(base, ("--adapter", checkpoint(adapter)))

    def test_what_is_trained_is_saved_in_every_format(self):
        for n, (model, lora) in enumerate(((ADAPTER, None), (READ[3][1], None), (None, 3))):
            base = dict(map(reversed, READ)).get(model, "qwen3-moe-small")
            of = (
                {"adapter": str(self.path(model))}
                if model
                else {"lora": {"rank": lora, "targets": ["q_proj"]}}
            )
            for training in (
                {"format": "safetensors"},
                {"split_fused": True},
                {"async": True, "save_every": 1},
            ):
                with self.subTest(base=base, **training):
                    saved = self.dir / f"{n}-{'-'.join(training)}"
                    self.write("case.json", {
                        "schema": 1, "seed": n, "transport": "sim", "steps": 4,
                        "training": training, "mesh": [{"name": "dp_shard", "size": 2}],
                        "resume_mesh": [{"name": "dp_shard", "size": 3}],
                        "model": {"checkpoint": str(self.path(base)), **of}})  # fmt: skip
                    document = self.judged(
                        "verify", "--case", "case.json", "--save-to", saved, code=0
                    )
                    verdicts = {each["id"]: each for each in document["properties"]}
                    for name in (
                        "checkpoint.training_files",
                        "checkpoint.commit_whole",
                        "checkpoint.resume_exact",
                    ):
                        self.assertEqual(verdicts[name]["verdict"], "pass", verdicts[name])
                        self.assertGreater(verdicts[name]["comparisons"], 50)

    def peft_loads(self, base, adapter, strategies, meshes):
        """Saves base and adapter by each strategy; PEFT must read the same of all."""
        saved = []
        for strategy, mesh in zip(strategies, meshes):
            saved.append(self.dir / f"{adapter}-{strategy}")
            self.verified("--checkpoint", checkpoint(base), "--adapter", checkpoint(adapter),
                          "--mesh", mesh, "--strategy", strategy, "--save-to",
                          saved[-1])  # fmt: skip
            self.assertEqual((saved[-1] / "adapter" / "adapter_config.json").read_bytes(),
                             (self.path(adapter) / "adapter_config.json").read_bytes())  # fmt: skip
        for source, directories, words in (
            (checkpoint(base), saved, ()),
            (checkpoint(adapter), [one / "adapter" for one in saved], ("--base", checkpoint(base))),
        ):
            done = self.run_script(CHECK, *words, source, *directories,
                                    timeout=200, TMPDIR=str(self.root))  # fmt: skip
            self.assert_exit(done, 0)
            self.assertEqual(done.out.count("equal "), len(saved), str(done))

    def test_an_adapter_that_began_here_is_one_for_peft(self):
        saved = self.dir / "saved"
        self.verified("--checkpoint", checkpoint(BASE), "--lora", "4:q_proj,down_proj", "--world",
                      2, "--save-to", saved)  # fmt: skip
        done = self.run_script(CHECK, "--base", checkpoint(BASE),
                                saved / "adapter", saved / "adapter", timeout=120,
                                TMPDIR=str(self.root))  # fmt: skip
        self.assert_exit(done, 0)
        # Read back as what it is now, not begun again.
        self.verified("--checkpoint", saved, "--adapter", saved / "adapter", "--world", 3)

    def test_an_adapter_of_the_head_brings_a_copy_of_it(self):
        adapter = self.dir / "adapter"
        done = self.run_script(MAKE, "--preset", BASE, "--peft", "--lora-targets",
                                "q_proj,lm_head", adapter, timeout=120,
                                TMPDIR=str(self.root))  # fmt: skip
        self.assert_exit(done, 0)
        self.same_as_peft(BASE, ("--adapter", adapter))
        saved = self.dir / "saved"
        self.verified("--checkpoint", checkpoint(BASE), "--adapter", adapter, "--mesh", "2x2",
                      "--strategy", "rank0-scatter", "--save-to", saved)  # fmt: skip
        done = self.run_script(CHECK, checkpoint(BASE), saved, timeout=120,
                                TMPDIR=str(self.root))  # fmt: skip
        self.assert_exit(done, 0)

    def test_a_save_replaces_no_adapter_with_files_of_others(self):
        saved = self.dir / "saved"
        words = (
            "--checkpoint",
            checkpoint(BASE),
            "--lora",
            "4:q_proj",
            "--world",
            1,
            "--save-to",
            saved,
        )
        self.verified(*words)
        (saved / "adapter" / "notes.txt").write_text("mine")
        done = self.shardproof("verify", *words)
        self.assert_exit(done, 2)
        self.assertIn("adapter/notes.txt", done.err)
        self.assertTrue((saved / "adapter" / "notes.txt").exists())

    def path(self, name):
        return type(self.dir)(checkpoint(name))

    def adapter_with(self, **fields):
        """A copy of the adapter whose config says otherwise."""
        copy = self.dir / "adapter"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(checkpoint(ADAPTER), copy)
        config = json.loads((copy / "adapter_config.json").read_text())
        (copy / "adapter_config.json").write_text(json.dumps({**config, **fields}))
        return copy

    def refused(self, *words, names):
        done = self.shardproof("verify", "--checkpoint", checkpoint(BASE), "--world", 2, *words)
        self.assert_exit(done, 2)
        self.assertEqual(len(done.err.strip().splitlines()), 1, str(done))
        for name in names:
            self.assertIn(name, done.err)

    def test_what_is_no_plain_adapter_is_bad_input(self):
        for field, value in (("bias", "all"), ("peft_type", "LOHA"), ("r", 0), ("lora_bias", True),
                             ("target_modules", "(q|v)_proj"), ("target_modules", "(q"),
                             ("target_modules", r".*norm"), ("target_modules", "(?:(?:a|.)+)+q"),
                             ("target_modules", ["input_layernorm"]),
                             ("target_modules", ["nowhere"]), ("exclude_modules", "*"),
                             ("exclude_modules", ["q_proj", "v_proj", "down_proj"]),
                             ("modules_to_save", ["*"]), ("modules_to_save", ["proj"]),
                             ("modules_to_save", ["q_norm", "layers.0"]),
                             ("modules_to_save", "norm"), ("rank_pattern", {"q(": 2}),
                             ("use_dora", 1), ("target_parameters", ["q_proj.weight"]),
                             ("target_parameters", ["x"]), ("layers_to_transform", [0]),
                             ("a_new_kind_of_thing", 3)):  # fmt: skip
            with self.subTest(field=field, value=value):
                told = "target" if value == ["q_proj", "v_proj", "down_proj"] else field
                told = "q(" if field == "rank_pattern" else told.removesuffix("_modules")
                self.refused("--adapter", self.adapter_with(**{field: value}), names=[told])
        name = self.adapter_with(**{"a\nb\x1b[31m": 1})
        self.refused("--adapter", name, names=["expected"])
        tied = ("--checkpoint", checkpoint("llama-tied-small"), "--adapter",
                self.adapter_with(modules_to_save=["lm_head"]))  # fmt: skip
        done = self.shardproof("verify", *tied)
        self.assert_exit(done, 2)
        self.assertIn("tied", done.err)
        self.refused("--adapter", self.dir / "absent", names=["absent"])
        bare = self.adapter_with()
        (bare / "adapter_config.json").unlink()
        self.refused("--adapter", bare, names=["adapter_config.json"])
        self.refused(
            "--adapter", checkpoint(ADAPTER), "--lora", "2:q_proj", names=["adapter", "lora"]
        )

    def test_ill_formed_options_are_bad_input(self):
        for text in ("q_proj", "0:q_proj", "4:", "4:q_proj,,v_proj", "x:q_proj", "4q_proj", ""):
            with self.subTest(text):
                self.refused(f"--lora={text}", names=["lora"])
        self.refused("--lora", "4:embed_tokens", names=["embed_tokens"])
        self.refused("--lora", "4:nowhere", names=["nowhere"])
        done = self.shardproof(
            "verify", "--checkpoint", checkpoint("llama-tied-small"), "--lora", "4:lm_head"
        )
        self.assert_exit(done, 2)
        self.assertIn("tied", done.err)
        for targets in ("all-linear", "q_proj,down_proj"):
            done = self.shardproof(
                "verify", "--checkpoint", checkpoint("qwen3-moe-small"), "--lora", f"4:{targets}"
            )
            self.assert_exit(done, 2)
            self.assertIn("expert", done.err)
        case = REPOSITORY / "fixtures" / "cases" / "smoke.json"
        done = self.shardproof("verify", "--case", case, "--lora", "4:q_proj")
        self.assert_exit(done, 2)

    def test_a_damaged_adapter_is_a_finding_or_bad_input(self):
        copy = self.adapter_with(target_modules=["q_proj"])  # the file has more than that
        done = self.shardproof(
            "verify", "--checkpoint", checkpoint(BASE), "--adapter", copy, "--world", 2
        )
        self.assert_exit(done, 1)
        self.assertIn("loading.keys_match", done.out)
        copy = self.adapter_with(
            target_modules=["q_proj", "v_proj", "down_proj", "up_proj"]
        )  # and less
        done = self.shardproof(
            "verify", "--checkpoint", checkpoint(BASE), "--adapter", copy, "--world", 2
        )
        self.assert_exit(done, 1)
        self.assertIn("up_proj", done.out)
        for fields, missing in (({"use_dora": True}, "lora_magnitude_vector"),
                                ({"modules_to_save": ["model.norm"]},
                                 "modules_to_save")):  # fmt: skip
            copy = self.adapter_with(**fields)
            done = self.shardproof(
                "verify", "--checkpoint", checkpoint(BASE), "--adapter", copy, "--world", 2
            )
            self.assert_exit(done, 1)
            self.assertIn(missing, done.out)
        copy = self.adapter_with(r=5)
        done = self.shardproof(
            "verify", "--checkpoint", checkpoint(BASE), "--adapter", copy, "--world", 2
        )
        self.assert_exit(done, 2)
        self.assertIn("shape", done.err)

    def from_scratch(self, names):
        for name in names:
            for turn, strategy in enumerate(STRATEGIES):
                with self.subTest(f"{name} by {strategy}"):
                    bare = self.dir / name
                    bare.mkdir(exist_ok=True)
                    shutil.copy(self.path(name) / "config.json", bare)
                    lora = ("--lora", "2:q_proj") if turn % 2 else ()
                    self.verified("--checkpoint", bare, "--from-scratch", "--strategy", strategy,
                                  "--mesh", "2x2", *lora)  # fmt: skip

    def test_from_scratch_needs_no_weights(self):
        self.from_scratch(["qwen3-small"])


class MoreAdapters(Adapters):
    labels = "selftest multi-rank framework nightly"
    fixtures = "checkpoints"
    timeout_s = 300

    def test_what_is_injected_has_pefts_names_shapes_and_gradients(self):
        for name, lora in ASKED:
            with self.subTest(f"{name} {lora}"):
                self.same_as_peft(name, ("--lora", lora))

    def test_peft_loads_what_was_saved(self):
        self.peft_loads(*READ[0], STRATEGIES, ("2x2", "dp_shard=3", "2x1x2", "dp_shard=1"))

    def test_peft_loads_modules_that_were_trained_whole(self):
        for base, adapter in READ[1:]:
            self.peft_loads(base, adapter, STRATEGIES[1:3], ("2x2", "dp_shard=3"))

    def test_no_model_from_scratch_needs_weights(self):
        self.from_scratch(["qwen2.5-vl-small", "lfm2-moe-small"])
