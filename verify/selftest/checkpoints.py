"""Writes small checkpoints, right ones and wrong ones, byte by byte."""

import json
import math
import random
import struct
from pathlib import Path

DTYPE_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2,
               "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8,
               "F64": 8}  # fmt: skip

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "float32",
    "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
    "tie_word_embeddings": False,
}  # fmt: skip

SHAPES = {
    "model.embed_tokens.weight": [11, 8],
    "model.layers.0.self_attn.q_proj.weight": [8, 8],
    "model.layers.0.self_attn.k_proj.weight": [4, 8],
    "model.layers.0.self_attn.v_proj.weight": [4, 8],
    "model.layers.0.self_attn.o_proj.weight": [8, 8],
    "model.layers.0.mlp.gate_proj.weight": [12, 8],
    "model.layers.0.mlp.up_proj.weight": [12, 8],
    "model.layers.0.mlp.down_proj.weight": [8, 12],
    "model.layers.0.input_layernorm.weight": [8],
    "model.layers.0.post_attention_layernorm.weight": [8],
    "model.norm.weight": [8],
    "lm_head.weight": [11, 8],
}


class Tensor:
    """dtype, shape and the bytes."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, list(shape), bytes(data)

    def changed(self, byte_offset, data):
        """A copy with these bytes at the offset."""
        kept = self.data
        return Tensor(self.dtype, self.shape,
                      kept[:byte_offset] + data + kept[byte_offset + len(data):])  # fmt: skip


def f32(shape, values=None, seed=0):
    """An F32 tensor of these values, or of random ones."""
    count = math.prod(shape)
    drawn = random.Random(f"{seed}/{shape}")
    values = [drawn.uniform(-1, 1) for _ in range(count)] if values is None else values
    return Tensor("F32", shape, struct.pack(f"<{count}f", *values))


def header_of(tensors, metadata=None):
    """The header that fits the tensors laid end to end."""
    header, offset = {"__metadata__": metadata} if metadata else {}, 0
    for name, tensor in tensors.items():
        end = offset + len(tensor.data)
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [offset, end]}
        offset = end
    return header


def safetensors_bytes(header, data):
    """A file of this header, an object or bytes, and this data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write_safetensors(path, tensors):
    """Writes {name: Tensor} as one file."""
    data = b"".join(tensor.data for tensor in tensors.values())
    Path(path).write_bytes(safetensors_bytes(header_of(tensors), data))
    return path


def write_checkpoint(directory, tensors, files=1, config=None):
    """Writes {name: Tensor} in so many files, with an index if there is more than one."""
    directory = Path(directory)
    directory.mkdir(parents=True)
    if config is not None:
        (directory / "config.json").write_text(json.dumps(config))
    if files == 1:
        write_safetensors(directory / "model.safetensors", tensors)
        return directory
    weight_map, names = {}, list(tensors)
    for number in range(files):
        file_name = f"model-{number + 1:05d}-of-{files:05d}.safetensors"
        part = {name: tensors[name] for name in names[number::files]}
        write_safetensors(directory / file_name, part)
        weight_map.update(dict.fromkeys(part, file_name))
    total = sum(len(tensor.data) for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def llama_tensors():
    """The tensors of CONFIG's model, with values of their own."""
    return {name: f32(shape, seed=name) for name, shape in SHAPES.items()}


def write_llama(directory, files=1, **changes):
    """A checkpoint of CONFIG's model; changes are put over the config's fields, None removes
    one."""
    config = {k: v for k, v in {**CONFIG, **changes}.items() if v is not None}
    return write_checkpoint(directory, llama_tensors(), files, config)
