"""The ready maps, on models that the real Transformers and PEFT write, and on mistaken conversions.

The conversions here are written with torch alone, by what the other framework does with the tensor.
"""

import json
import pathlib

from command import CommandTest

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "vocab_size": 30,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4}  # fmt: skip


def made(kind, **more):
    """A model of random weights, each tensor unlike the others."""
    import torch
    import transformers

    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(kind, **SIZES, **more)
    )
    for tensor in model.parameters():
        torch.nn.init.normal_(tensor)
    return model


def save(folder, tensors, config=None):
    from safetensors.torch import save_file

    pathlib.Path(folder).mkdir()
    save_file({key: t.clone().contiguous() for key, t in tensors.items()},
              f"{folder}/model.safetensors")  # fmt: skip
    if config:
        pathlib.Path(folder, "config.json").write_text(json.dumps(config))


def megatron(of):
    """The tensors of a Qwen2 as GPTModel holds them: its attention takes [groups, heads of q, 1, 1]
    of the fused rows, its MLP the first half as gate."""
    import torch

    out = {"embedding.word_embeddings.weight": of["model.embed_tokens.weight"],
           "decoder.final_layernorm.weight": of["model.norm.weight"],
           "output_layer.weight": of["lm_head.weight"]}  # fmt: skip
    for layer in range(2):
        a, b = f"model.layers.{layer}.", f"decoder.layers.{layer}."
        for kind in ("weight", "bias"):
            q, k, v = (of[f"{a}self_attn.{p}_proj.{kind}"] for p in "qkv")
            groups = zip(q.split(8), k.split(4), v.split(4), strict=True)
            out[f"{b}self_attention.linear_qkv.{kind}"] = torch.cat([torch.cat(g) for g in groups])
        out[f"{b}self_attention.linear_proj.weight"] = of[f"{a}self_attn.o_proj.weight"]
        out[f"{b}mlp.linear_fc1.weight"] = torch.cat(
            [of[f"{a}mlp.gate_proj.weight"], of[f"{a}mlp.up_proj.weight"]]
        )
        out[f"{b}mlp.linear_fc2.weight"] = of[f"{a}mlp.down_proj.weight"]
        out[f"{b}self_attention.linear_qkv.layer_norm_weight"] = of[f"{a}input_layernorm.weight"]
        out[f"{b}mlp.linear_fc1.layer_norm_weight"] = of[f"{a}post_attention_layernorm.weight"]
    return out


def mistakes(of, right):
    """Ten conversions gone wrong: what is changed, by name, and what the explanation must say."""
    import torch

    layer = "decoder.layers.1."
    qkv, fc1 = layer + "self_attention.linear_qkv.weight", layer + "mlp.linear_fc1.weight"
    proj, fc2 = layer + "self_attention.linear_proj.weight", layer + "mlp.linear_fc2.weight"
    norm = "decoder.final_layernorm.weight"
    q, k, v = (of[f"model.layers.1.self_attn.{p}_proj.weight"] for p in "qkv")
    gate, up = fc1_parts = right[fc1].chunk(2)
    assert len(fc1_parts) == 2
    swapped = torch.cat([q[:8], v[:4], k[:4], q[8:], v[4:], k[4:]])
    heads = right[qkv].view(2, 16, 16)[:, [4, 5, 6, 7, 0, 1, 2, 3, *range(8, 16)]].reshape(32, 16)
    first = right["decoder.layers.0.mlp.linear_fc2.weight"]
    bits = right[fc2].view(torch.int32) & -65536
    return [
        (qkv, torch.cat([q, k, v]), "one behind the other and not by groups"),
        (qkv, swapped, "in the order .*q_proj.weight, .*v_proj.weight, .*k_proj.weight in 2"),
        (qkv, heads, "rows permuted"),
        (fc1, torch.cat([up, gate]), "in the order .*up_proj.weight, .*gate_proj.weight"),
        (fc1, torch.stack([gate, up], 1).reshape(48, 16), "in 24 groups"),
        (proj, right[proj].T, "transposed"),
        (fc2, first, "equals another tensor: A's 'model.layers.0.mlp.down_proj.weight'"),
        (fc2, bits.view(torch.float32), "(?i)bf16|bfloat16|rounded|truncat"),
        ("embedding.word_embeddings.weight",
         torch.cat([of["model.embed_tokens.weight"], torch.zeros(2, 16)]), "2 more are zero"),
        (norm, torch.zeros_like(right[norm]), "zero"),
    ]  # fmt: skip


class Ready(CommandTest):
    labels = "selftest framework"
    timeout_s = 120

    def equal(self, left, right, *maps, code=0):
        words = [word for each in maps for word in ("--map", each)]
        return self.judged("compare", left, right, *words, code=code)

    def test_megatron_and_ten_mistakes(self):
        model = made("qwen2", tie_word_embeddings=False)
        model.save_pretrained(self.dir / "hf")
        of = {key: tensor.detach() for key, tensor in model.state_dict().items()}
        right = megatron(of)
        save(self.dir / "megatron", right)
        document = self.equal("hf", "megatron", "transformers-megatron")
        self.assertEqual(document["tensors"], 3 + 2 * 7)
        for number, (name, tensor, explained) in enumerate(mistakes(of, right)):
            with self.subTest(name=name, explained=explained):
                save(self.dir / f"wrong{number}", {**right, name: tensor})
                document = self.equal("hf", f"wrong{number}", "transformers-megatron", code=1)
                found = document["differences"]
                self.assertEqual([d["tensor"] for d in found], [name])
                self.assertRegex(found[0]["explanation"], explained)

    def test_packed_experts(self):
        for kind, more in (("qwen3_moe", {"num_experts": 11, "moe_intermediate_size": 8}),
                           ("mixtral", {"num_local_experts": 11})):  # fmt: skip
            model = made(kind, **more)
            model.save_pretrained(self.dir / kind)
            packed = {key: tensor.detach() for key, tensor in model.state_dict().items()}
            save(self.dir / f"{kind}-held", packed)
            self.equal(kind, f"{kind}-held", "transformers-v4-v5")
        self.packed_mistakes("mixtral", packed)

    def packed_mistakes(self, kind, right):
        import torch

        both, down = (f"model.layers.1.mlp.experts.{n}" for n in ("gate_up_proj", "down_proj"))
        gate, up = right[both].chunk(2, 1)
        last = torch.zeros(1, *right[down].shape[1:])
        self.told(kind, "transformers-v4-v5", right, [
            (both, torch.cat([up, gate], 1), "in the order .*w3.*, .*w1"),
            (both, torch.stack([gate, up], 2).reshape(right[both].shape), "in .* groups"),
            (down, right[down][[0, 2, 1, *range(3, 11)]], "rows 1 and 2 are swapped"),
            (down, right[down].roll(1, 0), "rows permuted"),
            (down, right[down][:10], "1 are missing"),
            (down, torch.cat([right[down][:10], last]), "zeros in elements"),
            (both, right[both].mT, "transposed"),
            (both, right[both.replace("1.mlp", "0.mlp")], "the values of model.layers.0.mlp"),
            (down, right[down].bfloat16().float(), "rounded through BF16"),
            (down, torch.cat([right[down], right[down][-1:]]), "1 more repeat row 10"),
        ])  # fmt: skip

    def told(self, source, ready, right, wrong):
        """Each mistake fails under the map, by name and with an explanation."""
        for number, (name, tensor, explained) in enumerate(wrong):
            with self.subTest(ready=ready, name=name, explained=explained):
                save(self.dir / f"{ready}{number}", {**right, name: tensor})
                found = self.equal(source, f"{ready}{number}", ready, code=1)["differences"]
                self.assertEqual([d["tensor"] for d in found], [name])
                self.assertRegex(found[0]["explanation"], explained)

    def test_other_names(self):
        import torch

        model = made("llama", tie_word_embeddings=False)
        model.save_pretrained(self.dir / "hf")
        of = {key: tensor.detach() for key, tensor in model.state_dict().items()}
        save(self.dir / "deepspeed", {f"module.{key}": tensor for key, tensor in of.items()})
        self.equal("deepspeed", "hf", "deepspeed-transformers")
        names = (("model.embed_tokens", "tok_embeddings"), ("model.norm", "norm"),
                 ("lm_head", "output"), ("model.layers", "layers"),
                 ("self_attn.q_proj", "attention.wq"), ("self_attn.k_proj", "attention.wk"),
                 ("self_attn.v_proj", "attention.wv"), ("self_attn.o_proj", "attention.wo"),
                 ("mlp.gate_proj", "feed_forward.w1"), ("mlp.down_proj", "feed_forward.w2"),
                 ("mlp.up_proj", "feed_forward.w3"), ("input_layernorm", "attention_norm"),
                 ("post_attention_layernorm", "ffn_norm"))  # fmt: skip
        titan, vllm = {}, {}
        for key, tensor in of.items():
            name = key
            for old, new in names:
                name = name.replace(old, new)
            if ".wq." in name or ".wk." in name:
                # Head by head: row i of the first half and row i of the second are a pair.
                tensor = torch.cat([torch.stack([head[:2], head[2:]], 1).reshape(4, 16)
                                    for head in tensor.split(4)])  # fmt: skip
            titan[name] = tensor
        save(self.dir / "titan", titan)
        self.equal("hf", "titan", "transformers-torchtitan")
        self.titan_mistakes(of, titan)
        self.deepspeed_mistakes(of)
        fused = {"self_attn.qkv_proj": "self_attn.{}_proj q k v",
                 "mlp.gate_up_proj": "mlp.{}_proj gate up"}  # fmt: skip
        vllm = dict(of)
        for layer in range(2):
            for name, of_name in fused.items():
                pattern, *parts = of_name.split()
                keys = [f"model.layers.{layer}.{pattern.format(p)}.weight" for p in parts]
                vllm[f"model.layers.{layer}.{name}.weight"] = torch.cat([vllm.pop(k) for k in keys])
        save(self.dir / "vllm", vllm)
        self.equal("hf", "vllm", "transformers-vllm")
        self.vllm_mistakes(of, vllm)

        torch.save({"w": of["model.norm.weight"], "step": 3}, self.dir / "a.pt")
        torch.save({"w": of["model.norm.weight"], "at.step": 3}, self.dir / "b.pt")
        torch.save({"w": of["model.norm.weight"], "at.step": 4}, self.dir / "c.pt")
        for rule in ("step -> at.step", "{x*}ep -> at.{x*}ep"):
            self.assertEqual(self.equal("a.pt", "b.pt", rule)["values"], 1)
            self.equal("a.pt", "c.pt", rule, code=1)
        self.refused("compare", "a.pt", "b.pt", "--map", "epoch -> at.epoch", names=["epoch"])

    def test_a_universal_checkpoint_and_twelve_mistakes(self):
        """Of what puts the slices of DeepSpeed's ranks together: the checkpoint itself is wrong."""
        import torch

        of = {key: tensor.detach() for key, tensor in made("llama").state_dict().items()}
        save(self.dir / "hf", of)
        for key, tensor in of.items():
            folder = self.dir / f"universal/zero/{key}"
            folder.mkdir(parents=True)
            for name, state in (("fp32", tensor), ("exp_avg", 0.01 * tensor)):
                torch.save({"param": state}, folder / f"{name}.pt")
        self.equal("universal", "hf", "deepspeed-universal")
        up = "model.layers.1.mlp.up_proj.weight"
        right, flat = of[up], of[up].flatten()
        for tensor, explained in (
            (flat.roll(192), "rows permuted"),
            (flat.roll(100), "shifted by 100 elements"),
            (torch.cat([torch.zeros(5), flat[:-5]]), "shifted by 5 elements"),
            (torch.cat([flat[:192], torch.zeros(3), flat[192:-3]]), "from element 192 on"),
            (torch.cat([flat[:192], torch.zeros(192)]), "values may be the wrong ones.*192 to 383"),
            (torch.zeros(384), "the expected side is all zeros"),
            (flat.bfloat16().float(), "values may be the wrong ones.*BF16"),
            (right.T.flatten(), "values may be the wrong ones.*transposed"),
            (0.01 * flat, "100 times"),
            (of[up.replace("1.mlp", "0.mlp")], "A's is another tensor of B's.*0.mlp.up_proj"),
            (right[:12].clone(), "the first 12 rows are A's, 12 more"),
            (right[12:].clone(), "A's are rows 12 to 23 of B's 24"),
        ):
            with self.subTest(explained=explained):
                shaped = tensor.reshape(-1, 16).contiguous()
                torch.save({"param": shaped}, self.dir / f"universal/zero/{up}/fp32.pt")
                (found,) = self.equal("universal", "hf", "deepspeed-universal", code=1)[
                    "differences"]  # fmt: skip
                self.assertEqual(found["tensor"], up)
                self.assertRegex(found["explanation"], explained)

    def titan_mistakes(self, of, right):
        import torch

        layer = "layers.1."
        wq, wk, wo = (f"{layer}attention.w{name}.weight" for name in "qko")
        w1, w2 = (f"{layer}feed_forward.w{name}.weight" for name in "12")
        rows, norm = "tok_embeddings.weight", f"{layer}ffn_norm.weight"
        q, k, up = (of[f"model.layers.1.{n}_proj.weight"]
                    for n in ("self_attn.q", "self_attn.k", "mlp.up"))  # fmt: skip
        as_one_head = torch.stack([k[:4], k[4:]], 1).reshape(8, 16)
        self.told("hf", "transformers-torchtitan", right, [
            (wq, q, "q_proj.weight' as it is: what the map does to it was left out"),
            (wk, as_one_head, "rows permuted"),
            (wq, right[wq].roll(4, 0), "rows permuted"),
            (wq, right["layers.0.attention.wq.weight"], "the values of layers.0.attention.wq"),
            (wo, right[wo].T, "transposed"),
            (w1, up, "equals another tensor: A's 'model.layers.1.mlp.up_proj.weight'"),
            (w2, right[w2].bfloat16().float(), "rounded through BF16"),
            (norm, right[norm] + 1, "the expected one plus 1"),
            (rows, right[rows] * 4, "4 times the expected one"),
            (rows, torch.cat([right[rows], torch.randn(2, 16)]), "2 more hold something else"),
            ("output.weight", right[rows], "equals another tensor: A's 'model.embed_tokens"),
        ])  # fmt: skip

    def deepspeed_mistakes(self, of):
        import torch

        layer = "model.layers.1."
        q, k, v = (f"{layer}self_attn.{name}_proj.weight" for name in "qkv")
        gate, up, down = (f"{layer}mlp.{name}_proj.weight" for name in ("gate", "up", "down"))
        rows, norm = "model.embed_tokens.weight", "model.norm.weight"
        half = of[up].clone()
        half[12:] = 0  # of one rank alone
        self.told("deepspeed", "deepspeed-transformers", of, [
            (gate, of[up], "equals another tensor: A's 'module.model.layers.1.mlp.up_proj"),
            (k, of[v], "equals another tensor"),
            (down, of[down.replace("1.mlp", "0.mlp")], "equals another tensor"),
            (q, of[q].T, "transposed"),
            (q, of[q].roll(4, 0), "rows permuted"),
            (up, half, "zeros in elements 192 to 383"),
            (up, of[up][:12], "are missing"),
            (down, of[down].bfloat16().float(), "rounded through BF16"),
            (norm, of[norm] + 1, "plus 1"),
            (norm, of[norm] * 0.5, "0.5 times"),
            (rows, torch.cat([of[rows], of[rows][-1:]]), "1 more repeat row 29"),
        ])  # fmt: skip

    def vllm_mistakes(self, of, right):
        import torch

        layer = "model.layers.1."
        qkv, both = layer + "self_attn.qkv_proj.weight", layer + "mlp.gate_up_proj.weight"
        out, down = layer + "self_attn.o_proj.weight", layer + "mlp.down_proj.weight"
        norm, rows = "model.norm.weight", "model.embed_tokens.weight"
        q, k, v = (of[f"{layer}self_attn.{p}_proj.weight"] for p in "qkv")
        gate, up = right[both].chunk(2)
        groups = zip(q.split(8), k.split(4), v.split(4), strict=True)
        cut = (right[down].contiguous().view(torch.int32) & -65536).view(torch.float32)
        self.told("hf", "transformers-vllm", right, [
            (qkv, torch.cat([q, v, k]), "in the order .*q_proj.weight, .*v_proj.weight"),
            (qkv, torch.cat([torch.cat(group) for group in groups]), "the parts in 2 groups"),
            (qkv, right[qkv].roll(4, 0), "rows permuted"),
            (both, torch.cat([up, gate]), "in the order .*up_proj.weight, .*gate_proj.weight"),
            (both, torch.stack([gate, up], 1).reshape(48, 16), "in 24 groups"),
            (out, right[out].T, "transposed"),
            (down, right[down.replace("1.mlp", "0.mlp")], "equals another tensor"),
            (down, cut, "truncated to BF16"),
            (norm, torch.zeros_like(right[norm]), "zeros"),
            (rows, torch.cat([right[rows], torch.zeros(2, 16)]), "2 more are zero"),
        ])  # fmt: skip

    def test_an_adapter_that_peft_merged(self):
        """In F32 and BF16, with a factor per module, by the root of r, and an embedding."""
        import peft
        import torch

        plain = {"target_modules": ["q_proj", "down_proj"], "alpha_pattern": {"q_proj": 5}}
        turns = {"target_modules": ["o_proj", "embed_tokens"], "use_rslora": True}
        for number, (dtype, more) in enumerate(((torch.float32, plain), (torch.bfloat16, plain),
                                                (torch.float32, turns))):  # fmt: skip
            base, adapter, merged = (f"{part}{number}" for part in ("base", "adapter", "merged"))
            model = made("llama", tie_word_embeddings=False).to(dtype)
            model.save_pretrained(self.dir / base)
            config = peft.LoraConfig(r=3, lora_alpha=4, init_lora_weights=False, **more)
            adapted = peft.get_peft_model(model, config)
            adapted.save_pretrained(self.dir / adapter)  # with the embedding that it adapts
            adapted.merge_and_unload().save_pretrained(self.dir / merged)
            document = self.judged("compare", base, merged, "--adapter", adapter, code=0)
            self.assertGreater(document["computed"], 2)
            self.judged("compare", base, base, "--adapter", adapter, code=1)
            if number == 0:
                self.merge_mistakes()
                path = self.dir / adapter / "adapter_config.json"
                path.write_text(path.read_text().replace('"lora_alpha": 4', '"lora_alpha": 11'))
                wrong = self.judged("compare", base, merged, "--adapter", adapter, code=1)
                self.assertIn("by a factor of 1.33333, where its config gives 3.66667",
                              wrong["differences"][0]["explanation"])  # fmt: skip

    def merge_mistakes(self):
        """By the layers of PEFT's own files: what each does with the product of the second layer's
        matrices."""
        from safetensors.torch import load_file

        base = load_file(self.dir / "base0/model.safetensors")
        lora = load_file(self.dir / "adapter0/adapter_model.safetensors")
        right = load_file(self.dir / "merged0/model.safetensors")

        def delta(layer):
            before = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_"
            return lora[f"{before}B.weight"] @ lora[f"{before}A.weight"]

        q, down = (f"model.layers.1.{n}_proj.weight" for n in ("self_attn.q", "mlp.down"))
        w, ba, factor, root = base[q], delta(1), 5 / 3, 3**0.5
        first = right["model.layers.0.self_attn.q_proj.weight"]
        for number, (name, tensor, explained) in enumerate([
            (q, w, "was not merged"),
            (q, w + 2 * factor * ba, "merged twice"),
            (q, w - factor * ba, "subtracted"),
            (q, w + ba, "without its factor"),
            (q, w + 5 * ba, "by lora_alpha and not by lora_alpha / r"),
            (q, w + ba / factor, "inverse of its factor"),
            (q, w + 5 / root * ba, r"lora_alpha / sqrt\(r\)"),
            (q, w + factor * ba.T, "product transposed"),
            (q, w + factor * delta(0), "another module merged, that of '.*layers.0.self_attn.q"),
            (q, first, "the values of '.*layers.0.self_attn.q"),
            (q, right[q] * 3, "3 times"),
            (down, base[down], "was not merged"),
        ]):  # fmt: skip
            with self.subTest(explained=explained):
                save(self.dir / f"mistaken{number}", {**right, name: tensor})
                found = self.judged("compare", "base0", f"mistaken{number}", "--adapter",
                                    "adapter0", code=1)["differences"]  # fmt: skip
                self.assertEqual([d["tensor"] for d in found], [name])
                self.assertRegex(found[0]["explanation"], explained)
