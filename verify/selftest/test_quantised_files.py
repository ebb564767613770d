"""Quantised weights: compressed-tensors' own, sound and with a scale renamed; hostile headers."""

import json
import struct
from pathlib import Path

from command import CommandTest

SAVE = Path(__file__).parent / "save_quantised.py"
SCALE, OTHER = (
    b'"model.layers.0.mlp.up_proj.weight_scale"',
    b'"model.layers.0.mlp.up_proj.weight_scald"',
)


class QuantisedFiles(CommandTest):
    labels = "selftest framework"
    timeout_s = 400

    def test_every_preset_is_sound_and_without_a_scale_it_is_not(self):
        done = self.run_script(SAVE, self.dir, timeout=300)
        self.assert_exit(done, 0)
        presets = done.out.splitlines()[-1].split()
        self.assertGreater(len(presets), 20)
        for preset in presets:
            with self.subTest(preset):
                done = self.shardproof("audit", preset, "--finite")
                self.assert_exit(done, 0)
                self.assertIn("config.json, 13 weights with scales", done.out)
                file = self.dir / preset / "model.safetensors"
                data = file.read_bytes()
                self.assertEqual(data.count(SCALE), 1)
                file.write_bytes(data.replace(SCALE, OTHER))
                done = self.shardproof("audit", preset)
                self.assert_exit(done, 1)
                self.assertIn(f"expected '{SCALE.decode()[1:-1]}'", done.out)


def stored(tensors, metadata=None):
    """A file of safetensors: {name: (dtype, shape, bytes)}."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, content) in tensors.items():
        at = len(data)
        data += content
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, len(data)]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def gguf(values, tensors):
    """values: {name: text}; tensors: {name: (dims, type, bytes)}."""

    def string(text):
        return struct.pack("<Q", len(text)) + text.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    for name, text in values.items():
        out += string(name) + struct.pack("<I", 8) + string(text)
    data = b""
    for name, (dims, kind, content) in tensors.items():
        out += string(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        out += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % 32)
    return out + bytes(-len(out) % 32) + data


def words(bits, strategy="group", group=1):
    weights = {"num_bits": bits, "type": "int", "strategy": strategy, "group_size": group}
    return {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }  # fmt: skip


def nested(size, absmax):
    state = json.dumps({"blocksize": 64, "shape": [8, 8], "quant_type": "nf4", "dtype": "float32",
                        "nested_blocksize": size, "nested_offset": 0.5}).encode()  # fmt: skip
    return {
        "a.weight": ("U8", [32, 1], bytes(32)), "a.weight.absmax": ("U8", [1], bytes(1)),
        "a.weight.quant_map": ("F32", [16], bytes(64)),
        "a.weight.nested_quant_map": ("F32", [256], bytes(1024)),
        "a.weight.nested_absmax": ("F32", absmax, bytes(4 if absmax != [0] else 0)),
        "a.weight.quant_state.bitsandbytes__nf4": ("U8", [len(state)], state),
    }  # fmt: skip


BITS_AND_BYTES = {"quant_method": "bitsandbytes", "load_in_4bit": True}
FP8 = {"quant_method": "modelopt", "quant_algo": "FP8"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": False, "sym": True}

# Headers that say what no writer says: {what: (quantization_config, tensors)}.
HOSTILE = {
    "more groups than a file has bytes": (words(3), {
        "a.weight_packed": ("I32", [0, 1 << 40], b""), "a.weight_scale": ("BF16", [0, 1], b""),
        "a.weight_shape": ("I64", [2], struct.pack("<qq", 0, 1 << 40))}),
    "zero points that are fewer than the groups": (words(4, group=8), {
        "a.weight_packed": ("I32", [2, 2], bytes(16)), "a.weight_scale": ("F32", [2, 2], bytes(16)),
        "a.weight_zero_point": ("I8", [1, 2], bytes(2)),
        "a.weight_shape": ("I64", [2], struct.pack("<qq", 2, 16)),
        "a.weight_g_idx": ("I32", [16], struct.pack("<16i", *([1, 0] * 8)))}),
    "an empty weight of fp8": (FP8, {
        "a.weight": ("F8_E4M3", [0, 128], b""), "a.weight_scale": ("F32", [], bytes(4))}),
    "an empty weight of GPTQ": (GPTQ, {
        "a.qweight": ("I32", [0, 8], b""), "a.qzeros": ("I32", [0, 1], b""),
        "a.scales": ("F16", [0, 8], b""), "a.g_idx": ("I32", [0], b"")}),
    "nested blocks of nearly 2^64": (BITS_AND_BYTES, nested((1 << 64) - 1, [0])),
    "a nested scale without a dim": (BITS_AND_BYTES, nested(256, [])),
}  # fmt: skip


class HostileHeaders(CommandTest):
    labels = "selftest process"
    timeout_s = 60

    def judged_by_both(self, path, source):
        for command in (("audit", path), ("compare", path, source, "--dequantised"),
                        ("compare", source, path, "--dequantised")):  # fmt: skip
            done = self.shardproof(*command, timeout=30)
            self.assertIn(done.code, (0, 1, 2, 3), str(done))

    def test_end_in_a_verdict(self):
        source = self.dir / "source.safetensors"
        source.write_bytes(stored({"a.weight": ("F32", [8, 8], bytes(256))}))
        for number, (what, (config, tensors)) in enumerate(HOSTILE.items()):
            with self.subTest(what):
                folder = self.dir / str(number)
                folder.mkdir()
                (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
                (folder / "model.safetensors").write_bytes(stored(tensors))
                self.judged_by_both(folder, source)

    def test_a_part_that_only_the_header_of_torchao_s_file_names(self):
        tensors = {"l._weight_qdata": ("I8", [2, 4], b"\1" * 8),
                   "l._weight_scale": ("F32", [2, 1], struct.pack("<ff", 1, 1)),
                   "l._weight_zero_point": ("I8", [2, 1], bytes(2))}  # fmt: skip
        said = {"l.weight": json.dumps({"_tensor_data_names": ["qdata", "scale", "zero_point"]})}
        (self.dir / "config.json").write_text(
            '{"quantization_config": {"quant_method": "torchao"}}'
        )
        path = self.dir / "model.safetensors"
        path.write_bytes(stored(tensors, said))
        self.assert_exit(self.shardproof("audit", self.dir), 0)
        del tensors["l._weight_zero_point"]
        path.write_bytes(stored(tensors, said))
        done = self.shardproof("audit", self.dir)
        self.assert_exit(done, 1)
        self.assertIn(
            "tensor 'l._weight_zero_point': expected it as a part of 'l.weight'", done.out
        )

    def test_a_type_that_only_metadata_name(self):
        path = self.dir / "model.gguf"
        path.write_bytes(gguf({"w.type": "Q4_0"}, {"w": ([18], 0, bytes(72))}))
        source = self.dir / "source.safetensors"
        source.write_bytes(stored({"w": ("F32", [18], bytes(72))}))
        self.judged_by_both(path, source)
        self.assert_exit(self.shardproof("compare", path, source, "--dequantised"), 0)
