"""Writes a small Llama in every way that compressed-tensors quantises it: a directory for each.

usage: save_quantised.py OUT
"""

import sys

import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import (
    QuantizationConfig,
    apply_quantization_config,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES
from transformers import LlamaConfig, LlamaForCausalLM

IGNORED = ["lm_head", "re:.*layers.1.mlp.down_proj"]


def save(preset, out):
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=256, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=64,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    groups = {"group_0": preset_name_to_scheme(preset, ["Linear"])}
    apply_quantization_config(model, QuantizationConfig(config_groups=groups, ignore=IGNORED))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("_scale") and parameter.is_floating_point():
                parameter.fill_(0.01)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(out)
    compressor.update_config(str(out))


if __name__ == "__main__":
    presets = [preset for preset in PRESET_SCHEMES if preset != "UNQUANTIZED"]
    for each in presets:
        save(each, f"{sys.argv[1]}/{each}")
    print(" ".join(presets))
