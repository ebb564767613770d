"""How inference engines keep the weights that a trainer sends: what `check` is to be told.

    manifest = shardproof.seal(model, version=step)                  # on all trainer ranks
    shardproof.check(engine, against=manifest, **engines.vllm(engine, tp=2, config=config))

Each function returns the options map, layout, mesh and config of `check`.
"""

import fnmatch

from ._groups import Shard, world

__all__ = ["sglang", "vllm"]

# Transformers' names -> those of vLLM's models. A rank has its rows of each projection, one behind
# the other; vocabularies are padded with 0.
_RULES = (
    "? pad(model.embed_tokens.weight, with=0) -> model.embed_tokens.weight",
    "? pad(lm_head.weight, with=0) -> lm_head.weight",
    "? interleave({p*}.self_attn.q_proj.{t}, {p*}.self_attn.k_proj.{t}, {p*}.self_attn.v_proj.{t},"
    " groups=TP) -> {p*}.self_attn.qkv_proj.{t}",
    "? interleave({p*}.mlp.gate_proj.weight, {p*}.mlp.up_proj.weight, groups=TP)"
    " -> {p*}.mlp.gate_up_proj.weight",
)
# Experts one by one, as files and Transformers 4 have them.
_SINGLE = (
    "? stack(interleave({p*}.mlp.experts.{e}.gate_proj.weight,"
    " {p*}.mlp.experts.{e}.up_proj.weight, groups=TP)) -> {p*}.mlp.experts.w13_weight",
    "? stack({p*}.mlp.experts.{e}.down_proj.weight) -> {p*}.mlp.experts.w2_weight",
)
# Packed, as Transformers 5 holds them.
_PACKED = (
    "? interleave({p*}.mlp.experts.gate_up_proj[:, :config.moe_intermediate_size],"
    " {p*}.mlp.experts.gate_up_proj[:, config.moe_intermediate_size:], groups=TP, dim=1)"
    " -> {p*}.mlp.experts.w13_weight",
    "? {p*}.mlp.experts.down_proj -> {p*}.mlp.experts.w2_weight",
)
_DIM_OF = {
    "*embed_tokens.weight": 0, "lm_head.weight": 0, "*.qkv_proj.*": 0, "*.gate_up_proj.weight": 0,
    "*.o_proj.weight": 1, "*.down_proj.weight": 1, "*.w13_weight": 1, "*.w2_weight": 2,
}  # fmt: skip


def vllm(model, *, tp: int = 1, config=None, packed: bool = False) -> dict:
    """Dense and mixture-of-experts models in the layouts of vLLM's weight loaders, unquantised.

    model: of the engine, on this rank. tp: ranks of a tensor-parallel group, which are consecutive;
    each of them has at least one key head. config: the model's, as of `check`. packed: whether the
    trainer's experts are packed, as Transformers 5 holds them.
    \\raises ValueError if tp does not divide the ranks.
    """
    size = len(world())
    if tp < 1 or size % tp:
        raise ValueError(f"tp is {tp}: expected a divisor of the {size} ranks")
    names = [name for name, _ in model.named_parameters()]
    layout = {
        pattern: {"tp": Shard(dim)}
        for pattern, dim in _DIM_OF.items()
        if tp > 1 and fnmatch.filter(names, pattern)
    }
    mesh = {
        "dp": [list(range(at, size, tp)) for at in range(tp)],
        "tp": [list(range(at, at + tp)) for at in range(0, size, tp)],
    }
    rules = [rule.replace("TP", str(tp)) for rule in (*_RULES, *(_PACKED if packed else _SINGLE))]
    return {"map": rules, "layout": layout, "mesh": mesh, "config": config}


sglang = vllm  # the same names and layouts
