"""Broken checkpoints: one line that names the file and what is wrong, exit code 2."""

import json
import shutil
import struct

from checkpoints import (
    CONFIG,
    Tensor,
    header_of,
    llama_tensors,
    safetensors_bytes,
    write_checkpoint,
    write_llama,  # fmt: skip
)
from command import CommandTest

EMBED = "model.embed_tokens.weight"


class BadSafetensors(CommandTest):
    """One file, whose header or data is wrong."""

    def refused_file(self, content, *names):
        directory = write_llama(self.dir / "bad")
        (directory / "model.safetensors").write_bytes(content)
        self.refused("verify", "--checkpoint", "bad", "--world", 2,
                     names=["model.safetensors", *names])  # fmt: skip
        self.refused("compare", "bad", "bad", names=["model.safetensors", *names])

    def with_header(self, change, data=None):
        """A file whose header was changed in place."""
        tensors = llama_tensors()
        header = header_of(tensors)
        change(header)
        if data is None:
            data = b"".join(tensor.data for tensor in tensors.values())
        return safetensors_bytes(header, data)

    def test_empty_file(self):
        self.refused_file(b"")

    def test_shorter_than_its_length_field(self):
        self.refused_file(b"\x10\0\0")

    def test_truncated_header(self):
        self.refused_file(self.with_header(lambda header: None)[:100])

    def test_truncated_data(self):
        self.refused_file(self.with_header(lambda header: None)[:-5])

    def test_header_length_beyond_the_file(self):
        self.refused_file(struct.pack("<Q", 1 << 20) + b"{}")

    def test_header_length_of_all_ones(self):
        self.refused_file(b"\xff" * 8 + b"{}")

    def test_header_that_is_not_json(self):
        self.refused_file(safetensors_bytes(b"{not json", b""))

    def test_header_that_is_an_array(self):
        self.refused_file(safetensors_bytes(b"[]", b""))

    def test_header_nested_without_end(self):
        self.refused_file(safetensors_bytes(b"[" * 100000, b""))

    def test_overlapping_offsets(self):
        def overlap(header):
            begin, end = header["lm_head.weight"]["data_offsets"]
            header["lm_head.weight"]["data_offsets"] = [begin - 4, end - 4]

        self.refused_file(self.with_header(overlap), "lm_head.weight")

    def test_offsets_beyond_the_data(self):
        def beyond(header):
            begin, end = header["lm_head.weight"]["data_offsets"]
            header["lm_head.weight"]["data_offsets"] = [begin + 400, end + 400]

        self.refused_file(self.with_header(beyond), "lm_head.weight")

    def test_offsets_that_run_backwards(self):
        def backwards(header):
            header[EMBED]["data_offsets"].reverse()

        self.refused_file(self.with_header(backwards), EMBED)

    def test_offsets_that_do_not_fit_the_shape(self):
        def wider(header):
            header[EMBED]["shape"] = [11, 9]

        self.refused_file(self.with_header(wider), EMBED)

    def test_negative_offset(self):
        def negative(header):
            header[EMBED]["data_offsets"][0] = -4

        self.refused_file(self.with_header(negative), EMBED)

    def test_shape_whose_product_overflows(self):
        def huge(header):
            header[EMBED]["shape"] = [1 << 40, 1 << 40]

        self.refused_file(self.with_header(huge), EMBED)

    def test_unknown_dtype(self):
        def unknown(header):
            header[EMBED]["dtype"] = "F31"

        self.refused_file(self.with_header(unknown), EMBED, "F31")

    def test_bytes_that_no_tensor_owns(self):
        tensors = llama_tensors()
        data = b"".join(tensor.data for tensor in tensors.values()) + b"\0" * 8
        self.refused_file(safetensors_bytes(header_of(tensors), data))

    def test_one_name_twice(self):
        tensors = llama_tensors()
        text = json.dumps(header_of(tensors))
        entry = json.dumps(header_of(tensors)["lm_head.weight"])
        text = text[:-1] + f', "lm_head.weight": {entry}}}'
        data = b"".join(tensor.data for tensor in tensors.values())
        self.refused_file(safetensors_bytes(text.encode(), data), "lm_head.weight")


class BadIndex(CommandTest):
    """Several files, whose index is wrong."""

    def refused_index(self, change, *names):
        directory = write_llama(self.dir / "bad", files=3)
        path = directory / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        changed = change(index["weight_map"], directory)
        path.write_text(json.dumps(index) if changed is None else changed)
        self.refused("verify", "--checkpoint", "bad", "--world", 2, names=names)
        self.refused("compare", "bad", "bad", names=names)

    def test_names_a_file_that_is_not_there(self):
        def absent(weights, directory):
            (directory / weights[EMBED]).unlink()

        self.refused_index(absent, "model-00001-of-00003.safetensors")

    def test_names_a_file_above_the_directory(self):
        def above(weights, directory):
            (directory.parent / "secret.safetensors").write_bytes(
                (directory / weights[EMBED]).read_bytes()
            )
            weights[EMBED] = "../secret.safetensors"

        self.refused_index(above, "../secret.safetensors")

    def test_names_an_absolute_path(self):
        def absolute(weights, directory):
            weights[EMBED] = str(directory / weights[EMBED])

        self.refused_index(absolute, "index.json")

    def test_names_a_tensor_that_its_file_lacks(self):
        def elsewhere(weights, directory):
            weights[EMBED] = weights["model.layers.0.self_attn.q_proj.weight"]

        self.refused_index(elsewhere, EMBED)

    def test_is_not_json(self):
        self.refused_index(lambda weights, directory: "{", "index.json")

    def test_has_no_weight_map(self):
        self.refused_index(lambda weights, directory: "{}", "weight_map")

    def test_maps_to_a_number(self):
        def number(weights, directory):
            weights[EMBED] = 7

        self.refused_index(number, EMBED)


class BadDirectory(CommandTest):
    def refused_directory(self, *names):
        self.refused("verify", "--checkpoint", "bad", names=names)

    def test_not_there(self):
        self.refused_directory("bad")

    def test_a_file_in_its_place(self):
        self.write("bad", "")
        self.refused_directory("bad")

    def test_empty(self):
        (self.dir / "bad").mkdir()
        self.refused_directory("bad")

    def test_config_and_no_weights(self):
        write_llama(self.dir / "bad")
        (self.dir / "bad" / "model.safetensors").unlink()
        self.refused_directory("bad", "safetensors")

    def test_weights_file_is_a_directory(self):
        write_llama(self.dir / "bad")
        (self.dir / "bad" / "model.safetensors").unlink()
        (self.dir / "bad" / "model.safetensors").mkdir()
        self.refused_directory("model.safetensors")

    def test_weights_file_is_a_broken_link(self):
        write_llama(self.dir / "bad")
        (self.dir / "bad" / "model.safetensors").unlink()
        (self.dir / "bad" / "model.safetensors").symlink_to("nowhere")
        self.refused_directory("model.safetensors")

    def test_shape_other_than_the_config_says(self):
        tensors = llama_tensors()
        tensors["model.norm.weight"].shape = [4, 2]
        write_checkpoint(self.dir / "bad", tensors, config=CONFIG)
        self.refused_directory("model.norm.weight", "[4, 2]", "[8]")

    def test_dtype_that_the_model_cannot_have(self):
        for name, dtype, width in (
            ("model.norm.weight", "I32", 4),
            ("model.norm.weight", "F8_E4M3", 1),
        ):
            with self.subTest(dtype):
                shutil.rmtree(self.dir / "bad", ignore_errors=True)
                tensors = llama_tensors()
                tensors[name] = Tensor(dtype, [8], bytes(8 * width))
                write_checkpoint(self.dir / "bad", tensors, config=CONFIG)
                self.refused_directory(name, dtype, "F32")

    def test_weights_under_a_name_that_no_library_looks_for(self):
        write_llama(self.dir / "bad")
        (self.dir / "bad" / "model.safetensors").rename(
            self.dir / "bad" / "pytorch_model.safetensors"
        )
        self.refused_directory("model.safetensors", "neither")

    def test_files_in_a_folder_of_their_own_are_read(self):
        directory = write_llama(self.dir / "good", files=3)
        path = directory / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        (directory / "sub").mkdir()
        for file in set(index["weight_map"].values()):
            (directory / file).rename(directory / "sub" / file)
        index["weight_map"] = {key: f"sub/{file}" for key, file in index["weight_map"].items()}
        path.write_text(json.dumps(index))
        self.judged("verify", "--checkpoint", "good", "--world", 2, code=0)

    def test_tied_tensors_of_two_dtypes(self):
        tensors = llama_tensors()
        tensors["lm_head.weight"] = Tensor("BF16", [11, 8], bytes(11 * 8 * 2))
        write_checkpoint(self.dir / "bad", tensors, config={**CONFIG, "tie_word_embeddings": True})
        self.refused_directory("lm_head.weight", EMBED, "BF16", "F32", "tied")

    def test_tied_tensors_of_two_values_are_a_finding(self):
        tied = {**CONFIG, "tie_word_embeddings": True}
        tensors = llama_tensors()
        tensors["lm_head.weight"] = tensors[EMBED]
        write_checkpoint(self.dir / "one", tensors, config=tied)
        self.judged("verify", "--checkpoint", "one", "--world", 2, code=0)
        tensors["lm_head.weight"] = tensors[EMBED].changed(40, b"\x01")
        write_checkpoint(self.dir / "two", tensors, config=tied)
        document = self.judged("verify", "--checkpoint", "two", "--world", 2, code=1)
        (finding,) = document["findings"]
        self.assertEqual((finding["property"], finding["class"]), ("loading.keys_match", "input"))
        self.assertIn("tied", finding["message"])

    def test_nothing_is_left_of_a_report_or_a_saved_checkpoint(self):
        write_llama(self.dir / "bad")
        (self.dir / "bad" / "model.safetensors").write_bytes(b"\xff" * 16)
        self.refused("verify", "--checkpoint", "bad", "--report", "out", "--json", "out.json",
                     "--save-to", "saved", names=["model.safetensors"])  # fmt: skip
