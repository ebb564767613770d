"""The checkpoints that fixtures/checkpoints makes: their bytes, bad input, and the real libraries'
word."""

import json
import shutil
import struct
import sys
from pathlib import Path

from checkpoints import DTYPE_BYTES
from command import REPOSITORY, CommandTest, checkpoint, snapshot

SCRIPTS = REPOSITORY / "fixtures" / "checkpoints"
sys.path.insert(0, str(SCRIPTS))

import library  # noqa: E402
from presets import BASE_OF, PRESETS, SMALL  # noqa: E402

WHOLE = [preset for preset in SMALL if preset not in BASE_OF]


class Tensor:
    """dtype, shape and the bytes of one that a file holds."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, shape, data

    def rows(self):
        """The bytes of each run along the last dim."""
        step = self.shape[-1] * DTYPE_BYTES[self.dtype]
        return [self.data[i : i + step] for i in range(0, len(self.data), step)]


def tensors_of(directory):
    """{key: Tensor} of all safetensors files of a directory."""
    tensors = {}
    for path in sorted(Path(directory).glob("*.safetensors")):
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        data = content[8 + length :]
        for key, entry in json.loads(content[8 : 8 + length]).items():
            if key != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[key] = Tensor(entry["dtype"], entry["shape"], data[begin:end])
    return tensors


def config_of(preset, name="config.json"):
    return json.loads((Path(checkpoint(preset)) / name).read_text())


class BadOptions(CommandTest):
    """One line that names what is wrong, exit code 2, and nothing written."""

    def refuses(self, *words, names, script="make.py"):
        before = snapshot(self.dir)
        done = self.run_process(sys.executable, SCRIPTS / script, *words)
        self.assert_exit(done, 2)
        self.assertEqual(len(done.err.splitlines()), 1, str(done))
        self.assertTrue(done.err.startswith(script.removesuffix(".py")), str(done))
        for name in names:
            self.assertIn(name, done.err)
        self.assertEqual(done.out, "")
        self.assertEqual(snapshot(self.dir), before, "something was written")

    def test_neither_out_nor_into(self):
        self.refuses(names=["OUT", "--into"])
        self.refuses("out", "--into", "all", names=["OUT", "--into"])

    def test_several_presets_without_into(self):
        self.refuses("--preset", "qwen3-small", "--preset", "llama-tied-small", "out",
                     names=["--into"])  # fmt: skip

    def test_options_beside_into(self):
        self.refuses("--into", "all", "--experts", 3, names=["--experts", "--into"])

    def test_unknown_preset(self):
        self.refuses("--preset", "qwen4-small", "out", names=["qwen4-small", "lfm2-moe-small"])

    def test_bench_without_its_size(self):
        self.refuses("--preset", "bench", "out", names=["--bytes"])
        self.refuses("--preset", "bench", "--into", "all", names=["bench", "--into"])

    def test_what_is_there_is_left_alone(self):
        self.write("out", "mine")
        self.write("all/lfm2-moe-small", "mine")
        self.refuses("--preset", "qwen3-small", "out", names=["out exists already"])
        self.refuses("--into", "all", names=["all/lfm2-moe-small exists already"])

    def test_sizes_below_the_least(self):
        for option in ("--layers", "--experts", "--vision-patch", "--lora-rank"):
            self.refuses(option, 0, "out", names=[option, "at least 1"])
        self.refuses("--arch", "qwen3-moe", "--dense-layers", -1, "out", names=["at least 0"])

    def test_experts_of_a_model_that_has_none(self):
        self.refuses("--arch", "llama", "--experts", 4, "out", names=["--experts", "llama"])

    def test_experts_that_do_not_fit(self):
        self.refuses("--arch", "lfm2-moe", "--experts-per-token", 9, "out",
                     names=["--experts-per-token 9"])  # fmt: skip
        self.refuses("--arch", "qwen3-moe", "--dense-layers", 2, "out", names=["no experts"])

    def test_vision_of_a_model_that_has_none(self):
        self.refuses("--arch", "qwen3", "--vision-layers", 4, "out", names=["vision"])

    def test_vision_heads_that_do_not_turn(self):
        self.refuses("--arch", "qwen3-vl", "--vision-hidden", 30, "--vision-heads", 5, "out",
                     names=["--vision-hidden 30", "4 times"])  # fmt: skip

    def test_heads_that_do_not_make_the_hidden_size(self):
        for arch in ("lfm2-moe", "qwen2.5-vl"):
            self.refuses("--arch", arch, "--hidden", 71, "out", names=["--hidden 71", arch])
        self.refuses("--arch", "llama", "--hidden", 71, "out", names=["--hidden 71", "llama"])

    def test_unknown_rope(self):
        self.refuses("--rope", "mrope", "out", names=["mrope", "proportional"])

    def test_blocks_that_do_not_divide(self):
        self.refuses("--preset", "qwen3-fp8-small", "--intermediate", 150, "out",
                     names=["--intermediate", "150", "8x8"])  # fmt: skip
        self.refuses("--preset", "qwen3-fp8-small", "--block", "8x16", "out", names=["--hidden"])
        self.refuses("--preset", "qwen3-moe-fp8-small", "--moe-intermediate", 36, "out",
                     names=["--moe-intermediate"])  # fmt: skip

    def test_block_that_is_none(self):
        for block in ("0", "8x", "x8", "8x8x8"):
            self.refuses("--quantise", "fp8", "--block", block, "out", names=[repr(block)])
        self.refuses("--block", "8", "out", names=["--block", "fp8"])

    def test_what_cannot_be_quantised(self):
        self.refuses("--arch", "lfm2-moe", "--quantise", "fp8", "out", names=["lfm2-moe", "fp8"])
        self.refuses("--arch", "qwen3-moe", "--quantise", "int8", "out", names=["qwen3-moe"])
        self.refuses("--quantise", "int8", "--peft", "out", names=["--quantise", "--peft"])

    def test_adapter_options_without_adapter(self):
        for words in (["--lora-rank", 2], ["--dora"], ["--lora-targets", "q_proj"]):
            self.refuses(*words, "out", names=[words[0], "--peft"])

    def test_adapter_of_nothing(self):
        self.refuses("--peft", "--lora-targets", "", "out", names=["--lora-targets"])

    def test_rank_pattern_that_is_none(self):
        for pattern in ("o_proj", "o_proj=0", "=3", "o_proj=x"):
            self.refuses("--peft", "--lora-rank-pattern", pattern, "out", names=[repr(pattern)])


class Made(CommandTest):
    """What make.py makes, and does not."""

    labels = "selftest nightly"
    fixtures = "checkpoints"
    timeout_s = 180

    def make(self, *words, **variables):
        return self.run_process(
            sys.executable, SCRIPTS / "make.py", *words, timeout=150, **variables
        )

    def test_the_same_arguments_give_the_same_bytes(self):
        presets = ("lfm2-moe-small", "qwen3-vl-small", "qwen3-moe-fp8-small", "qwen3-int8-small",
                   "qwen3-lora-small", "qwen3-moe-lora-small")  # fmt: skip
        words = [word for preset in presets for word in ("--preset", preset)]
        self.assert_exit(self.make(*words, "--into", "made", PYTHONHASHSEED="7"), 0)
        for preset in presets:
            made = snapshot(self.dir / "made" / preset)
            self.assertEqual(made, snapshot(checkpoint(preset)), preset)
            self.assertIn(
                "adapter_config.json" if preset in BASE_OF else "config.json", made, preset
            )

    def test_a_target_that_is_no_module(self):
        done = self.make("--preset", "qwen3-small", "--peft", "--lora-targets", "w_proj", "out")
        self.assert_exit(done, 2)
        self.assertEqual(len(done.err.splitlines()), 1, str(done))
        self.assertIn("w_proj", done.err)
        self.assertEqual(snapshot(self.dir), {})

    def test_options_override_a_preset(self):
        done = self.make("--preset", "qwen3-vl-small", "--tied", "--dtype", "fp32", "--rope",
                         "yarn", "--vision-layers", 1, "out")  # fmt: skip
        self.assert_exit(done, 0)
        config = json.loads((self.dir / "out" / "config.json").read_text())
        self.assertTrue(config["tie_word_embeddings"])
        self.assertEqual(config["vision_config"]["depth"], 1)
        rope = config["text_config"]["rope_parameters"]
        self.assertEqual((rope["rope_type"], rope["mrope_section"]), ("yarn", [1, 1, 1]))
        tensors = tensors_of(self.dir / "out")
        self.assertNotIn("lm_head.weight", tensors)
        self.assertEqual({tensor.dtype for tensor in tensors.values()}, {"F32"})

    def test_dora_has_magnitudes(self):
        done = self.make(
            "--arch", "llama", "--peft", "--dora", "--lora-targets", "all-linear", "out"
        )
        self.assert_exit(done, 0)
        keys = tensors_of(self.dir / "out")
        self.assertEqual(sum(key.endswith("lora_magnitude_vector") for key in keys), 14)


class Contents(CommandTest):
    """The files of the presets, read byte by byte."""

    fixtures = "checkpoints"

    def test_every_preset_is_small(self):
        for preset in SMALL:
            files = Path(checkpoint(preset)).iterdir()
            self.assertLess(sum(path.stat().st_size for path in files), 1_000_000, preset)

    def test_values_repeat_nowhere(self):
        for preset in SMALL:
            tensors = tensors_of(checkpoint(preset))
            self.assertGreater(len(tensors), 10, preset)
            whole = {tensor.data for tensor in tensors.values()}
            self.assertEqual(len(whole), len(tensors), f"{preset}: two tensors are the same")
            for key, tensor in tensors.items():
                if tensor.shape[-1] >= 4:
                    rows = tensor.rows()
                    self.assertEqual(len(set(rows)), len(rows), f"{preset}: {key} repeats a row")
                self.assertTrue(any(tensor.data), f"{preset}: {key} is zero")

    def test_sizes_are_uneven(self):
        for preset, sizes in (("qwen3-moe-small", (71, 37, 5, 101)),
                              ("qwen3-vl-small", (71, 43, 49)), ("lfm2-moe-small", (37, 5, 83)),
                              ("qwen2.5-vl-small", (43, 83))):  # fmt: skip
            seen = {
                dim for tensor in tensors_of(checkpoint(preset)).values() for dim in tensor.shape
            }
            for size in sizes:
                self.assertTrue(all(size % parts for parts in (2, 4, 8)), size)
                self.assertIn(size, seen, preset)

    def test_dtypes_are_the_config_s(self):
        of_config = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
        for preset in WHOLE:
            if PRESETS[preset].get("quantise"):
                continue
            dtype = of_config[config_of(preset)["dtype"]]
            for key, tensor in tensors_of(checkpoint(preset)).items():
                expected = "F32" if key.endswith("expert_bias") else dtype
                self.assertEqual(tensor.dtype, expected, f"{preset}: {key}")

    def test_experts_are_keys_of_their_own(self):
        for preset, parts in (("qwen3-moe-small", ("gate_proj", "up_proj", "down_proj")),
                              ("lfm2-moe-small", ("w1", "w3", "w2"))):  # fmt: skip
            keys = tensors_of(checkpoint(preset))
            for part in parts:
                of_part = [key for key in keys if f".experts.4.{part}." in key]
                self.assertEqual(len(of_part), {"w": 3, "g": 2, "u": 2, "d": 2}[part[0]], preset)
            self.assertFalse([key for key in keys if "gate_up_proj" in key])

    def test_expert_bias_is_kept(self):
        biases = {key: tensor for key, tensor in tensors_of(checkpoint("lfm2-moe-small")).items()
                  if key.endswith("expert_bias")}  # fmt: skip
        self.assertEqual(len(biases), 3)
        for tensor in biases.values():
            values = struct.unpack("<5f", tensor.data)
            self.assertEqual(len({abs(value) for value in values}), 5)

    def test_tied_ones_have_no_output_layer(self):
        for preset in WHOLE:
            keys = tensors_of(checkpoint(preset))
            tied = config_of(preset)["tie_word_embeddings"]
            self.assertEqual("lm_head.weight" in keys, not tied, preset)

    def test_every_kind_of_rope(self):
        for preset in SMALL:
            kind = PRESETS[preset].get("rope")
            if kind:
                self.assertEqual(config_of(preset)["rope_parameters"]["rope_type"], kind)

    def test_fp8_has_a_factor_for_each_block(self):
        for preset, count in (("qwen3-fp8-small", 14), ("qwen3-moe-fp8-small", 26)):
            tensors, quantised = tensors_of(checkpoint(preset)), 0
            self.assertEqual(config_of(preset)["quantization_config"]["weight_block_size"], [8, 8])
            for key, tensor in tensors.items():
                factors = tensors.get(f"{key}_scale_inv")
                self.assertEqual(tensor.dtype == "F8_E4M3", factors is not None, key)
                if factors:
                    self.assertEqual(factors.dtype, "F32")
                    self.assertEqual(factors.shape, [size // 8 for size in tensor.shape])
                    quantised += 1
            self.assertEqual(quantised, count, preset)

    def test_int8_has_a_factor_for_each_row(self):
        tensors, quantised = tensors_of(checkpoint("qwen3-int8-small")), 0
        config = config_of("qwen3-int8-small")["quantization_config"]
        self.assertEqual((config["quant_method"], config["format"]),
                         ("compressed-tensors", "int-quantized"))  # fmt: skip
        for key, tensor in tensors.items():
            factors = tensors.get(f"{key}_scale")
            self.assertEqual(tensor.dtype == "I8", factors is not None, key)
            if factors:
                self.assertEqual((factors.dtype, factors.shape), ("BF16", [tensor.shape[0], 1]))
                quantised += 1
        self.assertEqual(quantised, 14)

    def test_adapters_name_their_base(self):
        for preset, base in BASE_OF.items():
            config = config_of(preset, "adapter_config.json")
            self.assertEqual(
                (config["peft_type"], config["base_model_name_or_path"]), ("LORA", base)
            )
            self.assertEqual(config["r"], PRESETS[preset]["lora_rank"])

    def test_adapter_s_ranks(self):
        tensors = tensors_of(checkpoint("llama-tied-lora-small"))
        layer = "base_model.model.model.layers.1.self_attn."
        self.assertEqual(tensors[f"{layer}q_proj.lora_A.weight"].shape, [5, 72])
        self.assertEqual(tensors[f"{layer}o_proj.lora_B.weight"].shape, [72, 2])
        self.assertEqual(tensors["base_model.model.model.norm.weight"].shape, [72])
        tensors = tensors_of(checkpoint("qwen3-moe-lora-small"))
        experts = "base_model.model.model.layers.1.mlp.experts."
        self.assertEqual(tensors[f"{experts}base_layer.lora_A.weight"].shape, [5 * 3, 71])
        self.assertEqual(tensors[f"{experts}lora_B.weight"].shape, [71, 5 * 3])


class Loads(CommandTest):
    """check_loads.py on what is equal, and on what is not."""

    labels = "selftest nightly"
    fixtures = "checkpoints"
    timeout_s = 120

    def check(self, *words):
        return self.run_process(sys.executable, SCRIPTS / "check_loads.py", *words, timeout=100)

    def equal(self, preset):
        base = ["--base", checkpoint(BASE_OF[preset])] if preset in BASE_OF else []
        done = self.check(*base, checkpoint(preset), checkpoint(preset))
        self.assert_exit(done, 0)
        self.assertEqual((done.out.count("equal "), done.err), (1, ""))

    def test_qwen3_moe(self):
        self.equal("qwen3-moe-small")

    def test_lfm2_moe(self):
        self.equal("lfm2-moe-small")

    def test_qwen25_vl(self):
        self.equal("qwen2.5-vl-small")

    def test_qwen3_vl(self):
        self.equal("qwen3-vl-small")

    def test_fp8(self):
        self.equal("qwen3-fp8-small")

    def test_fp8_experts(self):
        self.equal("qwen3-moe-fp8-small")

    def test_int8(self):
        self.equal("qwen3-int8-small")

    def test_adapter(self):
        self.equal("llama-tied-lora-small")

    def test_adapter_of_experts(self):
        self.equal("qwen3-moe-lora-small")

    def changed(self, preset, key):
        """A copy of a preset in which the last byte of a tensor has another lowest bit."""
        copy = self.dir / "changed"
        shutil.copytree(checkpoint(preset), copy)
        for path in copy.glob("*.safetensors"):
            content = bytearray(path.read_bytes())
            (length,) = struct.unpack("<Q", content[:8])
            entry = json.loads(content[8 : 8 + length]).get(key)
            if entry:
                content[8 + length + entry["data_offsets"][1] - 1] ^= 1
                path.write_bytes(content)
        return copy

    def differs(self, preset, key):
        base = ["--base", checkpoint(BASE_OF[preset])] if preset in BASE_OF else []
        done = self.check(*base, checkpoint(preset), self.changed(preset, key))
        self.assert_exit(done, 1)
        self.assertIn(f"NOT EQUAL {self.dir / 'changed'}: files: {key}: element", done.out)

    def test_a_changed_factor(self):
        self.differs("qwen3-fp8-small", "model.layers.1.mlp.up_proj.weight_scale_inv")

    def test_one_source_of_several_differs(self):
        whole = checkpoint("qwen3-moe-small")
        source = checkpoint("qwen3-small")
        copy = self.changed("qwen3-small", "model.norm.weight")
        done = self.check(source, source, "--", source, copy, "--", whole, whole)
        self.assert_exit(done, 1)
        self.assertIn("files: model.norm.weight: element", done.out)
        self.assertEqual((done.out.count("NOT EQUAL "), done.out.count("equal ")), (1, 2))

    def test_a_changed_adapter(self):
        self.differs("qwen3-lora-small",
                     "base_model.model.model.layers.2.mlp.down_proj.lora_B.weight")  # fmt: skip

    def test_an_adapter_needs_its_base(self):
        preset = checkpoint("qwen3-lora-small")
        done = self.check(preset, preset)
        self.assert_exit(done, 2)
        self.assertEqual(len(done.err.splitlines()), 1, str(done))
        self.assertIn("--base", done.err)


class Described(CommandTest):
    """describe.py says what the real Transformers makes of the presets."""

    labels = "selftest nightly"
    fixtures = "checkpoints"
    timeout_s = 180

    def describe(self, *words, code=0):
        done = self.run_process(sys.executable, SCRIPTS / "describe.py", *words, timeout=150)
        self.assert_exit(done, code)
        return done

    def test_keys_are_those_of_the_files(self):
        names = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "I8": "int8",
                 "F8_E4M3": "float8_e4m3fn"}  # fmt: skip
        documents = self.describe(*map(checkpoint, WHOLE)).json()
        for preset in WHOLE:
            document = documents[checkpoint(preset)]
            files = {
                key: {"shape": tensor.shape, "dtype": names[tensor.dtype]}
                for key, tensor in tensors_of(checkpoint(preset)).items()
            }
            self.assertEqual(document["checkpoint"], files, preset)
            self.assertEqual(document["checkpoint_keys"], sorted(files))
            tied = [["lm_head.weight"]] if config_of(preset)["tie_word_embeddings"] else []
            self.assertEqual([names[:1] for names in document["ties"]], tied, preset)

    def as_loaded(self, directory):
        """What describe.py should say of the parameters and buffers, from the loaded model."""
        transformers = library.transformers()
        config = transformers.AutoConfig.from_pretrained(directory, local_files_only=True)
        with library.without_progress_bars():
            model = library.model_class(config).from_pretrained(
                directory, dtype="auto", local_files_only=True
            )
        kept, seen = model.state_dict(), {}
        for name, tensor in (
            *model.named_parameters(remove_duplicate=False),
            *model.named_buffers(),
        ):
            seen[name] = [list(tensor.shape), str(tensor.dtype).removeprefix("torch.")]
            if name not in kept:
                seen[name].append(tensor.float().flatten().tolist())
        return seen

    def described(self, *words):
        """{preset: {name: [shape, dtype, values of those that no checkpoint has]}}"""
        described = {}
        for directory, document in self.describe(*words).json().items():
            of_one = described[directory] = {}
            for name, entry in {**document["parameters"], **document["buffers"]}.items():
                values = [entry["values"]] if "values" in entry else []
                of_one[name] = [entry["shape"], entry["dtype"], *values]
        return described

    def test_parameters_and_buffers_are_those_of_the_loaded_model(self):
        library.transformers()
        library.serve_fp8_without_gpu()
        presets = [checkpoint(preset) for preset in WHOLE]
        for directory, described in self.described(*presets).items():
            self.assertEqual(described, self.as_loaded(directory), directory)

    def test_dequantised_ones_are_plain(self):
        presets = [checkpoint("qwen3-fp8-small"), checkpoint("qwen3-moe-fp8-small")]
        for described in self.described(*presets, "--dequantised").values():
            self.assertFalse([name for name in described if "scale" in name])
            dtypes = {entry[1] for entry in described.values() if len(entry) == 2}
            self.assertEqual(dtypes, {"bfloat16"})

    def test_packed_experts_have_packed_factors(self):
        described = self.describe(checkpoint("qwen3-moe-fp8-small")).json()["parameters"]
        experts = "model.layers.1.mlp.experts."
        self.assertEqual(described[f"{experts}gate_up_proj"]["shape"], [5, 80, 72])
        self.assertEqual(described[f"{experts}gate_up_proj_scale_inv"]["shape"], [5, 10, 9])

    def test_a_config_without_architectures(self):
        config = config_of("qwen2.5-vl-small")
        del config["architectures"]
        self.write("old/config.json", config)
        self.assertEqual(self.describe("old").json()["class"], "Qwen2_5_VLForConditionalGeneration")

    def test_bad_input(self):
        self.write("empty/note", "")
        self.write("unknown/config.json", {"model_type": "qwen9", "architectures": ["Q"]})
        self.write("none/config.json", {"model_type": "clip_vision_model"})
        for directory, said in (("gone", "gone"), ("empty", "config.json"), ("unknown", "qwen9"),
                                ("none", "names no architecture")):  # fmt: skip
            done = self.describe(directory, code=2)
            self.assertEqual((len(done.err.splitlines()), done.out), (1, ""), str(done))
            self.assertIn(said, done.err)
