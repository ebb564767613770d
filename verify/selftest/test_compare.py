"""compare: equal, or the tensors that differ with count, first index and both values."""

import struct

from checkpoints import Tensor, f32, llama_tensors, write_checkpoint, write_safetensors
from command import CommandTest, snapshot

NAN = 0x7FC00000
NAN_WITH_PAYLOAD = 0x7FC00001


def bits(*patterns):
    """F32 elements of these bits."""
    return Tensor("F32", [len(patterns)], struct.pack(f"<{len(patterns)}I", *patterns))


class Compare(CommandTest):
    def pair(self, left, right):
        write_safetensors(self.dir / "a.safetensors", left)
        write_safetensors(self.dir / "b.safetensors", right)
        return "a.safetensors", "b.safetensors"

    def difference(self, left, right):
        """The one difference between two files."""
        document = self.judged("compare", *self.pair(left, right), code=1)
        self.assertEqual((document["verdict"], len(document["differences"])), ("fail", 1))
        return document["differences"][0]

    def test_a_checkpoint_equals_itself(self):
        write_checkpoint(self.dir / "a", llama_tensors())
        document = self.judged("compare", "a", "a", code=0)
        self.assertEqual((document["verdict"], document["tensors"]), ("pass", 12))
        self.assertEqual(document["differences"], [])

    def test_differently_sharded_is_equal(self):
        write_checkpoint(self.dir / "one", llama_tensors())
        write_checkpoint(self.dir / "five", llama_tensors(), files=5)
        document = self.judged("compare", "one", "five", code=0)
        self.assertEqual(document["tensors"], 12)
        text = self.shardproof("compare", "five", "one/model.safetensors")
        self.assert_exit(text, 0)
        self.assertTrue(text.out.startswith("PASS"), str(text))

    def test_one_element_differs(self):
        left = {"w": f32([5, 3], range(15)), "same": f32([4])}
        right = {"w": left["w"].changed(4 * 7, struct.pack("<f", 7.5)), "same": left["same"]}
        found = self.difference(left, right)
        self.assertEqual((found["tensor"], found["index"], found["differing"]), ("w", 7, 1))
        self.assertEqual((found["coordinates"], found["elements"]), ([2, 1], 15))
        self.assertIn("0x40e00000", found["expected"])
        self.assertIn("0x40f00000", found["seen"])

    def test_the_text_names_tensor_count_index_and_values(self):
        left = {"w": f32([5, 3], range(15))}
        right = {"w": left["w"].changed(4 * 7, struct.pack("<f", 7.5))}
        done = self.shardproof("compare", *self.pair(left, right))
        self.assert_exit(done, 1)
        for part in ("w: 1 of 15 elements differs", "element 7 (2, 1)", "0x40e00000", "0x40f00000"):
            self.assertIn(part, done.out)

    def test_nan_payload_differs(self):
        found = self.difference({"w": bits(1, NAN)}, {"w": bits(1, NAN_WITH_PAYLOAD)})
        self.assertEqual((found["index"], found["differing"]), (1, 1))
        self.assertIn("7fc00001", found["seen"])

    def test_equal_nans_are_equal(self):
        self.judged("compare", *self.pair({"w": bits(NAN)}, {"w": bits(NAN)}), code=0)

    def test_minus_zero_is_not_zero(self):
        found = self.difference({"w": bits(0, 0, 0)}, {"w": bits(0, 0, 0x80000000)})
        self.assertEqual((found["index"], found["differing"]), (2, 1))

    def test_dtype_differs(self):
        found = self.difference({"w": f32([2])}, {"w": Tensor("I32", [2], f32([2]).data)})
        self.assertEqual((found["kind"], found["expected"], found["seen"]), ("dtype", "F32", "I32"))

    def test_shape_differs(self):
        found = self.difference({"w": f32([2, 3])}, {"w": Tensor("F32", [3, 2], f32([2, 3]).data)})
        self.assertEqual(found["kind"], "shape")
        self.assertIn("3, 2", found["seen"])

    def test_missing_and_extra_tensors(self):
        left = {"w": f32([2]), "gone": f32([3])}
        right = {"w": f32([2]), "new": f32([9])}
        document = self.judged("compare", *self.pair(left, right), code=1)
        self.assertEqual((document["only_in_a"], document["only_in_b"]), (["gone"], ["new"]))

    def test_rows_swapped_are_explained(self):
        rows = [struct.pack("<4f", *[row * 10.0 + i for i in range(4)]) for row in range(6)]
        left = Tensor("F32", [6, 4], b"".join(rows))
        rows[1], rows[4] = rows[4], rows[1]
        found = self.difference({"w": left}, {"w": Tensor("F32", [6, 4], b"".join(rows))})
        self.assertEqual((found["index"], found["differing"]), (4, 8))
        self.assertIn("swap", found["explanation"])

    def test_zeros_are_explained(self):
        found = self.difference({"w": f32([6, 4])}, {"w": f32([6, 4], [0.0] * 24)})
        self.assertIn("zero", found["explanation"])

    def test_empty_checkpoints_are_inconclusive(self):
        document = self.judged("compare", *self.pair({}, {}), code=3)
        self.assertEqual(document["verdict"], "inconclusive")

    def test_tensors_without_an_element_are_inconclusive(self):
        tensors = {"w": f32([0, 4])}
        self.judged("compare", *self.pair(tensors, tensors), code=3)

    def test_an_empty_one_against_a_full_one_fails(self):
        self.judged("compare", *self.pair({}, {"w": f32([2])}), code=1)

    def test_scalars_and_empty_tensors(self):
        tensors = {"scalar": f32([]), "empty": f32([0, 4]), "odd": Tensor("U8", [3], b"abc")}
        self.judged("compare", *self.pair(tensors, tensors), code=0)
        changed = {**tensors, "scalar": f32([], [2.0])}
        self.assertEqual(self.difference(tensors, changed)["index"], 0)

    def test_not_there(self):
        self.pair({"w": f32([2])}, {})
        self.refused("compare", "a.safetensors", "not-there", names=["not-there"])
        self.refused("compare", "not-there", "a.safetensors", names=["not-there"])

    def test_not_a_checkpoint(self):
        self.pair({"w": f32([2])}, {})
        self.write("notes.txt", "no weights here")
        self.refused("compare", "a.safetensors", "notes.txt", names=["notes.txt"])

    def test_json_over_an_input_is_refused_and_the_input_kept(self):
        files = self.pair({"w": f32([2])}, {"w": f32([2])})
        before = snapshot(self.dir)
        for path in files:
            with self.subTest(path):
                self.refused("compare", *files, "--json", path, names=["--json", path])
        self.assertEqual(snapshot(self.dir), before)

    def test_json_file_that_cannot_be_written(self):
        done = self.shardproof("compare", *self.pair({"w": f32([2])}, {"w": f32([2])}),
                               "--json", "no/where.json")  # fmt: skip
        self.assert_exit(done, 2)
        self.assertIn("no/where.json", done.err)
