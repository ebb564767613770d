"""Writes the weights of a small model in many quantised dialects, and with mistakes of converters.

usage: save_dialects.py OUT

What is quantised is so by the library of the dialect where it runs here: compressed-tensors, fp8 of
Transformers and, if they are installed, bitsandbytes, torchao and gguf. AWQ, GPTQ, fbgemm_fp8 and
ModelOpt are packed as their formats are published: AutoAWQ's WQLinear_GEMM.from_linear, AutoGPTQ's
QuantLinear.pack, ModelOpt's NVFP4QTensor. Prints a line of JSON for each directory: its name, the
one that it is compared with, and what is wrong with it.
"""

import importlib.util
import json
import pathlib
import sys
import types

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import preset_name_to_scheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import save_file

UP, OTHER, DOWN = (f"model.layers.{name}.weight" for name in
                   ("0.mlp.up_proj", "1.mlp.up_proj", "0.mlp.down_proj"))  # fmt: skip
HEAD, NORM, EXPERTS = "lm_head.weight", "model.norm.weight", "model.layers.0.mlp.experts.down_proj"


def source():
    """Weights whose blocks differ in size, so that no scale is another one's."""
    torch.manual_seed(0)
    shapes = {UP: (256, 384), OTHER: (256, 384), DOWN: (384, 256), HEAD: (64, 256), NORM: (256,)}
    out = {}
    for name, shape in shapes.items():
        made = torch.randn(shape) * 0.02
        if len(shape) == 2:
            made *= torch.rand(shape[0] // 16, 1, shape[1] // 16, 1).expand(-1, 16, -1, 16).reshape(
                shape
            ) * 3 + 0.2  # fmt: skip
        out[name] = made.to(torch.bfloat16)
    return out


def each_linear(tensors, quantise):
    """The tensors with `quantise(module, weight)` in place of those that are quantised."""
    out = {}
    for name, tensor in tensors.items():
        if name in (UP, OTHER, DOWN):
            out.update(quantise(name.removesuffix(".weight"), tensor))
        else:
            out[name] = tensor
    return out


def compressed(preset, form, tensors):
    """As compressed-tensors does it, with the scales that its observers take from the weights."""
    scheme = preset_name_to_scheme(preset, ["Linear"])
    args = scheme.weights
    compressor = BaseCompressor.get_value_from_registry(form)

    def quantise(module, weight):
        state = {"weight": weight}
        more = {}
        rows, columns = weight.shape
        blocks = {"tensor": (rows, columns), "channel": (1, columns)}
        size = args.group_size or 0
        height, width = args.block_structure or blocks.get(args.strategy, (1, size))
        cut = weight.reshape(rows // height, height, columns // width, width)
        low, high = cut.amin((1, 3)), cut.amax((1, 3))
        if args.strategy == "tensor_group":
            more["global_scale"] = generate_gparam(weight.float().min(), weight.float().max())
            state["weight_global_scale"] = more["global_scale"]
        if args.strategy == "tensor":
            low, high = low.reshape(1), high.reshape(1)
        scale, zero = calculate_qparams(low, high, args, **more)
        state["weight_scale"] = scale
        if not args.symmetric:
            state["weight_zero_point"] = zero
        done = compressor.compress(state, scheme)
        return {f"{module}.{name}": tensor for name, tensor in done.items()}

    config = {"quant_method": "compressed-tensors", "ignore": ["lm_head"],
              "config_groups": {"g": {"targets": ["Linear"], "format": form,
                                      "weights": json.loads(args.model_dump_json())}}}  # fmt: skip
    return each_linear(tensors, quantise), config


def transformers_fp8(tensors, **options):
    from transformers import FineGrainedFP8Config
    from transformers.integrations.finegrained_fp8 import Fp8Quantize

    config = FineGrainedFP8Config(weight_block_size=(64, 128), **options)
    operation = Fp8Quantize(types.SimpleNamespace(quantization_config=config))
    out = each_linear(tensors, lambda m, w: operation.convert({m + ".weight": w}))
    return out, json.loads(json.dumps(config.to_dict()))


def fbgemm(tensors):
    def quantise(module, weight):
        scale = weight.float().abs().amax(1, keepdim=True) / 448
        codes = (weight.float() / scale).to(torch.float8_e4m3fn)
        return {module + ".weight": codes, module + ".weight_scale": scale}

    return each_linear(tensors, quantise), {"quant_method": "fbgemm_fp8"}


def bits_of(codes, bits):
    """Numbers along dim 0 in words of 32 bits, low bits first."""
    stream = codes.unsqueeze(1) >> torch.arange(bits).view(1, -1, *[1] * (codes.dim() - 1)) & 1
    stream = stream.flatten(0, 1).reshape(-1, 32, *codes.shape[1:]).to(torch.int64)
    words = (stream << torch.arange(32).view(1, 32, *[1] * (codes.dim() - 1))).sum(1)
    return (words - ((words >> 31) << 32)).to(torch.int32)


def rounded_groups(weight, bits, groups):
    """[k, n] in whole numbers with zero points, a scale for each group of rows."""
    count = int(groups.max()) + 1
    codes = torch.empty(weight.shape, dtype=torch.int64)
    scales, zeros = torch.empty(count, weight.shape[1]), torch.empty(count, weight.shape[1])
    for group in range(count):
        rows = groups == group
        low, high = weight[rows].amin(0).clamp(max=0), weight[rows].amax(0).clamp(min=0)
        scales[group] = ((high - low) / (2**bits - 1)).half()
        zeros[group] = (-low / scales[group]).round().clamp(0, 2**bits - 1)
        codes[rows] = (weight[rows] / scales[group] + zeros[group]).round().clamp(
            0, 2**bits - 1
        ).to(torch.int64)  # fmt: skip
    return codes, scales.half(), zeros.to(torch.int64)


def gptq(tensors, bits=4, version=1, act_order=False, group=64):
    def quantise(module, weight):
        turned = weight.float().T
        groups = torch.arange(turned.shape[0]) // group
        if act_order:
            groups = groups[torch.randperm(len(groups), generator=torch.Generator().manual_seed(1))]
        codes, scales, zeros = rounded_groups(turned, bits, groups)
        stored = (zeros - 1) % 2**bits if version == 1 else zeros
        return {module + ".qweight": bits_of(codes, bits), module + ".scales": scales,
                module + ".qzeros": bits_of(stored.T, bits).T.contiguous(),
                module + ".g_idx": groups.to(torch.int32)}  # fmt: skip

    return each_linear(tensors, quantise), {
        "quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order,
        "checkpoint_format": "gptq_v2" if version == 2 else "gptq"}  # fmt: skip


def awq(tensors, group=64):
    def pack(codes):
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        return bits_of(
            codes.reshape(codes.shape[0], -1, 8)[:, :, order].flatten(1).T, 4
        ).T.contiguous()

    def quantise(module, weight):
        turned = weight.float().T
        groups = torch.arange(turned.shape[0]) // group
        codes, scales, zeros = rounded_groups(turned, 4, groups)
        return {module + ".qweight": pack(codes), module + ".scales": scales,
                module + ".qzeros": pack(zeros)}  # fmt: skip

    return each_linear(tensors, quantise), {
        "quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm",
        "zero_point": True, "modules_to_not_convert": ["lm_head"]}  # fmt: skip


def modelopt(nvfp4):
    """compressed-tensors' NVFP4 under ModelOpt's names; its second scale multiplies."""
    out = {}
    for name, tensor in nvfp4.items():
        if name.endswith("_global_scale"):
            out[name.replace("weight_global_scale", "weight_scale_2")] = (1 / tensor).reshape(())
        else:
            out[name.replace("weight_packed", "weight")] = tensor
    return out, {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}


def mxfp4():
    """gpt-oss's experts, and what Transformers makes of them."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    torch.manual_seed(1)
    blocks = torch.randint(0, 256, (2, 64, 4, 16), dtype=torch.uint8)
    scales = torch.randint(115, 125, (2, 64, 4), dtype=torch.uint8)
    plain = {EXPERTS: convert_moe_packed_tensors(blocks, scales)}
    packed = {EXPERTS + "_blocks": blocks, EXPERTS + "_scales": scales}
    return plain, packed, {"quant_method": "mxfp4"}


def bits_and_bytes(tensors, kind, nested=False):
    import bitsandbytes.functional as functional

    def quantise(module, weight):
        if kind == "int8":
            codes, scale, _ = functional.int8_vectorwise_quant(weight.half())
            return {module + ".weight": codes, module + ".SCB": scale}
        codes, state = functional.quantize_4bit(
            weight, blocksize=64, quant_type=kind, compress_statistics=nested
        )
        parts = {f"{module}.weight.{k}": v for k, v in state.as_dict(packed=True).items()}
        return {module + ".weight": codes, **parts}

    flag = "load_in_8bit" if kind == "int8" else "load_in_4bit"
    return each_linear(tensors, quantise), {"quant_method": "bitsandbytes", flag: True,
                                            "llm_int8_skip_modules": ["lm_head"]}  # fmt: skip


def torch_ao(tensors, kind):
    from torchao import quantization as q
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    made = {"fp8": lambda: q.Float8WeightOnlyConfig(), "int8": lambda: q.Int8WeightOnlyConfig(),
            "int4": lambda: q.IntxWeightOnlyConfig(weight_dtype=torch.int4,
                                                   granularity=q.PerGroup(64))}[kind]()  # fmt: skip

    def quantise(module, weight):
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
        linear.weight = torch.nn.Parameter(weight.clone())
        q.quantize_(linear, made)
        flat, _ = flatten_tensor_state_dict({module + ".weight": linear.weight.data})
        return flat

    return each_linear(tensors, quantise), {"quant_method": "torchao"}


def save(out, name, tensors, config=None):
    folder = pathlib.Path(out, name)
    folder.mkdir(parents=True)
    save_file({key: t.clone().contiguous() for key, t in tensors.items()},
              folder / "model.safetensors")  # fmt: skip
    config = {"quantization_config": config} if config else {}
    (folder / "config.json").write_text(json.dumps(config, default=str))


def save_gguf(out, name, tensors, kind):
    import gguf

    folder = pathlib.Path(out, name)
    folder.mkdir(parents=True)
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    for key, tensor in tensors.items():
        values = tensor.float().numpy()
        if key in (UP, OTHER, DOWN):
            quantised = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
            writer.add_tensor(key, quantised, raw_dtype=gguf.GGMLQuantizationType[kind])
        else:
            writer.add_tensor(key, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def save_blocks(out, kind):
    """Random blocks of a type that gguf reads and does not write, and the numbers that it reads."""
    import gguf
    import numpy

    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    random = numpy.random.default_rng(2)
    blocks = random.integers(0, 256, (32, 2 * size), dtype=numpy.uint8)
    halves = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
              "IQ4_NL": (0,), "IQ4_XS": (0,), "TQ2_0": (64,), "MXFP4": ()}[kind]  # fmt: skip
    if kind == "MXFP4":
        blocks.reshape(-1, size)[:, 0] = random.integers(115, 125, 64)  # its powers of two
    for row in blocks.reshape(-1, size):
        for at in halves:  # scales that are numbers
            row[at : at + 2] = numpy.frombuffer(
                numpy.float16(random.uniform(0.001, 0.1)).tobytes(), numpy.uint8
            )
    values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind])
    save(out, f"gguf-{kind}-read", {UP: torch.from_numpy(values.copy())})
    folder = pathlib.Path(out, f"gguf-{kind}")
    folder.mkdir(parents=True)
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_tensor(UP, blocks, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def halves_swapped(tensor):
    data = tensor.view(torch.uint8)
    return ((data << 4) | (data >> 4)).view(tensor.dtype)


def next_zero(tensor):
    """Zero points of four bits, each one more; none of them is the largest."""
    data = tensor.view(torch.uint8).to(torch.int64)
    low, high = data & 15, data >> 4
    more = ((low + 1).clamp(max=15) | (high + 1).clamp(max=15) << 4).to(torch.uint8)
    return more.view(tensor.dtype)


def turned(scale):
    """A converter's buffer that was filled column by column."""
    return scale.T.contiguous().reshape(scale.shape)


# name of the dialect: {part: [(change of that part of UP, what the explanation says)]}
MISTAKES = {
    "fp8": {"weight_scale_inv": [(torch.reciprocal, "the scales are inverted"),
                                 (lambda s: s.roll(1, 1), "neighbours along dim"),
                                 (lambda s: s.roll(1, 0), "neighbours along dim"),
                                 (turned, "the scales transposed")],
            "weight": [(lambda w: w.view(torch.uint8).view(4, 64, -1).roll(1, 1)
                        .view(w.shape).view(w.dtype), "neighbours along dim 0")]},
    "nvfp4": {"weight_packed": [(halves_swapped, "halves (nibbles)")],
              "weight_scale": [(turned, "the scales transposed"),
                               (lambda s: s.view(torch.uint8).roll(1, 1).view(s.dtype),
                                "neighbours along dim")],
              "weight_global_scale": [(torch.reciprocal, "the global scale is inverted"),
                                      (torch.square, "the global scale is squared")]},
    "modelopt": {"weight": [(halves_swapped, "halves (nibbles)")],
                 "weight_scale_2": [(torch.reciprocal, "the global scale is inverted"),
                                    (torch.square, "the global scale is squared")]},
    "w4a16": {"weight_packed": [(halves_swapped, "halves (nibbles)")],
              "weight_scale": [(torch.reciprocal, "the scales are inverted"),
                               (turned, "the scales transposed"),
                               (lambda s: s.roll(-1, 1), "neighbours along dim")]},
    "gptq": {"scales": [(lambda s: s.roll(1, 0), "neighbours along dim")],
             "qzeros": [(next_zero, "zero points are off by one")]},
    "awq": {"scales": [(torch.reciprocal, "the scales are inverted")],
            "qzeros": [(next_zero, "zero points are off by one")]},
    "nf4": {"weight": [(halves_swapped, "halves (nibbles)")]},
}  # fmt: skip


def dialects(tensors):
    presets = {"nvfp4": ("NVFP4A16", "nvfp4-pack-quantized"),
               "w4a16": ("W4A16", "pack-quantized"),
               "w4a16-asym": ("W4A16_ASYM", "pack-quantized"),
               "w8a16": ("W8A16", "pack-quantized"),
               "w8a8": ("INT8", "int-quantized"),
               "fp8-dynamic": ("FP8_DYNAMIC", "float-quantized"),
               "fp8-block": ("FP8_BLOCK", "float-quantized"),
               "fp8-tensor": ("FP8", "float-quantized"),
               "mxfp4-packed": ("MXFP4A16", "mxfp4-pack-quantized"),
               "mxfp8": ("MXFP8A16", "mxfp8-quantized"),
               "mxfp6": ("MXFP6A16", "mxfp6-pack-quantized"),
               "w3a16": ("W3A16", "pack-quantized")}  # fmt: skip
    out = {name: compressed(*preset, tensors) for name, preset in presets.items()}
    out["modelopt"] = modelopt(out["nvfp4"][0])
    out["fp8"] = transformers_fp8(tensors)
    out["fp8-powers"] = transformers_fp8(tensors, scale_fmt="ue8m0")
    out["fbgemm"] = fbgemm(tensors)
    for name, more in {
        "": {},
        "-v2": {"version": 2},
        "-order": {"act_order": True},
        "-3": {"bits": 3},
        "-8": {"bits": 8},
        "-whole": {"group": 384 * 2},
    }.items():
        out["gptq" + name] = gptq(tensors, **more)  # fmt: skip
    out["awq"] = awq(tensors)
    if importlib.util.find_spec("bitsandbytes"):
        out["nf4"] = bits_and_bytes(tensors, "nf4")
        out["nf4-nested"] = bits_and_bytes(tensors, "nf4", nested=True)
        out["fp4"] = bits_and_bytes(tensors, "fp4")
        out["int8"] = bits_and_bytes(tensors, "int8")
    if importlib.util.find_spec("torchao"):
        for kind in ("fp8", "int8", "int4"):
            out["torchao-" + kind] = torch_ao(tensors, kind)
    return out


def main(out):
    def said(name, against, wrong="", tensor=""):
        print(json.dumps({"name": name, "against": against, "wrong": wrong, "tensor": tensor}))

    tensors = source()
    save(out, "source", tensors)
    for name, (parts, config) in dialects(tensors).items():
        save(out, name, parts, config)
        said(name, "source")
        for part, changes in MISTAKES.get(name, {}).items():
            for number, (change, wrong) in enumerate(changes):
                key = UP.removesuffix("weight") + part
                changed = f"{name}-{part}-{number}"
                save(out, changed, {**parts, key: change(parts[key])}, config)
                said(changed, "source", wrong, UP)
        if name in MISTAKES:
            swapped = {**parts}
            for key in parts:
                if key.startswith(UP.removesuffix("weight")):
                    swapped[key] = parts[key.replace("layers.0", "layers.1")]
            save(out, name + "-other", swapped, config)
            said(name + "-other", "source", "the weights of another tensor", UP)
    plain, packed, config = mxfp4()
    save(out, "mxfp4-source", plain)
    save(out, "mxfp4", packed, config)
    said("mxfp4", "mxfp4-source")
    packed[EXPERTS + "_blocks"] = halves_swapped(packed[EXPERTS + "_blocks"])
    save(out, "mxfp4-halves", packed, config)
    said("mxfp4-halves", "mxfp4-source", "halves (nibbles)", EXPERTS)
    for a, b in (("nvfp4", "modelopt"), ("gptq", "gptq-v2"), ("gptq", "awq"), ("fp8", "nvfp4")):
        said(b, a)
    said("awq-qzeros-0", "gptq", "zero points are off by one", UP)
    if importlib.util.find_spec("gguf"):
        for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
            save_gguf(out, "gguf-" + kind, tensors, kind)
            said(f"gguf-{kind}/model.gguf", "source")
        for kind in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "TQ2_0", "MXFP4"):
            save_blocks(out, kind)
            said(f"gguf-{kind}/model.gguf", f"gguf-{kind}-read")


if __name__ == "__main__":
    main(sys.argv[1])
