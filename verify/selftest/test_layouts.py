"""Directories of weights as people have them: variants, adapters, pipelines, caches, odd runs.

Written without torch; files of torch.save are copies of one that torch wrote.
"""

import json
import shutil

from checkpoints import f32, write_safetensors
from command import REPOSITORY, CommandTest

SAVED = REPOSITORY / "fixtures" / "stored" / "fsdp1" / "whole.pt"


class Layouts(CommandTest):
    labels = "selftest"

    def put(self, path, *names, seed=0):
        """A file of safetensors with these tensors."""
        (self.dir / path).parent.mkdir(parents=True, exist_ok=True)
        return write_safetensors(self.dir / path, {n: f32([3, 2], seed=(n, seed)) for n in names})

    def index(self, path, **files):
        """An index, and the two files that it names, each with one tensor."""
        self.write(path, {"metadata": {}, "weight_map": {k: f"{v}" for k, v in files.items()}})
        for key, name in files.items():
            self.put(f"{path.rpartition('/')[0]}/{name}", key)

    def saved(self, path):
        """A file of torch.save."""
        (self.dir / path).parent.mkdir(parents=True, exist_ok=True)
        return shutil.copy(SAVED, self.dir / path)

    def cut(self, path, size=200):
        with (self.dir / path).open("r+b") as file:
            file.truncate(size)

    def sound(self, path, tensors=None):
        document = self.judged("audit", path, code=0)
        if tensors is not None:
            self.assertEqual(len(document["tensors"]), tensors)
        return document

    def damaged(self, path, *named):
        damage = "\n".join(self.judged("audit", path, code=1)["damage"])
        for words in named:
            self.assertIn(words, damage)

    def test_indexes_of_other_libraries_and_of_variants(self):
        parts = {"a": "{}-00001-of-00002{}.safetensors", "b": "{}-00002-of-00002{}.safetensors"}
        for number, (index, stem, end) in enumerate(
            (("diffusion_pytorch_model.safetensors.index.json", "diffusion_pytorch_model", ""),
             ("model.safetensors.index.fp16.json", "model.fp16", ""),
             ("model.fp16.safetensors.index.json", "model", ".fp16"))):  # fmt: skip
            named = {key: name.format(stem, end) for key, name in parts.items()}
            self.index(f"m{number}/{index}", **named)
            self.sound(f"m{number}", 2)
            (self.dir / f"m{number}" / named["b"]).unlink()
            self.damaged(f"m{number}", named["b"])

    def test_variants_beside_a_model_are_no_part_of_it(self):
        for end in ("", ".fp16", ".non_ema"):
            self.put(f"unet/diffusion_pytorch_model{end}.safetensors", "w")
        document = self.sound("unet", 1)
        self.assertEqual(len(document["beside"]), 2)
        self.cut("unet/diffusion_pytorch_model.fp16.safetensors", 90)
        self.damaged("unet", "fp16")
        self.put("parts/llama-3.safetensors", "a")
        self.put("parts/llama-3.1.safetensors", "b")  # of one model, by what they hold
        self.sound("parts", 2)

    def test_a_pipeline_has_all_that_its_index_names(self):
        self.put("pipe/unet/diffusion_pytorch_model.safetensors", "w")
        self.put("pipe/vae/diffusion_pytorch_model.safetensors", "w")
        self.put("pipe/v1-5.safetensors", "x")
        self.put("pipe/v1-5-pruned.safetensors", "x")
        for part in ("unet", "vae"):
            self.write(f"pipe/{part}/config.json", {})
        self.write("pipe/scheduler/scheduler_config.json", {})
        components = dict.fromkeys(("unet", "vae", "scheduler"), ["diffusers", "X"])
        self.write("pipe/model_index.json",
                   {"_class_name": "P", "safety_checker": [None, None], **components})  # fmt: skip
        self.assertEqual([t["name"] for t in self.sound("pipe")["tensors"]], ["unet/w", "vae/w"])
        (self.dir / "pipe/vae/diffusion_pytorch_model.safetensors").unlink()
        self.damaged("pipe", "expected weights of the component 'vae'")
        shutil.rmtree(self.dir / "pipe/vae")
        self.damaged("pipe", "expected the folder of the component 'vae'")

    def test_further_adapters_and_modules_are_parts(self):
        self.put("lora/adapter_model.safetensors", "w")
        self.put("lora/second/adapter_model.safetensors", "w")
        for folder in ("lora", "lora/second"):
            self.write(f"{folder}/adapter_config.json", {})
        self.put("st/model.safetensors", "w")
        self.put("st/2_Dense/model.safetensors", "w")
        self.write("st/modules.json", [{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Dense"}])
        for folder, part in (("lora", "second/adapter_model"), ("st", "2_Dense/model")):
            self.sound(folder, 2)
            other = shutil.copytree(self.dir / folder, self.dir / f"{folder}-other")
            self.put(f"{folder}-other/{part}.safetensors", "w", seed=1)
            (found,) = self.judged("compare", folder, other, code=1)["differences"]
            self.assertEqual(found["tensor"], part.partition("/")[0] + "/w")
            self.cut(f"{folder}/{part}.safetensors", 80)
            self.damaged(folder, part)

    def test_the_rank_of_an_adapter_is_no_rank_of_a_job(self):
        self.put("lora/Wan_lora_rank32.safetensors", "a.lora_A.weight")
        self.sound("lora", 1)
        self.put("ranks/model_rank1.safetensors", "a")
        self.damaged("ranks", "model_rank0.safetensors")

    def test_what_lies_in_a_folder_beside_a_model_is_read_or_said(self):
        """The state of a step in a folder of its own, another model, and other steps."""
        for folder in ("hf", "hf/checkpoint-100"):
            self.put(f"{folder}/model.safetensors", "w")
        self.saved("hf/original/consolidated.00.pth")
        self.saved("hf/global_step7/mp_rank_00_model_states.pt")
        self.write("hf/latest", "global_step7")
        document = self.sound("hf", 1)
        self.assertEqual([one["name"] for one in document["beside"]],
                         ["global_step7/", "original/"])  # fmt: skip
        self.assertEqual(document["remarks"],
                         ["not read, checkpoints of their own: checkpoint-100"])  # fmt: skip
        compared = self.judged("compare", "hf", "hf", code=0)
        self.assertEqual(compared["beside_a"], ["global_step7/", "original/", "checkpoint-100/"])
        self.cut("hf/global_step7/mp_rank_00_model_states.pt")
        self.damaged("hf", "hf/global_step7/mp_rank_00_model_states.pt")

    def test_a_file_of_many_that_is_cut_is_damage_and_an_unknown_one_is_not(self):
        for rank in (0, 1, 3):
            self.saved(f"llama/consolidated.0{rank}.pth")
        self.damaged("llama", "expected 'consolidated.02.pth'")
        self.saved("llama/consolidated.02.pth")
        self.sound("llama", 16)
        self.write("llama/tokenizer.bin", b"\x01\x02\x03")
        document = self.judged("audit", "llama", code=3)
        self.assertIn("tokenizer.bin: expected a ZIP archive", document["not_judged"][0])
        (self.dir / "llama/tokenizer.bin").unlink()
        self.cut("llama/consolidated.01.pth")
        self.cut("llama/consolidated.02.pth", 0)
        self.damaged("llama", "consolidated.01.pth", "consolidated.02.pth")

    def test_an_index_of_torch_save_is_held_against_its_files(self):
        name, part = "torch/pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin"
        keys = [t["name"] for t in self.judged("audit", self.saved("torch/" + part), code=0)[
            "tensors"]]  # fmt: skip
        right = dict.fromkeys(keys, part)
        self.write(name, {"weight_map": right})
        self.sound("torch")
        less = dict(list(right.items())[1:])
        for wrong, named in (({**right, "more": part}, "weight_map 'more'"),
                             (less, f"holds key '{keys[0]}'")):  # fmt: skip
            self.write(name, {"weight_map": wrong})
            self.damaged("torch", named)
        self.write(name, {"weight_map": right})
        self.write("torch/pytorch_optim.bin.index.json", {"weight_map": {"1": "optim-1.bin"}})
        self.damaged("torch", "expected the file 'optim-1.bin'")
        self.write("apart/optimizer/pytorch_optim.bin.index.json", {"weight_map": {"1": "o.bin"}})
        self.saved("apart/optimizer/o.bin")
        self.saved("apart/model/" + part)
        self.sound("apart")
        (self.dir / "apart/optimizer/o.bin").rename(self.dir / "apart/optimizer/p.bin")
        self.damaged("apart", "expected the file 'o.bin'")

    def test_a_cache_of_links(self):
        self.index("hub/model.safetensors.index.json", a="model-00001-of-00002.safetensors",
                   b="model-00002-of-00002.safetensors")  # fmt: skip
        (self.dir / "blobs").mkdir()
        for file in list((self.dir / "hub").iterdir()):
            blob = file.rename(self.dir / "blobs" / file.name)
            file.symlink_to(blob)
        self.sound("hub", 2)
        (self.dir / "blobs/model-00002-of-00002.safetensors").unlink()
        self.damaged("hub", "model-00002-of-00002.safetensors")

    def test_folders_of_ranks_may_be_links(self):
        for rank in (0, 1):
            self.saved(f"store{rank}/model_optim_rng.pt")
            self.write("iter_10/note.txt", "")
            (self.dir / f"iter_10/mp_rank_0{rank}").symlink_to(f"../store{rank}")
        (self.dir / "iter_10/again").symlink_to(".")
        one = len(self.sound("store0")["tensors"])
        self.sound("iter_10", 2 * one)
        self.cut("store1/model_optim_rng.pt")
        self.damaged("iter_10", "mp_rank_01/model_optim_rng.pt")
        shutil.rmtree(self.dir / "store1")
        self.damaged("iter_10", "iter_10/mp_rank_01: expected the folder of a rank")

    def test_what_lies_in_a_folder_of_a_part_is_read_or_said(self):
        for name in ("model/a", "model/extra/b", "optim/c"):
            self.put(f"parts/{name}.safetensors", "w")
        self.write("parts/old.tar", "x")
        document = self.sound("parts", 2)
        self.assertEqual([one["name"] for one in document["beside"]], ["model/extra/"])
        self.assertEqual(document["unread"], ["old.tar"])
        self.cut("parts/model/extra/b.safetensors", 90)
        self.damaged("parts", "parts/model/extra/b.safetensors")

    def test_a_dtype_of_another_format_is_not_known(self):
        header = {"w": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}
        text = json.dumps(header).encode()
        self.write("new.safetensors", len(text).to_bytes(8, "little") + text + bytes(4))
        self.refused("audit", "new.safetensors", names=["'F99'", "not known"])

    def test_steps_by_other_words_drafts_and_steps_that_are_files(self):
        for folder in ("epoch_1", "epoch_2", "tmp-epoch_3", "epoch_3_tmp"):
            self.put(f"epochs/{folder}/model.safetensors", "w", seed=folder)
        for step in (100, 200):
            self.put(f"files/ep1_it{step}.safetensors", "w", seed=step)
        files = ["ep1_it100.safetensors", "ep1_it200.safetensors"]
        for run, steps in (("epochs", ["epoch_1", "epoch_2"]), ("files", files)):
            document = self.judged("audit", run, code=0)
            self.assertEqual([one["name"] for one in document["checkpoints"]], steps)
            done = self.shardproof("audit", run, "--latest-good")
            self.assertEqual(done.out, f"{run}/{steps[-1]}\n")
        self.assertEqual(self.judged("audit", "epochs", code=0)["others"],
                         ["epoch_3_tmp", "tmp-epoch_3"])  # fmt: skip

    def test_an_item_named_step_of_two_ranks_is_no_run(self):
        """As torch-checkpointing writes a dict of items."""
        for rank in (0, 1):
            for item in ("step", "model"):
                self.saved(f"items/{item}_{rank}.pt")
        self.assertIn("tensors", self.sound("items"))

    def test_a_run_of_one_step_and_several_runs(self):
        self.put("run/checkpoint-10/model.safetensors", "w")
        self.saved("run/checkpoint-10/optimizer.pt")
        document = self.judged("audit", "run", code=0)
        self.assertEqual([one["name"] for one in document["checkpoints"]], ["checkpoint-10"])
        self.cut("run/checkpoint-10/model.safetensors", 80)
        self.judged("audit", "run", code=1)
        shutil.copytree(self.dir / "run", self.dir / "all/b")
        shutil.copytree(self.dir / "run", self.dir / "all/a")
        for options in ((), ("--latest-good",)):
            self.refused("audit", "all", *options, names=["all: expected one", "runs: a, b"])

    def test_a_run_that_lacks_a_file_of_one_rank_or_has_a_step_that_leads_nowhere(self):
        for step in (10, 20, 30):
            self.put(f"run/checkpoint-{step}/model.safetensors", "w", seed=step)
            for rank in (0, 1):
                self.saved(f"run/checkpoint-{step}/rng_state_{rank}.pth")
        self.refused("audit", "run/checkpoint-30", "--latest-good", names=["found one checkpoint"])
        self.refused("audit", "run", "--like", "run/checkpoint-30", names=["--like is for one"])
        (self.dir / "run/checkpoint-30/rng_state_1.pth").unlink()
        (self.dir / "run/checkpoint-40").symlink_to("gone")
        document = self.judged("audit", "run", code=1)
        self.assertEqual(document["checkpoints"][-1]["lacks"], ["rng_state_1.pth"])
        self.assertIn("checkpoint-40: expected a link to a checkpoint that is there",
                      "".join(document["findings"]))  # fmt: skip

    def test_a_run_that_stands_still_has_nothing_to_resume_from(self):
        for step, seed in ((90, 1), (110, 2), (120, 2), (130, 2)):
            self.put(f"run/step_{step}/model.safetensors", "w", seed=seed)
        done = self.shardproof("audit", "run", "--latest-good")
        self.assertEqual((done.code, done.out), (0, "run/step_110\n"))
        self.assertIn("run/step_130: its model is bit for bit that of run/step_120", done.err)
        shutil.rmtree(self.dir / "run/step_90")
        done = self.shardproof("audit", "run", "--latest-good")
        self.assertEqual((done.code, done.out), (1, ""))
        done = self.shardproof("audit", "run", "--latest-good", "--allow-same", "*")
        self.assertEqual((done.code, done.out), (0, "run/step_130\n"))

    def test_a_shard_alone_is_held_against_the_config_beside_it(self):
        self.put("m/model-00001-of-00002.safetensors", "model.embed_tokens.weight", "l.weight")
        self.write("m/config.json", {"vocab_size": 3, "quantization_config": {
            "quant_method": "fp8", "weight_block_size": [128, 128]}})  # fmt: skip
        shard = "m/model-00001-of-00002.safetensors"
        (remark,) = self.sound(shard)["remarks"]
        self.assertIn("not judged: quantised weights", remark)
        self.write("m/config.json", {"vocab_size": 9})
        self.damaged(shard, "expected at least the 9 rows")

    def test_a_sealed_file_that_is_missing_is_named(self):
        for name in ("x", "y"):
            self.put(f"m/{name}.safetensors", name)
        self.assert_exit(self.shardproof("seal", "m"), 0)
        (self.dir / "m/y.safetensors").unlink()
        self.damaged("m", "file 'y.safetensors': sealed, found none", "tensor 'y': sealed as")
