"""A config.json that does not describe a model we know: exit code 2, the field named."""

from checkpoints import write_llama
from command import CommandTest


class BadConfig(CommandTest):
    def refused_config(self, *names, **changes):
        write_llama(self.dir / "bad", **changes)
        self.refused("verify", "--checkpoint", "bad", names=["config.json", *names])

    def refused_text(self, text, *names):
        directory = write_llama(self.dir / "bad")
        (directory / "config.json").write_text(text)
        self.refused("verify", "--checkpoint", "bad", names=["config.json", *names])

    def test_good_config_passes(self):
        write_llama(self.dir / "good", files=2)
        self.assert_exit(self.shardproof("verify", "--checkpoint", "good", "--world", 2), 0)

    def test_unknown_architecture_lists_the_known(self):
        self.refused_config("MambaForCausalLM", "LlamaForCausalLM", "Qwen3ForCausalLM",
                            architectures=["MambaForCausalLM"], model_type="mamba")  # fmt: skip

    def test_no_architecture(self):
        self.refused_config("architectures", architectures=None, model_type=None)

    def test_architectures_that_are_no_list(self):
        self.refused_config("architectures", architectures="LlamaForCausalLM")

    def test_field_missing(self):
        for field in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                      "num_attention_heads"):  # fmt: skip
            with self.subTest(field):
                write_llama(self.dir / field, **{field: None})
                self.refused("verify", "--checkpoint", field, names=["config.json", field])

    def test_field_of_wrong_type(self):
        self.refused_config("hidden_size", hidden_size="8")

    def test_field_zero(self):
        self.refused_config("num_hidden_layers", num_hidden_layers=0)

    def test_field_negative(self):
        self.refused_config("vocab_size", vocab_size=-11)

    def test_field_a_fraction(self):
        self.refused_config("hidden_size", hidden_size=8.5)

    def test_field_beyond_any_model(self):
        self.refused_config("num_hidden_layers", num_hidden_layers=10**15)

    def test_tie_that_is_no_flag(self):
        self.refused_config("tie_word_embeddings", tie_word_embeddings="no")

    def test_unknown_dtype(self):
        self.refused_config("float31", dtype="float31")

    def test_unknown_rope(self):
        rope = {"rope_type": "su", "factor": 2.0, "rope_theta": 10000.0}
        self.refused_config("'su'", "default", rope_parameters=rope)

    def test_old_style_rope_scaling_without_its_factor(self):
        self.refused_config("rope_scaling", "factor", rope_scaling={"type": "linear"})

    def test_rope_theta_zero(self):
        self.refused_config("rope_theta", rope_theta=0)

    def test_quantised_in_a_way_that_is_not_known(self):
        for field, value, name in (
            ("quant_method", "awq", "'awq'"), ("activation_scheme", "static", "activation_scheme"),
            ("weight_block_size", None, "weight_block_size"), ("scale_fmt", "ue8m0", "scale_fmt"),
            ("modules_to_not_convert", ["re:.*"], "modules_to_not_convert"),
            ("modules_to_convert", ["embed_tokens"], "modules_to_convert"),
        ):  # fmt: skip
            with self.subTest(field):
                quantised = {"quant_method": "fp8", field: value}
                write_llama(self.dir / field, quantization_config=quantised)
                self.refused("verify", "--checkpoint", field, names=["config.json", name])

    def test_quantised_architecture_that_is_not_known_so(self):
        self.refused_config("quantization_config", architectures=["Lfm2MoeForCausalLM"],
                            quantization_config={"quant_method": "fp8"})  # fmt: skip

    def test_not_json(self):
        self.refused_text("{")

    def test_a_list(self):
        self.refused_text("[]")

    def test_empty(self):
        self.refused_text("")

    def test_deeply_nested(self):
        self.refused_text('{"a":' * 100000)

    def test_not_utf8(self):
        directory = write_llama(self.dir / "bad")
        (directory / "config.json").write_bytes(b'{"model_type": "\xff\xfe"}')
        self.refused("verify", "--checkpoint", "bad", names=["config.json"])

    def test_missing_file(self):
        (write_llama(self.dir / "bad") / "config.json").unlink()
        self.refused("verify", "--checkpoint", "bad", names=["config.json"])

    def test_more_layers_than_the_file_holds_is_a_failure_that_names_them(self):
        write_llama(self.dir / "two", num_hidden_layers=2)
        document = self.judged("verify", "--checkpoint", "two", "--world", 2, code=1)
        found = [one for one in document["findings"] if one["property"] == "loading.keys_match"]
        self.assertIn("model.layers.1.", found[0]["tensor"])
