"""How inference engines keep the weights that a trainer sends: what `check` is to be told.

    manifest = shardproof.seal(model, version=step)                  # on all trainer ranks
    shardproof.check(engine, against=manifest, **engines.vllm(engine, tp=2, config=config))

Each function returns the options map, layout, mesh and config of `check`. The constants are for
`cast` of `seal`, where the engine quantises what it receives:

    seal(model, version=step, cast={"*_proj.weight": (torch.bfloat16, engines.FP8_BLOCKS)})
"""

import fnmatch
import itertools
import json
import os
import pathlib
from collections.abc import Mapping

import torch

from ._holdings._groups import world
from ._syncs._scaled import Scaled

__all__ = ["FP8_BLOCKS", "FP8_ROWS", "FP8_TENSOR", "INT8_ROWS", "MXFP4", "sglang", "vllm"]

FP8_BLOCKS = Scaled(torch.float8_e4m3fn, (128, 128), ("", "_scale_inv"), divides=False)
FP8_ROWS = Scaled(torch.float8_e4m3fn, (1, -1))
FP8_TENSOR = Scaled(torch.float8_e4m3fn, None, divides=False)
INT8_ROWS = Scaled(torch.int8, (1, -1))
MXFP4 = Scaled(torch.uint8, (1, 32), ("_packed", "_scale"), scale=torch.float8_e8m0fnu)

# Transformers' names -> those of vLLM's models. A rank has its rows of each projection, one behind
# the other; vocabularies are padded with 0.
_RULES = (
    "? pad(model.embed_tokens.weight, with=0) -> model.embed_tokens.weight",
    "? pad(lm_head.weight, with=0) -> lm_head.weight",
    "? interleave({p*}.mlp.gate_proj.{t}, {p*}.mlp.up_proj.{t}, groups=TP)"
    " -> {p*}.mlp.gate_up_proj.{t}",
)
_QKV = (
    "? interleave({p*}.self_attn.q_proj.{t}, {p*}.self_attn.k_proj.{t}, {p*}.self_attn.v_proj.{t},"
    " groups=TP) -> {p*}.self_attn.qkv_proj.{t}",
)
# Experts one by one, as files and Transformers 4 have them.
_SINGLE = (
    "? stack(interleave({p*}.mlp.experts.{e}.gate_proj.{t},"
    " {p*}.mlp.experts.{e}.up_proj.{t}, groups=TP)) -> {p*}.mlp.experts.w13_{t}",
    "? stack({p*}.mlp.experts.{e}.down_proj.{t}) -> {p*}.mlp.experts.w2_{t}",
)
# Packed, as Transformers 5 holds them.
_PACKED = (
    "? interleave({p*}.mlp.experts.gate_up_proj[:, :config.moe_intermediate_size],"
    " {p*}.mlp.experts.gate_up_proj[:, config.moe_intermediate_size:], groups=TP, dim=1)"
    " -> {p*}.mlp.experts.w13_weight",
    "? {p*}.mlp.experts.down_proj -> {p*}.mlp.experts.w2_weight",
)
_DIM_OF = {
    "*embed_tokens.weight": 0, "lm_head.weight": 0, "*.qkv_proj.*": 0, "*.gate_up_proj.*": 0,
    "*.o_proj.weight": 1, "*.o_proj.weight_scale*": 1, "*.down_proj.weight": 1,
    "*.down_proj.weight_scale*": 1, "*.w13_*": 1, "*.w2_weight": 2, "*.w2_weight_scale*": 2,
}  # fmt: skip
# Buffers of vLLM's attention that each rank computes of its own keys and values.
_OF_EACH_RANK = ("*._q_scale", "*._k_scale", "*._v_scale", "*._prob_scale")

# Last parts of names that codes have which do not follow from the weights alone, or whose scales
# have scales.
_FITTED = {
    "qweight": "GPTQ or AWQ", "qzeros": "GPTQ or AWQ", "weight_scale_2": "NVFP4",
    "weight_global_scale": "NVFP4",
}  # fmt: skip


def vllm(model, *, tp: int = 1, config=None, packed: bool = False) -> dict:
    """Dense and mixture-of-experts models in the layouts of vLLM's weight loaders. Scales are of
    blocks or of rows; blocks divide each rank's part.

    model: of the engine, on this rank. tp: ranks of a tensor-parallel group, which are consecutive.
    config: the model's, as of `check`; where it has fewer key heads than tp, several ranks have the
    same one. packed: whether the trainer's experts are packed, as Transformers 5 holds them.
    \\raises ValueError if tp does not divide the ranks or the query heads, or if it is more than
    the key heads and no multiple of them; if weights are in GPTQ, AWQ or NVFP4.
    """
    size = len(world())
    if tp < 1 or size % tp:
        raise ValueError(f"tp is {tp}: expected a divisor of the {size} ranks")
    shapes = {name: value.shape for name, value in model.named_parameters()}
    _refuse_fitted(shapes)
    layout = _layout(shapes) if tp > 1 else {}
    buffers = [name for name, _ in model.named_buffers()]
    layout |= {each: "local" for each in _OF_EACH_RANK if fnmatch.filter(buffers, each)}
    mesh = {
        "dp": [list(range(at, size, tp)) for at in range(tp)],
        "tp": [list(range(at, at + tp)) for at in range(0, size, tp)],
    }
    rules = (*_RULES, *_qkv(tp, config), *(_PACKED if packed else _SINGLE))
    rules = [rule.replace("TP", str(tp)) for rule in rules]
    return {"map": rules, "layout": layout, "mesh": mesh, "config": config}


def _layout(shapes):
    from torch.distributed.tensor import Shard  # takes seconds, unless the engine has it already

    return {
        pattern: {"tp": Shard(dim)}
        for pattern, dim in _DIM_OF.items()
        if any(_is_cut(name, shapes) for name in fnmatch.filter(shapes, pattern))
    }


def _refuse_fitted(names):
    for name, (last, kind) in itertools.product(names, _FITTED.items()):
        if name.endswith((f".{last}", f"_{last}")):
            raise ValueError(
                f"{name}: weights in {kind} cannot be compared with what was sent: check the others"
                " with a map of your own, which leaves these out on both sides (w -> _, _ -> w)"
            )


def _is_cut(name: str, shapes) -> bool:
    """A scale for each row stays whole where columns are cut."""
    weight, is_scale, _ = name.partition("_scale")
    of_columns = weight.endswith((".o_proj.weight", ".down_proj.weight", ".w2_weight"))
    return not (is_scale and of_columns) or shapes[name][-2:-1] != shapes[weight][-2:-1]


def _qkv(tp: int, config):
    """The rules of the fused projections: of each rank its query heads, and its key and value
    heads, which ranks side by side may share."""
    said = _fields_of(config)
    heads = said.get("num_attention_heads") or 0
    key_heads = said.get("num_key_value_heads") or heads
    if not heads or key_heads >= tp:
        return _QKV
    if tp % key_heads:
        raise ValueError(f"tp is {tp}: expected a multiple of the {key_heads} key heads")
    if heads % tp:
        raise ValueError(f"tp is {tp}: expected a divisor of the {heads} query heads")
    size = said.get("head_dim") or said["hidden_size"] // heads
    queries, sharing = heads // tp * size, tp // key_heads
    rows = queries + 2 * size  # of a rank

    def part(name, at, length):
        return f"{{p*}}.self_attn.{name}_proj.{{t}}[{at}:{at + length}]"

    rules = [
        f"? {part('q', rank * queries, queries)} -> {part('qkv', rank * rows, queries)}"
        for rank in range(tp)
    ]
    for head in range(key_heads):
        ranks = range(head * sharing, (head + 1) * sharing)
        for name, at in (("k", queries), ("v", queries + size)):
            places = " & ".join(part("qkv", rank * rows + at, size) for rank in ranks)
            rules.append(f"? {part(name, head * size, size)} -> {places}")
    return rules


def _fields_of(config) -> dict:
    """Of a model's config, or of the text part of one."""
    if config is None:
        return {}
    if isinstance(config, str | os.PathLike):
        path = pathlib.Path(config)
        config = json.loads((path / "config.json" if path.is_dir() else path).read_text())
    said = config if isinstance(config, Mapping) else config.to_dict()
    return said.get("text_config") or said


sglang = vllm  # the same names and layouts
