"""Models of Transformers on the trainer's side, and their weights as vLLM's loaders lay them out,
by a stand-in that has these layouts: 2 ranks with tp 2."""

from functools import partial

import pytest
import torch

from shardproof import _program, check, engines, seal
from shardproof._checking._check import Mismatch
from shardproof._checking._ranks_test import DEADLINE, alike, run
from shardproof._syncs._syncs_ranks_test import Engine

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.skipif(_program.find() is None, reason="no command `shardproof`")

TP = 2
SCALED = "model.layers.0.self_attn"  # has a scale of each rank's own keys
SMALL = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 50,
}  # fmt: skip


def trained(kind):
    torch.manual_seed(3)
    if kind == "llama":
        config = transformers.LlamaConfig(**SMALL, tie_word_embeddings=True)
        return transformers.LlamaForCausalLM(config)
    config = transformers.Qwen3MoeConfig(
        **SMALL, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
        decoder_sparse_step=1, mlp_only_layers=[], tie_word_embeddings=False,
    )  # fmt: skip
    return transformers.Qwen3MoeForCausalLM(config)


def rows(whole, rank, dim=0, tp=TP):
    return whole.chunk(tp, dim)[rank].contiguous()


def padded(whole):
    return torch.cat([whole, torch.zeros(64 - whole.shape[0], whole.shape[1])])


def laid_out(state, kind, rank):
    """{name: tensor} as the loaders of vLLM's Llama and Qwen3MoE make them of the trainer's."""
    held = {}
    for name, value in state.items():
        home, leaf, last = (name.rsplit(".", 2) + ["", ""])[:3]
        if "embed_tokens" in name or "lm_head" in name:
            if not (kind == "llama" and "lm_head" in name):  # tied: it is not sent
                held[name] = rows(padded(value), rank)
        elif leaf == "q_proj":
            parts = [state[f"{home}.{each}_proj.{last}"] for each in "qkv"]
            held[f"{home}.qkv_proj.{last}"] = torch.cat([rows(each, rank) for each in parts])
        elif leaf == "gate_proj":
            parts = [state[f"{home}.{each}_proj.{last}"] for each in ("gate", "up")]
            held[f"{home}.gate_up_proj.{last}"] = torch.cat([rows(each, rank) for each in parts])
        elif leaf in ("o_proj", "down_proj"):
            held[name] = rows(value, rank, 1)
        elif last == "gate_up_proj":
            gate, up = value.chunk(2, 1)
            held[name.replace("gate_up_proj", "w13_weight")] = torch.cat(
                [rows(gate, rank, 1), rows(up, rank, 1)], 1
            )
        elif last == "down_proj":
            held[name.replace("down_proj", "w2_weight")] = rows(value, rank, 2)
        elif leaf not in ("k_proj", "v_proj", "up_proj"):
            held[name] = value
    return held


def compared(rank, kind, spoil=None):
    model = trained(kind)
    manifest = seal(model, version=7)
    held = laid_out(model.state_dict(), kind, rank)
    if spoil and rank == 1:
        held[spoil].view(-1)[0] += 1
    engine = Engine(held)
    engine.get_submodule(SCALED).register_buffer("_k_scale", torch.tensor(0.5 + rank))
    options = engines.vllm(engine, tp=TP, config=model.config, packed=kind != "llama")
    try:
        outcome = check(engine, against=manifest, deadline=DEADLINE, **options)
    except Mismatch as error:
        return tuple(sorted({(each.tensor, each.ranks) for each in error.findings}))
    return outcome.inconclusive


def job(rank, kind, spoils):
    return tuple(compared(rank, kind, spoil) for spoil in (None, *spoils))


LAYER = "model.layers.1."


@pytest.mark.parametrize("kind, spoils", [
    ("llama", {LAYER + "self_attn.qkv_proj.weight": LAYER + "self_attn.q_proj.weight",
               LAYER + "mlp.down_proj.weight": LAYER + "mlp.down_proj.weight",
               "model.embed_tokens.weight": "model.embed_tokens.weight"}),
    ("qwen3-moe", {LAYER + "mlp.experts.w13_weight": LAYER + "mlp.experts.gate_up_proj",
                   LAYER + "mlp.experts.w2_weight": LAYER + "mlp.experts.down_proj",
                   "lm_head.weight": "lm_head.weight"}),
])  # fmt: skip
def test_weights_of_transformers_in_the_layouts_of_vllm(kind, spoils):
    said = alike(run(partial(job, kind=kind, spoils=tuple(spoils)), TP), range(TP))
    assert said[0] == (f"{SCALED}._k_scale (not in the manifest)",)
    for found, theirs in zip(said[1:], spoils.values(), strict=True):
        assert [name for name, _ in found] == [theirs]


# ---- Fewer key heads than ranks ------------------------------------------------------------------

WIDE = 4
Q_PROJ, K_PROJ = (f"{LAYER}self_attn.{each}_proj.weight" for each in "qk")
# Which of the 2 key heads the ranks load, and what is then wrong: (tensor, ranks).
SHARED = {
    (0, 0, 1, 1): (),
    (0, 1, 1, 1): ((K_PROJ, (1,)),),
    (0, 1, 0, 1): ((K_PROJ, (1, 2)),),
    (1, 1, 1, 1): ((K_PROJ, (0, 1, 2, 3)),),
}


def wide_state(state, heads, rank):
    """Of a Llama, at tp 4: each rank has a query head, and a key and value head beside another."""
    held = {}
    for name, value in state.items():
        home, leaf, last = (name.rsplit(".", 2) + ["", ""])[:3]
        if leaf == "q_proj":
            own = [rows(value, rank, tp=WIDE)]
            for each in "kv":
                right = heads[rank] if name == Q_PROJ and each == "k" else rank // 2
                own.append(state[f"{home}.{each}_proj.{last}"].chunk(2)[right])
            held[f"{home}.qkv_proj.{last}"] = torch.cat(own)
        elif leaf == "gate_proj":
            parts = [state[f"{home}.{each}_proj.{last}"] for each in ("gate", "up")]
            held[f"{home}.gate_up_proj.{last}"] = torch.cat(
                [rows(each, rank, tp=WIDE) for each in parts]
            )
        elif leaf in ("o_proj", "down_proj"):
            held[name] = rows(value, rank, 1, tp=WIDE)
        elif "embed_tokens" in name:
            held[name] = rows(padded(value), rank, tp=WIDE)
        elif leaf not in ("k_proj", "v_proj", "up_proj") and "lm_head" not in name:
            held[name] = value
    return held


def wide(rank):
    model = trained("llama")
    manifest, said = seal(model, version=7), []
    for heads in SHARED:
        engine = Engine(wide_state(model.state_dict(), heads, rank))
        options = engines.vllm(engine, tp=WIDE, config=model.config)
        try:
            outcome = check(engine, against=manifest, deadline=DEADLINE, **options)
            said.append(outcome.inconclusive)
        except Mismatch as error:
            said.append(tuple(sorted({(each.tensor, each.ranks) for each in error.findings})))
    return tuple(said)


def test_key_heads_that_several_ranks_have():
    assert alike(run(wide, WIDE), range(WIDE)) == tuple(SHARED.values())


def test_key_heads_that_do_not_divide_the_ranks_are_refused(monkeypatch):
    monkeypatch.setattr(engines, "world", lambda: range(4))
    config = {"num_attention_heads": 12, "num_key_value_heads": 3, "hidden_size": 48}
    with pytest.raises(ValueError, match="expected a multiple of the 3 key heads"):
        engines.vllm(torch.nn.Linear(1, 1), tp=4, config=config)


@pytest.mark.parametrize(
    "name, kind",
    [("mlp.down_proj.qweight", "GPTQ or AWQ"), ("mlp.experts.w13_weight_scale_2", "NVFP4")],
)
def test_weights_that_no_trainer_can_seal_are_refused_in_a_line(name, kind):
    with pytest.raises(
        ValueError, match=f"^{name}: weights in {kind} cannot be compared"
    ) as raised:
        engines.vllm(Engine({name: torch.ones(2, 2)}))
    assert "\n" not in str(raised.value)
